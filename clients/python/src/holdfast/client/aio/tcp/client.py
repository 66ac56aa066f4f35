"""Locks, semaphores and signals over TCP, as dflockd's clients have them."""

import json
import time
from types import TracebackType
from typing import Any, Self

from holdfast.client.aio.concurrency import Background, Pending, pending
from holdfast.client.aio.tcp.connection import Connection
from holdfast.client.aio.tcp.lock import TcpLock, TcpPlace
from holdfast.client.aio.tcp.signals import TcpSignals
from holdfast.client.errors import ClientClosed, TransportFailed, TransportTimedOut, UnexpectedAnswer
from holdfast.client.tcp import protocol
from holdfast.client.tcp.options import SERVER_DEFAULT, Server, TcpOptions, server_of, shard_of
from holdfast.client.tcp.protocol import Granted

_IDLE_MAX = 16
"""Connections to one server that wait for their next use."""


class TcpClient:
    """`async with AsyncTcpClient("127.0.0.1:6388") as client`. Belongs to one event loop.

    With several servers, each key, channel and pattern has one, by CRC-32: all clients must name the same servers in the same order.
    Each lock that is held or waited for has a connection of its own, which later requests use again.
    A request that meets a connection which the server has closed meanwhile is sent once more over a new one;
    nothing else is repeated, and no other server is asked.
    """

    def __init__(self, *servers: str, options: TcpOptions | None = None) -> None:
        self.options = options or TcpOptions()
        self.servers = [server_of(text) for text in servers or (SERVER_DEFAULT,)]
        self._idle: dict[Server, list[Connection]] = {server: [] for server in self.servers}
        self._used: set[Connection] = set()
        self._held: dict[Connection, TcpLock] = {}
        self._signals: set[TcpSignals] = set()
        self._background = Background()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up: what is still held ends with its connection."""
        self._is_closed = True
        for signals in list(self._signals):
            await signals.close()
        for lock in list(self._held.values()):
            lock.drop()
        for connection in [*self._used, *(one for idle in self._idle.values() for one in idle)]:
            connection.close()
        await self._background.wait(self.options.timeout_s)

    def lock(self, key: str, *, ttl_s: float | None = None, wait_s: float | None = 10.0) -> Pending[TcpLock]:
        """Hold a key alone: `async with client.lock("jobs") as lock`. LeaseHeld when it takes longer than `wait_s` (None: for ever).

        Without `ttl_s` the server's default counts.
        """
        return self.semaphore(key, 1, ttl_s=ttl_s, wait_s=wait_s)

    def semaphore(
        self, key: str, limit: int, *, ttl_s: float | None = None, wait_s: float | None = 10.0
    ) -> Pending[TcpLock]:
        """Hold one of `limit` slots of a key."""
        return pending(lambda: self._acquire(key, limit, ttl_s, wait_s))

    async def _acquire(self, key: str, limit: int, ttl_s: float | None, wait_s: float | None) -> TcpLock:
        seconds = protocol.wait_seconds(wait_s)
        request = protocol.lock_request("l", key, limit, seconds, ttl_s)
        connection, answer = await self._ask(shard_of(key, self.servers), request, seconds)
        try:
            granted = protocol.granted_of(answer)
        except BaseException:
            self._give_back(connection)
            raise
        return self._hold(connection, key, granted)

    def enqueue(self, key: str, limit: int = 1, *, ttl_s: float | None = None) -> Pending[TcpPlace]:
        """A place in the queue without waiting for it: `async with client.enqueue("jobs") as place`, then `place.wait()`."""
        return pending(lambda: self._enqueue(key, limit, ttl_s))

    async def _enqueue(self, key: str, limit: int, ttl_s: float | None) -> TcpPlace:
        request = protocol.lock_request("e", key, limit, ttl_s)
        connection, answer = await self._ask(shard_of(key, self.servers), request)
        place = TcpPlace(
            connection,
            key,
            limit,
            timeout_s=self.options.timeout_s,
            hold=lambda granted: self._hold(connection, key, granted),
            give_back=self._give_back,
        )
        if answer != "queued":
            try:
                protocol.granted_of(answer)
            except BaseException:
                self._give_back(connection)
                raise
            place.is_granted = True
        return place

    async def signal(self, channel: str, payload: str) -> int:
        """Send to all listeners of this moment; how many took it."""
        request = protocol.request("signal", channel, payload)
        return protocol.number_of(await self._ask_once(shard_of(channel, self.servers), request))

    def signals(self, pattern: str, *, group: str = "") -> TcpSignals:
        """Listen: `async with client.signals("orders.*") as signals`, then `async for signal in signals`.

        A pattern with wildcards is listened to at every server.
        """
        self._check_open()
        is_wild = "*" in pattern or ">" in pattern
        servers = self.servers if is_wild else [shard_of(pattern, self.servers)]
        signals = TcpSignals(
            servers,
            self.options,
            pattern,
            group,
            background=self._background,
            on_close=self._signals.discard,
        )
        self._signals.add(signals)
        return signals

    async def stats(self) -> list[dict[str, Any]]:
        """What each server tells of itself."""
        found: list[dict[str, Any]] = []
        for server in self.servers:
            status, _, text = (await self._ask_once(server, protocol.request("stats"))).partition(" ")
            try:
                told = json.loads(text) if status == "ok" else None
            except (ValueError, RecursionError):
                told = None
            if not isinstance(told, dict):
                raise UnexpectedAnswer(f"{server}: stats that are no JSON object")
            found.append(told)
        return found

    async def ping(self) -> None:
        """Every server answers, or TransportFailed."""
        for server in self.servers:
            await self._ask_once(server, protocol.request("ping"))

    async def _ask_once(self, server: Server, request: bytes) -> str:
        connection, answer = await self._ask(server, request)
        self._give_back(connection)
        return answer

    async def _ask(self, server: Server, request: bytes, wait_s: float = 0.0) -> tuple[Connection, str]:
        """The answer, and the connection that what it grants belongs to."""
        timeout_s = self.options.timeout_s + wait_s
        connection = self._reused(server)
        if connection is not None:
            try:
                return connection, await self._ask_on(connection, request, timeout_s)
            except TransportTimedOut:
                raise
            except TransportFailed:
                pass  # The server closed it while it was idle; what it granted is released.
        connection = await self._new(server)
        return connection, await self._ask_on(connection, request, timeout_s)

    async def _ask_on(self, connection: Connection, request: bytes, timeout_s: float) -> str:
        try:
            return await connection.ask(request, timeout_s)
        except BaseException:
            self._used.discard(connection)
            connection.close()
            raise

    def _reused(self, server: Server) -> Connection | None:
        self._check_open()
        idle = self._idle[server]
        while idle:
            connection = idle.pop()
            if connection.is_reusable and time.monotonic() - connection.used_at_s < self.options.idle_s_max:
                self._used.add(connection)
                return connection
            connection.close()
        return None

    async def _new(self, server: Server) -> Connection:
        connection = await Connection.open(server, self.options)
        self._used.add(connection)
        if self._is_closed:
            connection.close()
            raise ClientClosed("this client was closed")
        return connection

    def _hold(self, connection: Connection, key: str, granted: Granted) -> TcpLock:
        lock = TcpLock(
            connection,
            key,
            granted,
            timeout_s=self.options.timeout_s,
            give_back=self._give_back,
            background=self._background,
        )
        self._held[connection] = lock
        return lock

    def _give_back(self, connection: Connection) -> None:
        """It holds nothing any more."""
        self._used.discard(connection)
        self._held.pop(connection, None)
        idle = self._idle[connection.server]
        if self._is_closed or not connection.is_reusable or len(idle) >= _IDLE_MAX:
            connection.close()
        else:
            idle.append(connection)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("this client is closed")
