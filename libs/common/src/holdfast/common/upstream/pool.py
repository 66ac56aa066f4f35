"""The connections to one replica: opened when needed, kept while warm, never more than the limit."""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast

from holdfast.common.upstream.address import Address
from holdfast.common.upstream.connection import UpstreamConnection
from holdfast.common.upstream.errors import UpstreamUnavailable
from holdfast.common.upstream.limits import UpstreamLimits


class Pool:
    """Hands out connections; the one used last is used again first, so that the others can cool down and close."""

    def __init__(
        self,
        address: Address,
        limits: UpstreamLimits,
        tls: ssl.SSLContext | None = None,
        *,
        on_unreachable: Callable[[str], None],
    ) -> None:
        self._address = address
        self._limits = limits
        self._on_unreachable = on_unreachable
        assert tls is not None or not address.is_tls, f"{address.url} needs TLS"
        self._tls = tls if address.is_tls else None
        self._idle: list[UpstreamConnection] = []
        self._open: set[UpstreamConnection] = set()
        self._connecting = 0
        self._waiters: deque[asyncio.Future[UpstreamConnection | None]] = deque()
        self._is_closed = False
        self.now_s = 0.0
        """A coarse clock, moved by `sweep`."""

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def idle_count(self) -> int:
        return len(self._idle)

    def take_idle(self) -> UpstreamConnection | None:
        """A warm connection, or None. What rested is looked at first: the other side may have closed it."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and (connection.idle_since_s == self.now_s or not connection.is_stale()):
                return connection
            connection.close()
        return None

    async def take(self) -> UpstreamConnection:
        """A connection, opened for this call if none is idle; UpstreamUnavailable when there can be none."""
        while (connection := self.take_idle()) is None:
            if len(self._open) + self._connecting < self._limits.connections_max:
                return await self._connect()
            connection = await self._wait()
            if connection is not None and connection.is_usable:
                return connection
        return connection

    async def _wait(self) -> UpstreamConnection | None:
        """Wait in the queue for a connection that is given back, or for room (None) to open another."""
        if len(self._waiters) >= self._limits.waiters_max:
            raise UpstreamUnavailable(f"too many calls wait for {self._address.url}", retry_after_s=1)
        waiter: asyncio.Future[UpstreamConnection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(self._limits.pool_wait_s):
                return await waiter
        except (TimeoutError, asyncio.CancelledError) as error:
            if waiter.done() and not waiter.cancelled():
                self._give(waiter.result())  # It came too late for this call, not for the next waiter.
            else:
                self._waiters.remove(waiter)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise UpstreamUnavailable(
                f"no connection to {self._address.url} became free in time", retry_after_s=1
            ) from None

    async def _connect(self) -> UpstreamConnection:
        self._connecting += 1
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                return await self._open_connection()
        except TimeoutError:
            raise self._unreachable("no answer to the connection") from None
        except OSError as error:
            raise self._unreachable(error.strerror or str(error) or type(error).__name__) from error
        finally:
            self._connecting -= 1

    def _unreachable(self, reason: str) -> UpstreamUnavailable:
        detail = f"{self._address.url} cannot be reached: {reason}"
        self._on_unreachable(detail)
        return UpstreamUnavailable(detail, retry_after_s=1)

    async def _open_connection(self) -> UpstreamConnection:
        address = self._address
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: UpstreamConnection(self, self._limits, address.url),
            address.host,
            address.port,
            ssl=self._tls,
            server_hostname=address.host if self._tls is not None else None,
        )
        _notice_death(cast(socket.socket | None, transport.get_extra_info("socket")), self._limits)
        if self._is_closed:
            transport.abort()
            raise UpstreamUnavailable("this process is stopping")
        self._open.add(connection)
        return connection

    # What connections report.

    def release(self, connection: UpstreamConnection) -> None:
        connection.idle_since_s = self.now_s
        self._give(connection)

    def _give(self, connection: UpstreamConnection | None) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if connection is None:
            return
        if len(self._idle) >= self._limits.idle_max or self._is_closed:
            connection.close()
        else:
            self._idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._give(None)

    # The owner of the pool.

    def sweep(self, now_s: float) -> None:
        """Called a few times a second: end calls that are too late, and connections idle for too long."""
        self.now_s = now_s
        for connection in list(self._open):
            connection.check_deadline(now_s)
        while self._idle and now_s - self._idle[0].idle_since_s > self._limits.idle_timeout_s:
            self._idle.pop(0).close()

    def close(self) -> None:
        """Drop every connection; calls that still run end in an error."""
        self._is_closed = True
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()


def _notice_death(peer: socket.socket | None, limits: UpstreamLimits) -> None:
    """Some calls wait for hours; a machine that vanished meanwhile must not hold them up for ever."""
    if peer is None:
        return
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, limits.dead_peer_s // 4))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, limits.dead_peer_s // 12))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limits.dead_peer_s * 1000)
