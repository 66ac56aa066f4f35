"""A process on the other side of a connection that does what a test tells it, byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Script = Callable[["Visit"], Awaitable[None]]


@dataclass(slots=True)
class Visit:
    """One connection, as its script sees it; `number` counts them."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> bytes:
        """The next request, head and body; b"" when there is none any more."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return head + await self.reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


@dataclass(slots=True)
class ScriptedPeer:
    """What was seen, and where it is."""

    port: int = 0
    requests: list[bytes] = field(default_factory=list[bytes])
    visits: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def scripted(script: Script, port: int = 0) -> AsyncIterator[ScriptedPeer]:
    """A peer that runs `script` on each connection and closes it at the end."""
    peer = ScriptedPeer()
    tasks: set[asyncio.Task[None]] = set()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        peer.visits += 1
        try:
            await script(Visit(peer.visits, reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            return  # The client went away, or the test is over.
        finally:
            writer.close()

    server = await asyncio.start_server(visit, "127.0.0.1", port)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answers(visit: Visit) -> None:
    """Answer every request with 200."""
    while await visit.request():
        await visit.say(OK)
