# Generated from aio/tcp/signals.py by generate_sync.py: change that, then run `make sync-client`.
"""Signals over TCP: a connection for each server that may have them, read in the background."""

from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from holdfast.client.errors import ClientError, TransportFailed
from holdfast.client.locks.view import Signal
from holdfast.client.sync.concurrency import Background, Event, is_set_within
from holdfast.client.sync.tcp.connection import Connection
from holdfast.client.tcp import protocol
from holdfast.client.tcp.options import Server, TcpOptions

UNREAD_MAX: Final = 1_024
_PING_S: Final = 8.0
"""Servers cut off connections that say nothing for 23 s."""
_AGAIN_S_MIN: Final = 0.1
_AGAIN_S_MAX: Final = 5.0


class TcpSignals:
    """`for signal in signals`, inside its `with`.

    A connection that breaks is opened again, after 0.1 s and up to 5 s; what is sent meanwhile is lost. More than 1,024 signals that the
    program has not taken are dropped, and counted in `dropped`.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        options: TcpOptions,
        pattern: str,
        group: str,
        *,
        background: Background,
        on_close: Callable[["TcpSignals"], object],
    ) -> None:
        self.dropped = 0
        self._request = protocol.request("listen", pattern, group)
        self._servers = servers
        self._options = options
        self._background = background
        self._tell_close = on_close
        self._signals: deque[Signal] = deque()
        self._arrived = Event()
        self._closed = Event()
        self._opened = [Event() for _ in servers]
        self._connections: dict[Server, Connection] = {}
        self._problem: ClientError | None = None

    def __enter__(self) -> Self:
        """When the block begins, every server knows the listener, but for those that could not be reached in time."""
        for number in range(len(self._servers)):
            self._start(number)
        for opened in self._opened:
            is_set_within(opened, self._options.connect_timeout_s + self._options.timeout_s)
        if self._problem is not None:
            self.close()
            raise self._problem
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Signal:
        while not self._signals:
            if self._problem is not None:
                raise self._problem
            if self._closed.is_set():
                raise StopIteration
            self._arrived.clear()
            if not self._signals and not self._closed.is_set() and self._problem is None:
                self._arrived.wait()
        return self._signals.popleft()

    def close(self) -> None:
        """End it; a reader that waits comes to its end."""
        self._closed.set()
        self._arrived.set()
        self._tell_close(self)
        for connection in list(self._connections.values()):
            connection.close()

    def _start(self, number: int) -> None:
        def listen() -> None:
            self._listen(self._servers[number], self._opened[number])

        self._background.start(listen, name="holdfast.tcp.signals")

    def _listen(self, server: Server, opened: Event) -> None:
        """Until it is closed, or the server refuses or is none of this protocol."""
        again_s = 0.0
        while not is_set_within(self._closed, again_s):
            try:
                connection = Connection.open(server, self._options)
                self._connections[server] = connection
                connection.on_push = self._take
                protocol.check_ok(connection.ask(self._request, self._options.timeout_s))
                opened.set()
                again_s = 0.0
                self._read(connection)
            except TransportFailed:
                again_s = min(_AGAIN_S_MAX, max(_AGAIN_S_MIN, again_s * 2))
            except ClientError as problem:
                self._problem = problem
                opened.set()
                self._arrived.set()
                return

    def _read(self, connection: Connection) -> None:
        """Until it breaks, which silence over a ping is, too."""
        is_asked = False
        while not self._closed.is_set():
            line = connection.line(_PING_S)
            if line is None:
                if is_asked:
                    connection.close()
                    raise TransportFailed("no sign of life")
                connection.send(protocol.request("ping"))
            elif line.startswith(protocol.PUSH):
                self._take(line)
            is_asked = line is None

    def _take(self, line: bytes) -> None:
        if len(self._signals) >= UNREAD_MAX:
            self.dropped += 1
            return
        self._signals.append(protocol.signal_of(line))
        self._arrived.set()
