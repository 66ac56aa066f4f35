"""What all connections of one server share: the table, the hooks, the limits, the clock and the common headers."""

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING

from holdfast.common.dialect import Dialects
from holdfast.common.express.execution import Hooks, Worker
from holdfast.common.express.limits import DEFAULT_LIMITS, Limits
from holdfast.common.express.message import AnyAnswer, Header
from holdfast.common.express.route import Table

if TYPE_CHECKING:
    from holdfast.common.express.connection import HttpConnection

_SWEEP_EVERY_TICKS = 5
_IDLE_WORKERS_MAX = 256


class Lane:
    """Shared state of the connections; `tick` moves its coarse clock about ten times a second.

    A coarse clock and one sweep over all connections replace a timer per request: the hot path only writes a number.
    """

    def __init__(
        self,
        table: Table,
        hooks: Hooks | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
        is_express: bool = True,
        accepts_peer: Callable[[bytes], bool] | None = None,
        dialects: Dialects | None = None,
    ) -> None:
        """`dialects` are those of its listener, if they are not those of the app."""
        self.table: Table = _served_here(table) if is_express else {}
        self.hooks = hooks or Hooks()
        self.dialects = dialects or self.hooks.dialects
        self.limits = limits
        self.accepts_peer = accepts_peer
        self.is_draining = False
        self.is_closing = False
        self.now_s = 0.0
        self.common_head = b""
        # One list for ever, changed in place: uvicorn's cycles look at it when they send, not when they begin.
        self.default_headers: list[Header] = []
        self.connections: set[HttpConnection] = set()
        self.half_closed: set[HttpConnection] = set()
        self.is_empty = asyncio.Event()
        self._idle_workers: list[Worker[AnyAnswer | None]] = []
        self._ticks = 0
        self._wall_s = -1

    @property
    def count(self) -> int:
        """Open connections."""
        return len(self.connections)

    def tick(self, now_s: float, wall_s: float) -> None:
        """Let time pass: renew the date, look after half-closed and slow connections."""
        self.now_s = now_s
        if int(wall_s) != self._wall_s:
            self._wall_s = int(wall_s)
            self._renew_common_headers()
        for connection in list(self.half_closed):
            connection.check_half_closed(now_s)
        self._ticks += 1
        if self._ticks % _SWEEP_EVERY_TICKS == 0 or self.is_closing:
            for connection in list(self.connections):
                connection.sweep(now_s)

    def begin_drain(self) -> None:
        """From now on every answer says `Shutdown-Imminent: true`."""
        self.is_draining = True
        self._renew_common_headers()

    def begin_close(self) -> None:
        """From now on every answer ends its connection, and idle connections are closed."""
        self.is_closing = True
        while self._idle_workers:
            self._idle_workers.pop().cancel()
        for connection in list(self.connections):
            connection.shutdown()
        if not self.connections:
            self.is_empty.set()

    def forget(self, connection: "HttpConnection") -> None:
        """A connection is over; `is_empty` tells when it was the last of a closing server."""
        self.connections.discard(connection)
        self.half_closed.discard(connection)
        if self.is_closing and not self.connections:
            self.is_empty.set()

    def take_worker(self, loop: asyncio.AbstractEventLoop) -> Worker[AnyAnswer | None]:
        """For a connection that has a request. One that served another before saves the making of a task."""
        return self._idle_workers.pop() if self._idle_workers else Worker(loop)

    def give_back(self, worker: Worker[AnyAnswer | None]) -> None:
        """Its connection is over: what it still does is cancelled."""
        if worker.is_idle and len(self._idle_workers) < _IDLE_WORKERS_MAX and not self.is_closing:
            worker.leave()
            self._idle_workers.append(worker)
        else:
            worker.cancel()

    def abort(self) -> None:
        """Drop every connection at once."""
        for connection in list(self.connections):
            connection.transport.abort()

    def _renew_common_headers(self) -> None:
        headers = [(b"date", formatdate(self._wall_s, usegmt=True).encode())]
        if self.is_draining:
            headers.append((b"shutdown-imminent", b"true"))
        self.default_headers[:] = headers
        self.common_head = b"".join(b"%b: %b\r\n" % header for header in headers)


def _served_here(table: Table) -> Table:
    """The table without HEAD, an answer without its body: rare enough to be left to ASGI."""
    return {
        path: {method: route for method, route in methods.items() if method != b"HEAD"}
        for path, methods in table.items()
    }
