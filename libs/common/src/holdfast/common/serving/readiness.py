"""Listeners and connections in one epoll set, which the event loop sees as a single descriptor.

Many clients open a connection for one or two requests. A transport of the loop costs each of them several times what its
request costs, and spreads it over turns: accepted in one, read in the next. Here a turn is one callback: whatever is ready is
accepted, read and handled. Only plain sockets on Linux; TLS and other systems go by the transports of the loop.

    CONNECTED --close with nothing unsent, abort, error--> CLOSED --next turn: connection_lost-->
    CONNECTED --close with something unsent--> FLUSHING --all is sent--> CLOSED
    CONNECTED --end of input, the protocol stays--> HALF CLOSED: not read any more, else as before

While reading is paused, the end of input may stand behind bytes that are not read yet. A protocol with a method
`peer_finished` is told of it at once, and by `eof_received` when its turn comes.
"""

import asyncio
import errno
import os
import select
import socket
from collections.abc import Callable
from typing import Any, Final

from holdfast.common.express.hang_up import FILENO
from holdfast.common.logging import get_logger

HAS_EPOLL: Final = hasattr(select, "epoll")
ACCEPTS_PER_TURN_MAX: Final = 64
EVENTS_PER_TURN_MAX: Final = 64
TURN_BYTES_MAX: Final = 1 << 20  # Read so much, a turn ends: what is ready still is so in the next one.
READ_BYTES_MIN: Final = 16 << 10
READ_BYTES_MAX: Final = 256 << 10
UNSENT_BYTES_HIGH: Final = (
    64 << 10
)  # As the transports of asyncio have it, and the protocols were written for.
UNSENT_BYTES_LOW: Final = 16 << 10
ACCEPT_PAUSE_S: Final = 0.5
BACKLOG_TURNS_MAX: Final = 64
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_GONE: Final = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError)

_log = get_logger("api.http.server")


class ReadinessSet:
    """The epoll set of a server. Its owner closes it when all connections are over."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        # In this turn: what it was told of their descriptors is of earlier ones.
        self._began: set[int] = set()
        self.bytes_read = 0  # In this turn.
        loop.add_reader(self._epoll.fileno(), self._turn)

    def watch(self, fd: int, mask: int, on_ready: Callable[[int], None]) -> None:
        """Hang-ups and errors are reported whatever the mask says, and again in each turn: their handler has to end it."""
        self._epoll.register(fd, mask)
        self._ready[fd] = on_ready
        self._began.add(fd)

    def change(self, fd: int, mask: int) -> None:
        self._epoll.modify(fd, mask)

    def forget(self, fd: int) -> None:
        del self._ready[fd]
        self._epoll.unregister(fd)

    def forget_closed(self, fd: int) -> None:
        """The same for one that is closed at once: the kernel forgets it by itself."""
        del self._ready[fd]

    def close(self) -> None:
        self.loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _turn(self) -> None:
        ready, began = self._ready, self._began
        began.clear()
        self.bytes_read = 0
        for fd, mask in self._epoll.poll(0, EVENTS_PER_TURN_MAX):
            on_ready = ready.get(fd)
            if on_ready is not None and fd not in began:  # Closed by what was handled before it.
                on_ready(mask)
                if self.bytes_read > TURN_BYTES_MAX:
                    break


class SocketListener:
    """Accepts on one bound socket, which its opener closes."""

    def __init__(
        self,
        readiness: ReadinessSet,
        bound: socket.socket,
        protocol_factory: Callable[[], asyncio.Protocol],
        backlog: int,
    ) -> None:
        self._readiness = readiness
        self._bound = bound
        self._protocol_factory = protocol_factory
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False
        bound.setblocking(False)
        if bound.family != socket.AF_UNIX:
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # Accepted sockets inherit it.
        bound.listen(backlog)
        readiness.watch(bound.fileno(), select.EPOLLIN, self._on_ready)

    def close(self) -> None:
        """Accept no more than what has come already: the kernel would reset that."""
        if self._is_closed:
            return
        for _ in range(BACKLOG_TURNS_MAX):
            if self._retry is not None or not self._accept():
                break
        self._is_closed = True
        if self._retry is None:
            self._readiness.forget(self._bound.fileno())
        else:
            self._retry.cancel()

    def _on_ready(self, mask: int) -> None:
        self._accept()

    def _accept(self) -> bool:
        """Whether there may be more."""
        for _ in range(ACCEPTS_PER_TURN_MAX):
            try:
                fd, _ = self._bound._accept()  # type: ignore[attr-defined]  # `accept` without an object for the socket.
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return False
            except OSError as error:
                self._failed(error)
                return False
            self._begin(fd)
        return True

    def _begin(self, fd: int) -> None:
        transport: SocketTransport | None = None
        try:
            os.set_blocking(fd, False)
            transport = SocketTransport(self._readiness, fd, self._bound.family, self._protocol_factory())
            transport.begin()
        except Exception as error:  # noqa: BLE001 (the next connections must come in)
            _log.error("server.connection.failed", exception=error)
            if transport is None:
                os.close(fd)
            else:
                transport.abort()

    def _failed(self, error: OSError) -> None:
        """Trying again at once would only keep the loop busy: the connection waits in the backlog."""
        if error.errno not in _NO_ROOM:
            _log.warn("server.accept.failed", reason=str(error))
            return
        _log.warn("server.accept.paused", reason=str(error), seconds=ACCEPT_PAUSE_S)
        self._readiness.forget(self._bound.fileno())
        self._retry = self._readiness.loop.call_later(ACCEPT_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._retry = None
        self._readiness.watch(self._bound.fileno(), select.EPOLLIN, self._on_ready)


class SocketTransport(asyncio.Transport):
    """One accepted connection."""

    __slots__ = (
        "_family",
        "_fd",
        "_has_eof",
        "_has_told_end",
        "_is_closing",
        "_is_held_up",
        "_is_reading",
        "_is_watched",
        "_mask",
        "_protocol",
        "_read_bytes",
        "_readiness",
        "_sends_eof",
        "_socket",
        "_unsent",
        "_unsent_from",
        "_unsent_high",
        "_unsent_low",
    )

    def __init__(self, readiness: ReadinessSet, fd: int, family: int, protocol: asyncio.Protocol) -> None:
        self._readiness = readiness
        self._fd = fd
        self._family = family
        self._protocol = protocol
        self._socket: socket.socket | None = None
        self._unsent = bytearray()
        self._unsent_from = 0  # What is before it was sent.
        self._unsent_high = UNSENT_BYTES_HIGH
        self._unsent_low = UNSENT_BYTES_LOW
        self._is_watched = False
        self._mask = 0
        self._read_bytes = READ_BYTES_MIN
        self._is_reading = True
        self._is_closing = False
        self._is_held_up = False
        self._has_eof = False
        self._has_told_end = False
        self._sends_eof = False

    def begin(self) -> None:
        """The first request has often come with the connection: it is read at once."""
        try:
            self._protocol.connection_made(self)
        except Exception as error:  # noqa: BLE001 (the edge of the protocol: the others must go on)
            self._failed(error)
        if not self._is_closing and self._is_reading:
            self._read()
        self._watch()

    # -- what protocols ask for

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if self._fd < 0:
            return default
        if name == FILENO:
            return self._fd
        if name == "socket":
            if self._socket is None:
                self._socket = socket.socket(self._family, socket.SOCK_STREAM, 0, fileno=self._fd)
            return self._socket
        if name in ("peername", "sockname"):
            bound = self.get_extra_info("socket")
            return bound.getpeername() if name == "peername" else bound.getsockname()
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False
        self._watch()

    def resume_reading(self) -> None:
        self._is_reading = True
        self._watch()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._sends_eof or self._is_closing:
            return
        self._sends_eof = True
        if not self._unsent:
            self._shut_down()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent) - self._unsent_from

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """A quarter of `high` is low, unless that is said; for what is written from now on."""
        self._unsent_high = UNSENT_BYTES_HIGH if high is None else high
        self._unsent_low = self._unsent_high // 4 if low is None else low

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._sends_eof or not data:
            return
        if self._unsent:
            self._unsent += data
        else:
            try:
                sent = os.write(self._fd, data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._lose(error)
                return
            if sent == len(data):
                return
            self._unsent += memoryview(data)[sent:]
            self._watch()
        if self.get_write_buffer_size() > self._unsent_high and not self._is_held_up:
            self._is_held_up = True
            self._protocol.pause_writing()

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self._unsent:
            self._watch()
        else:
            self._end(None)

    def abort(self) -> None:
        self._lose(None)

    # -- what the kernel tells

    def _on_ready(self, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._send()
        if self._mask & select.EPOLLIN:
            if mask & ~select.EPOLLOUT:
                self._read()  # Which meets the error, if there is one.
        elif mask & (select.EPOLLERR | select.EPOLLHUP):
            self._lose(None)  # The client is gone, and nothing is read by which that would show.
        elif mask & select.EPOLLRDHUP:
            self._tell_end()

    def _tell_end(self) -> None:
        """Once: it would be reported again in each turn."""
        self._has_told_end = True
        self._watch()
        peer_finished: Callable[[], None] | None = getattr(self._protocol, "peer_finished", None)
        if peer_finished is not None:
            try:
                peer_finished()
            except Exception as error:  # noqa: BLE001 (as in `begin`)
                self._failed(error)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        try:
            if data:
                self._readiness.bytes_read += len(data)
                if len(data) == self._read_bytes < READ_BYTES_MAX:
                    self._read_bytes *= 4
                self._protocol.data_received(data)
            else:
                self._has_eof = True
                if self._protocol.eof_received():
                    self._watch()
                else:
                    self.close()
        except Exception as error:  # noqa: BLE001 (as in `begin`)
            self._failed(error)

    def _send(self) -> None:
        try:
            with memoryview(self._unsent) as unsent:
                self._unsent_from += os.write(self._fd, unsent[self._unsent_from :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if self._unsent_from * 2 > len(self._unsent):  # Moving the rest costs less than what was sent.
            del self._unsent[: self._unsent_from]
            self._unsent_from = 0
        if self._is_held_up and self.get_write_buffer_size() <= self._unsent_low:
            self._is_held_up = False
            try:
                self._protocol.resume_writing()
            except Exception as error:  # noqa: BLE001 (as in `begin`)
                self._failed(error)
        if self._unsent or self._fd < 0:
            return
        if self._is_closing:
            self._end(None)
            return
        if self._sends_eof:
            self._shut_down()
        self._watch()

    def _watch(self) -> None:
        """Say what is of interest now; that the client is gone is told of even if nothing is."""
        if self._fd < 0:
            return
        mask = 0
        if not self._has_eof and not self._is_closing:
            if self._is_reading:
                mask = select.EPOLLIN
            elif not self._has_told_end:
                mask = select.EPOLLRDHUP
        if self._unsent:
            mask |= select.EPOLLOUT
        if not self._is_watched:
            self._is_watched = True
            self._readiness.watch(self._fd, mask, self._on_ready)
        elif mask != self._mask:
            self._readiness.change(self._fd, mask)
        self._mask = mask

    # -- the end

    def _shut_down(self) -> None:
        try:
            self.get_extra_info("socket").shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                self._lose(error)

    def _failed(self, error: Exception) -> None:
        _log.error("server.connection.failed", exception=error)
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        """At once, with all that is unsent."""
        self._unsent = bytearray()
        self._unsent_from = 0
        self._is_closing = True
        self._end(None if isinstance(error, _GONE) else error)

    def _end(self, error: Exception | None) -> None:
        fd = self._fd
        if fd < 0:
            return
        self._fd = -1
        self._mask = 0
        if self._is_watched:
            self._is_watched = False
            self._readiness.forget_closed(fd)
        if self._socket is not None:
            self._socket.close()
        else:
            os.close(fd)
        self._readiness.loop.call_soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        except Exception as failure:  # noqa: BLE001 (as in `begin`)
            _log.error("server.connection.failed", exception=failure)
        self._protocol = _OVER  # They refer to each other, and should go by themselves.


_OVER: Final = asyncio.Protocol()
