"""A connection that speaks lines, for an event loop. `sync/tcp/connection.py` has the same names for threads."""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Self, cast

from holdfast.client.errors import TransportFailed, TransportTimedOut
from holdfast.client.tcp import protocol
from holdfast.client.tcp.options import Server, TcpOptions


class Connection(asyncio.Protocol):
    """One request at a time. After a failure it is closed: what it held at the server is gone with it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.used_at_s = time.monotonic()
        self.on_push: Callable[[bytes], None] = lambda line: None
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._changed = asyncio.Event()
        self._is_closed = False

    @classmethod
    async def open(cls, server: Server, options: TcpOptions) -> Self:
        """Connected, and let in."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(options.connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: cls(server), server.host, server.port, ssl=options.tls
                )
        except TimeoutError as error:
            raise TransportTimedOut(f"{server}: no connection in time", is_sent=False) from error
        except OSError as error:
            raise TransportFailed(f"{server}: {error}", is_sent=False) from error
        if options.token:
            try:
                request = protocol.request("auth", argument=options.token)
                protocol.check_ok(await connection.ask(request, options.timeout_s))
            except BaseException:
                connection.close()
                raise
        return connection

    # As asyncio calls it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._changed.set()
        if len(self._buffer) > protocol.ANSWER_BYTES_MAX:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._changed.set()

    # As its client does

    @property
    def is_reusable(self) -> bool:
        """Nothing came without a request: a server says so when it ends a connection."""
        return not self._is_closed and not self._buffer

    async def ask(self, request: bytes, timeout_s: float) -> str:
        """The answer, without its end of line. Signals that come first go to `on_push`."""
        self.send(request)
        while True:
            line = await self.line(timeout_s)
            if line is None:
                self.close()
                raise TransportTimedOut(f"{self.server}: no answer in time")
            if not line.startswith(protocol.PUSH):
                return line.decode("utf-8", "replace")
            self.on_push(line)

    def send(self, request: bytes) -> None:
        self.used_at_s = time.monotonic()
        if self._transport is not None:
            self._transport.write(request)

    async def line(self, timeout_s: float) -> bytes | None:
        """The next line; None if there is none in this time."""
        try:
            async with asyncio.timeout(timeout_s):
                while b"\n" not in self._buffer:
                    if self._is_closed:
                        raise TransportFailed(f"{self.server}: the connection ended")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return None
        except BaseException:
            self.close()  # An answer may be on its way, and the next request would take it for its own.
            raise
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r")

    def close(self) -> None:
        """A reader that waits at this moment hears of it."""
        self._is_closed = True
        self._changed.set()
        if self._transport is not None:
            self._transport.abort()
