"""A connection that speaks lines, for threads. `aio/tcp/connection.py` has the same names for an event loop."""

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from holdfast.client.errors import TransportFailed, TransportTimedOut
from holdfast.client.tcp import protocol
from holdfast.client.tcp.options import Server, TcpOptions

_CHUNK_BYTES: Final = 64 * 1024


class Connection:
    """One request at a time. After a failure it is closed: what it held at the server is gone with it."""

    def __init__(self, connected: socket.socket, server: Server) -> None:
        self.server = server
        self.used_at_s = time.monotonic()
        self.on_push: Callable[[bytes], None] = lambda line: None
        self._socket = connected
        self._buffer = b""
        self._is_closed = False

    @classmethod
    def open(cls, server: Server, options: TcpOptions) -> Self:
        """Connected, and let in."""
        try:
            connected = socket.create_connection((server.host, server.port), options.connect_timeout_s)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if options.tls is not None:
                connected = options.tls.wrap_socket(connected, server_hostname=server.host)
        except TimeoutError as error:
            raise TransportTimedOut(f"{server}: no connection in time", is_sent=False) from error
        except OSError as error:
            raise TransportFailed(f"{server}: {error}", is_sent=False) from error
        connection = cls(connected, server)
        if options.token:
            try:
                answer = connection.ask(protocol.request("auth", argument=options.token), options.timeout_s)
                protocol.check_ok(answer)
            except BaseException:
                connection.close()
                raise
        return connection

    @property
    def is_reusable(self) -> bool:
        """Nothing came without a request: a server says so when it ends a connection."""
        if self._is_closed or self._buffer:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def ask(self, request: bytes, timeout_s: float) -> str:
        """The answer, without its end of line. Signals that come first go to `on_push`."""
        self.send(request)
        while True:
            line = self.line(timeout_s)
            if line is None:
                self.close()
                raise TransportTimedOut(f"{self.server}: no answer in time")
            if not line.startswith(protocol.PUSH):
                return line.decode("utf-8", "replace")
            self.on_push(line)

    def send(self, request: bytes) -> None:
        self.used_at_s = time.monotonic()
        try:
            self._socket.sendall(request)
        except OSError as error:
            self.close()
            raise TransportFailed(f"{self.server}: the connection ended: {error}") from error

    def line(self, timeout_s: float) -> bytes | None:
        """The next line; None if there is none in this time."""
        until_s = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return None
            if not self._receive(left_s):
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r")

    def _receive(self, seconds: float) -> bool:
        try:
            self._socket.settimeout(seconds)
            data = self._socket.recv(_CHUNK_BYTES)
        except TimeoutError:
            return False
        except OSError as error:
            self.close()
            raise TransportFailed(f"{self.server}: the connection ended: {error}") from error
        if not data or len(self._buffer) > protocol.ANSWER_BYTES_MAX:
            self.close()
            raise TransportFailed(f"{self.server}: the connection ended")
        self._buffer += data
        return True

    def close(self) -> None:
        """Also from another thread, whose read then ends."""
        self._is_closed = True
        with suppress(OSError):  # It is not connected any more.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
