"""Planes that serve queues over keys, and what their clients do, in as few words as a test can have."""

import itertools
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from holdfast.common.serving.process import listeners_of
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import gateway_before, url_of
from tests.infra.split import split_services

ANSWER_S_MAX = 30.0
PERMISSION_DENIED = (403, 7)
KEY_MISSING = (400, 3)
NOT_EMPTY = (412, 9)


class Event(NamedTuple):
    """What a watch tells of one key."""

    kind: str
    key: str
    value: str
    revision: int


class Watch:
    """A watch that is on."""

    def __init__(self, response: httpx.Response, revision: int, lines: AsyncIterator[str]) -> None:
        self.revision = revision
        self._response = response
        self._lines = lines

    async def message(self) -> list[Event]:
        """The events of the next message that has some."""
        async for line in self._lines:
            if events := json.loads(line)["result"].get("events"):
                return [_event(event) for event in events]
        raise AssertionError("the stream ended")

    async def events(self, count: int) -> list[Event]:
        found: list[Event] = []
        while len(found) < count:
            found += await self.message()
        return found

    async def put(self, key: str) -> Event:
        """The next put of a key below this one."""
        while True:
            for event in await self.message():
                if event.kind == "PUT" and event.key.startswith(key):
                    return event


class QueuePlane:
    """Calls go to the nodes in turns."""

    def __init__(self, clients: list[httpx.AsyncClient]) -> None:
        self.nodes = len(clients)
        self._turns = itertools.cycle(clients)

    async def call(self, path: str, **members: object) -> httpx.Response:
        return await next(self._turns).post(f"/v3/{path}", json=members)

    async def post(self, path: str, **members: object) -> Any:
        answer = await self.call(path, **members)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refused(self, path: str, **members: object) -> tuple[int, int]:
        """Status and code."""
        answer = await self.call(path, **members)
        return answer.status_code, answer.json()["code"]

    async def put(self, key: str, value: str = "", lease: int = 0, **members: object) -> Any:
        return await self.post("kv/put", key=b64(key), value=b64(value), lease=lease, **members)

    async def kvs(self, prefix: str, **members: object) -> list[Any]:
        answer = await self.post("kv/range", key=b64(prefix), range_end=b64(end_of(prefix)), **members)
        kvs: list[Any] = answer.get("kvs", [])
        return kvs

    async def below(self, prefix: str, **members: object) -> dict[str, str]:
        return {text(kv["key"]): text(kv.get("value", "")) for kv in await self.kvs(prefix, **members)}

    async def deliveries(self, queue: str, client: str) -> list[str]:
        """The keys of the deliveries of a consumer, in its words."""
        prefix = f"/q/{queue}/c/{client}/"
        return [key for key in await self.below(prefix) if key != prefix]

    async def messages(self, queue: str) -> dict[int, str]:
        """The ordered queue: value by idx."""
        found = await self.below(f"/q/{queue}/0")
        return {int(key.split("/")[3]): value for key, value in found.items()}

    async def get(self, key: str) -> Any:
        """The key; empty if it is not there."""
        answer = await self.post("kv/range", key=b64(key))
        return (answer.get("kvs") or [{}])[0]

    async def delete(self, key: str) -> int:
        return int((await self.post("kv/deleterange", key=b64(key))).get("deleted", "0"))

    async def delete_below(self, prefix: str) -> int:
        answer = await self.post("kv/deleterange", key=b64(prefix), range_end=b64(end_of(prefix)))
        return int(answer.get("deleted", "0"))

    async def txn(self, *operations: dict[str, Any], **members: object) -> Any:
        return await self.post("kv/txn", success=operations, **members)

    async def grant(self, ttl_s: int = 60) -> int:
        return int((await self.post("lease/grant", TTL=ttl_s))["ID"])

    async def register(self, queue: str, client: str, ttl_s: int = 60) -> int:
        """With a lease of its own, which is returned."""
        lease = await self.grant(ttl_s)
        await self.put(f"/q/{queue}/c/{client}/", lease=lease)
        return lease

    async def send(self, queue: str, *values: str) -> None:
        for value in values:
            await self.put(f"/q/{queue}/p/me/{value}", value)

    @asynccontextmanager
    async def watch(self, key: str, *, is_prefix: bool = True, **create: object) -> AsyncIterator[Watch]:
        """Leaving the block hangs up."""
        asked: dict[str, object] = {"key": b64(key), **create}
        if is_prefix:
            asked["range_end"] = b64(end_of(key))
        body = {"create_request": asked}
        async with next(self._turns).stream("POST", "/v3/watch", json=body) as response:
            assert response.status_code == 200
            lines = response.aiter_lines()
            created = json.loads(await anext(lines))["result"]
            assert created["created"] is True
            yield Watch(response, int(created["header"]["revision"]), lines)


def b64(value: str | bytes) -> str:
    return b64encode(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value).decode()


def text(value: str) -> str:
    return b64decode(value).decode("utf-8", "surrogateescape")


def end_of(prefix: str) -> bytes:
    raw = prefix.encode()
    return raw[:-1] + bytes((raw[-1] + 1,))


def put_of(key: str, value: str = "") -> dict[str, Any]:
    return {"request_put": {"key": b64(key), "value": b64(value)}}


def delete_of(key: str, range_end: str = "") -> dict[str, Any]:
    return {"request_delete_range": {"key": b64(key), "range_end": b64(range_end)}}


def range_of(key: str, range_end: str = "") -> dict[str, Any]:
    return {"request_range": {"key": b64(key), "range_end": b64(range_end)}}


def _event(event: Any) -> Event:
    kv = event["kv"]
    return Event(
        event.get("type", "PUT"), text(kv["key"]), text(kv.get("value", "")), int(kv["mod_revision"])
    )


@asynccontextmanager
async def plane_server(store: str, **settings: Any) -> AsyncIterator[PlaneServer]:
    plane = GatewaySettings.isolated(**{"store": store, "listen": "127.0.0.1:0", **settings})
    app = create_app(plane)
    async with running(app, *listeners_of(app, plane), options=ServeOptions(drain_grace_s=0)) as server:
        yield server


@asynccontextmanager
async def client_of(*urls: str) -> AsyncIterator[QueuePlane]:
    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=None)
        yield QueuePlane(
            [
                await stack.enter_async_context(
                    httpx.AsyncClient(base_url=url, timeout=ANSWER_S_MAX, limits=limits)
                )
                for url in urls
            ]
        )


@asynccontextmanager
async def one_plane(store: str, **settings: Any) -> AsyncIterator[QueuePlane]:
    async with plane_server(store, **settings) as server, client_of(url_of(server)) as plane:
        yield plane


@asynccontextmanager
async def two_planes(store: str, **settings: Any) -> AsyncIterator[QueuePlane]:
    """Two nodes on one store."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(plane_server(store, **settings)) for _ in range(2)]
        yield await stack.enter_async_context(client_of(*map(url_of, servers)))


@asynccontextmanager
async def split_plane(store: str) -> AsyncIterator[QueuePlane]:
    async with split_services(store) as peers, gateway_before(**peers) as server:
        async with client_of(url_of(server)) as plane:
            yield plane


def opened(
    shape: str, request: pytest.FixtureRequest, folder: Path
) -> AbstractAsyncContextManager[QueuePlane]:
    """A plane of this shape over a store of its own."""
    match shape:
        case "memory":
            return one_plane("mem://")
        case "disk":
            return one_plane(f"disk://{folder}")
        case "nodes":
            return two_planes(request.getfixturevalue("module_postgres_url"))
        case _:
            return split_plane(request.getfixturevalue("module_postgres_url"))
