"""A plane whose TCP listener speaks dflockd's protocol, and clients that are no more than a socket."""

import asyncio
import json
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx

from holdfast.common.serving.listener import Listener
from holdfast.common.serving.process import listeners_of
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.service.common.certificates import Authority, pem

ANSWER_S_MAX = 10.0
"""For one that comes at once or at the end of a time of the test."""


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def line(self, timeout_s: float = ANSWER_S_MAX) -> bytes:
        """The next line with its end; nothing at the end of the connection."""
        async with asyncio.timeout(timeout_s):
            return await self._reader.readline()

    async def ask(self, command: str, key: str = "_", argument: str = "") -> str:
        """The answer to one request, without its end of line."""
        await self.send(f"{command}\n{key}\n{argument}\n".encode())
        return (await self.line()).decode().removesuffix("\n")

    async def lock(self, key: str, argument: str = "0") -> str:
        """The token of a lock that is free."""
        status, token, _ = (await self.ask("l", key, argument)).split(" ")
        assert status == "ok"
        return token

    async def is_closed(self) -> bool:
        """Whether the server ended the connection, with nothing more to say."""
        try:
            return await self.line() == b""
        except ConnectionError:
            return True

    def end(self) -> None:
        """Send no more."""
        self._writer.write_eof()

    async def drain(self) -> None:
        """Read whatever comes, to the end."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._reader.read()
        except ConnectionError:
            return

    def stop_reading(self) -> None:
        cast(asyncio.ReadTransport, self._writer.transport).pause_reading()

    def go_on_reading(self) -> None:
        cast(asyncio.ReadTransport, self._writer.transport).resume_reading()

    async def rest(self) -> bytes:
        """All that comes until the server ends the connection."""
        async with asyncio.timeout(ANSWER_S_MAX):
            return await self._reader.read()

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()

    def reset(self) -> None:
        """The connection ends by RST."""
        own: socket.socket = self._writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


class LockPlane:
    """A plane in this process."""

    def __init__(self, server: PlaneServer) -> None:
        self.server = server
        (address,) = server.addresses_of("tcp")
        assert isinstance(address, tuple), "it is no unix socket"
        self.host, self.port = address
        self.tls: ssl.SSLContext | None = None
        """Of clients, where the listener has a certificate."""
        (main,) = server.addresses
        self.url = f"http://{main[0]}:{main[1]}"

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection(self.host, self.port, ssl=self.tls))

    async def holders(self) -> float:
        """So many slots of keys that are at home here are held."""
        (address,) = self.server.addresses_of("main")
        async with httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}") as http:
            page = (await http.get("/metrics")).text
        found = re.search(r"^holdfast_lock_holders(?:{[^}]*})? (\S+)$", page, re.MULTILINE)
        assert found is not None
        return float(found[1])

    @staticmethod
    async def counts(client: Client) -> tuple[int, int, int]:
        """Connections, waiters and slots that are held, as the server tells them."""
        told = json.loads((await client.ask("stats")).removeprefix("ok "))
        locks, semaphores = told["locks"], told["semaphores"]
        waiters = sum(lock["waiters"] for lock in (*locks, *semaphores))
        held = sum(lock["owner_conn_id"] != 0 for lock in locks) + sum(one["holders"] for one in semaphores)
        return told["connections"], waiters, held

    @asynccontextmanager
    async def deaf_client(self) -> AsyncIterator[Client]:
        """One for which the kernels keep no more than some kilobytes, on either side."""
        for listener, bound in self.server._bound:
            if listener.name == "tcp":  # Accepted sockets inherit it.
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connecting = socket.socket()
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, (self.host, self.port))
        client = Client(*await asyncio.open_connection(sock=connecting))
        try:
            yield client
        finally:
            client.abort()

    @asynccontextmanager
    async def clients(self, count: int) -> AsyncIterator[list[Client]]:
        async with AsyncExitStack() as stack:
            found = []
            for _ in range(count):
                found.append(await self.connect())
                stack.callback(found[-1].close)
            yield found


@asynccontextmanager
async def lock_plane(**settings: Any) -> AsyncIterator[LockPlane]:
    given = {"store": "mem://", "listen": "127.0.0.1:0", "tcp_listen": "127.0.0.1:0", **settings}
    plane = GatewaySettings.isolated(**given)
    app = create_app(plane)
    listeners: list[Listener] = listeners_of(app, plane)
    options = ServeOptions(shutdown_timeout_s=plane.shutdown_timeout_s)
    async with running(app, *listeners, options=options) as server:
        yield LockPlane(server)


class LockPair(LockPlane):
    """Two planes on one store. Connections go to them in turn, the first one to the first."""

    def __init__(self, planes: list[LockPlane]) -> None:
        self.planes = planes
        self._turns = 0

    async def connect(self) -> Client:
        self._turns += 1
        return await self.planes[(self._turns - 1) % len(self.planes)].connect()


@asynccontextmanager
async def lock_pair(store: str, **settings: Any) -> AsyncIterator[LockPair]:
    shared = {"store": store, "tcp_node_ttl_s": 1, **settings}
    async with lock_plane(**shared) as one, lock_plane(**shared) as two:
        await both_share(one, two)
        yield LockPair([one, two])


async def both_share(one: LockPlane, two: LockPlane) -> None:
    """Return when both decide: the second one gets its share of the keys a moment after its start."""
    while not await _shares(one, two):
        continue


async def _shares(one: LockPlane, two: LockPlane) -> bool:
    """Whether both planes decide, and neither refuses anything: a lock of each of many keys is seen at the other one."""
    async with one.clients(1) as (left,), two.clients(1) as (right,):
        for number in range(16):
            answer = await left.ask("l", f"share-{number}", "0 60")
            if not answer.startswith("ok ") or await right.ask("l", f"share-{number}", "0") != "timeout":
                return False
        return min(await one.holders(), await two.holders()) > 0


@asynccontextmanager
async def tls_plane(folder: Path, **settings: Any) -> AsyncIterator[LockPlane]:
    """As `lock_plane`, with a certificate."""
    authority = Authority()
    issued, private_key = authority.issue("locks")
    files = {"tcp_tls_cert": folder / "cert.pem", "tcp_tls_key": folder / "key.pem"}
    files["tcp_tls_cert"].write_bytes(pem(issued))
    files["tcp_tls_key"].write_bytes(pem(private_key))
    async with lock_plane(**files, **settings) as plane:
        plane.tls = ssl.create_default_context(cadata=pem(authority.certificate).decode())
        plane.tls.check_hostname = False
        yield plane
