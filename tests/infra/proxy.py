"""A TCP proxy that can lose connections as networks do: by a reset, or without a word."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_PIECE_BYTES = 65536
_LINGER_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Passes bytes on between its clients and one server, until it is told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._is_silent = False
        self._connections: set[_Connection] = set()
        self._lost: list[_Connection] = []  # Kept open: the client is not told that they are of no use.
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def reset_all(self) -> None:
        """Every connection ends with a reset; new ones are welcome."""
        for connection in list(self._connections):
            connection.reset()

    def partition(self) -> None:
        """What is open hangs for ever, and so does what is opened from now on."""
        self._is_silent = True
        self._lost += self._connections
        for connection in self._connections:
            connection.is_silent = True
        self._connections.clear()

    def heal(self) -> None:
        """New connections work; the old ones stay half open."""
        self._is_silent = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        if self._is_silent:
            connection.is_silent = True
            self._lost.append(connection)
            return
        self._connections.add(connection)
        try:
            back_reader, connection.back = await asyncio.open_connection(self._host, self._port)
            await asyncio.gather(
                connection.pass_on(reader, connection.back), connection.pass_on(back_reader, writer)
            )
        except OSError:
            pass
        finally:
            self._connections.discard(connection)
            if not connection.is_silent:
                connection.close()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for connection in (*self._connections, *self._lost):
                connection.close()


class _Connection:
    def __init__(self, front: asyncio.StreamWriter) -> None:
        self.front = front
        self.back: asyncio.StreamWriter | None = None
        self.is_silent = False

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_PIECE_BYTES):
            if self.is_silent:
                continue  # Taken and thrown away, as a gateway that lost its table does.
            writer.write(piece)
            await writer.drain()
        if not self.is_silent:
            writer.close()

    def reset(self) -> None:
        for writer in (self.front, self.back):
            if writer is not None:
                with suppress(OSError):
                    plain: socket.socket = writer.get_extra_info("socket")
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
                writer.transport.abort()

    def close(self) -> None:
        for writer in (self.front, self.back):
            if writer is not None:
                writer.close()
