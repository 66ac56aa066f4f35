"""Planes that speak etcd's JSON API in every shape, and a client that is no more than a socket: it changes no byte."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holdfast.common.serving.process import listeners_of
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import gateway_before, url_of
from tests.infra.split import split_services
from tests.wire.lockd.queue_wire import RawAnswer

ANSWER_S_MAX = 20.0
"""For one that comes at once or when a lease of a second is over, on a machine that has other work."""
ANSWER_BYTES_MAX = 1 << 24


class Reply(NamedTuple):
    """An answer. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    node: int = 0

    @property
    def members(self) -> Any:
        return json.loads(self.body)


class Stream:
    """The answer to a watch as it comes off the socket."""

    def __init__(self, answer: RawAnswer, node: int) -> None:
        self._answer = answer
        self.node = node
        self.status = 0
        self.headers: dict[str, str] = {}

    async def head(self) -> None:
        async with asyncio.timeout(ANSWER_S_MAX):
            self.status, self.headers = _head(await self._answer.head())

    async def chunk(self, timeout_s: float = ANSWER_S_MAX) -> bytes:
        """The next HTTP chunk; empty at the end."""
        async with asyncio.timeout(timeout_s):
            return await self._answer.chunk()

    async def message(self, timeout_s: float = ANSWER_S_MAX) -> Any:
        """The result that the next chunk is."""
        return json.loads(await self.chunk(timeout_s))["result"]

    async def events(self, count: int) -> list[Any]:
        """As many as these, in one message or in several."""
        found: list[Any] = []
        while len(found) < count:
            found += (await self.message()).get("events", [])
        return found


class EtcdWire:
    """Calls go to the ports in turns, the first one to the first; each on a connection of its own."""

    def __init__(self, urls: Sequence[str], *, is_listener: bool = False) -> None:
        self.ports = [port for port in (urlsplit(url).port for url in urls) if port is not None]
        assert len(self.ports) == len(urls)
        self.is_listener = is_listener
        """Whether this port has nothing but etcd's API."""
        self._turns = itertools.cycle(range(len(urls)))

    async def call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        node = next(self._turns)
        async with asyncio.timeout(ANSWER_S_MAX), self._asked(node, method, path, body, headers) as answer:
            head = await answer.head()
            return Reply(*_head(head), await answer.body(head), node)

    async def post(self, path: str, **members: object) -> Any:
        """The answer to a call that succeeds."""
        reply = await self.call("POST", path, json.dumps(members).encode())
        assert reply.status == 200, reply
        return reply.members

    @asynccontextmanager
    async def stream(self, body: bytes, path: str = "/v3/watch") -> AsyncIterator[Stream]:
        """Leaving the block hangs up."""
        node = next(self._turns)
        async with self._asked(node, "POST", path, body, None) as answer:
            yield Stream(answer, node)

    @asynccontextmanager
    async def watch(self, **create: object) -> AsyncIterator[Stream]:
        """A watch that is on."""
        async with self.stream(json.dumps({"create_request": create}).encode()) as stream:
            await stream.head()
            assert (await stream.message())["created"] is True
            yield stream

    @asynccontextmanager
    async def _asked(
        self, node: int, method: str, path: str, body: bytes, headers: Mapping[str, str] | None
    ) -> AsyncIterator[RawAnswer]:
        lines = [f"{method} {path} HTTP/1.1", "Host: plane", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[node], limit=ANSWER_BYTES_MAX)
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await writer.drain()
            yield RawAnswer(reader)
        finally:
            writer.close()


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    return int(first.split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}


@asynccontextmanager
async def etcd_server(*, is_express: bool = True, **settings: Any) -> AsyncIterator[PlaneServer]:
    """A plane, all in one."""
    given = {"store": "mem://", "listen": "127.0.0.1:0", "tcp_listen": "", **settings}
    plane = GatewaySettings.isolated(**given)
    app = create_app(plane)
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    async with running(app, *listeners_of(app, plane), options=options) as server:
        yield server


@asynccontextmanager
async def one_plane(store: str = "mem://", **settings: Any) -> AsyncIterator[EtcdWire]:
    async with etcd_server(store=store, **settings) as server:
        yield EtcdWire([url_of(server)])


def listener_url_of(server: PlaneServer) -> str:
    """Of the port that has etcd's API alone."""
    (address,) = server.addresses_of("etcd")
    assert isinstance(address, tuple)
    return f"http://127.0.0.1:{address[1]}"


@asynccontextmanager
async def listener_plane(store: str = "mem://") -> AsyncIterator[EtcdWire]:
    """By the port that has etcd's API alone."""
    async with etcd_server(store=store, etcd_listen="127.0.0.1:0") as server:
        yield EtcdWire([listener_url_of(server)], is_listener=True)


@asynccontextmanager
async def two_planes(store: str) -> AsyncIterator[EtcdWire]:
    """Two processes' worth of servers on one store."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(etcd_server(store=store)) for _ in range(2)]
        yield EtcdWire([url_of(server) for server in servers])


@asynccontextmanager
async def split_plane(store: str) -> AsyncIterator[EtcdWire]:
    """A gateway before the services, each with a server of its own."""
    async with split_services(store) as peers, gateway_before(**peers) as server:
        yield EtcdWire([url_of(server)])


Shape = Callable[[str], AbstractAsyncContextManager[EtcdWire]]
"""By the URL of the store."""

SHAPES: dict[str, Shape] = {
    "memory": one_plane,
    "asgi": partial(one_plane, is_express=False),
    "listener": listener_plane,
    "disk": one_plane,
    "postgres": one_plane,
    "nodes": two_planes,
    "split": split_plane,
}
