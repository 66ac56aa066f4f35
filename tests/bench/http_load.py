"""A load generator on plain asyncio: keep-alive connections, one request at a time on each, no pipelining."""

import asyncio
import re
from typing import Final, cast

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
CONNECTIONS: Final = 16


class _Client(asyncio.Protocol):
    """Sends its request again as soon as the answer to the last one is complete."""

    def __init__(self, request: bytes, budget: list[int], done: "asyncio.Future[None]") -> None:
        self._request = request
        self._budget = budget
        self._done = done
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it.
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        if self._budget[0] <= 0:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._budget[0] -= 1
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            self._done.set_exception(RuntimeError(f"unexpected answer: {self._buffer[:200]!r}"))
            return
        length = _LENGTH.search(self._buffer)
        if length is not None and len(self._buffer) >= end + 4 + int(length[1]):
            self._buffer = b""
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or RuntimeError("the server closed the connection"))


async def run_load(host: str, port: int, request: bytes, requests: int) -> None:
    """Send so many requests over a few connections, and return when all are answered."""
    loop = asyncio.get_running_loop()
    budget = [requests]
    done: list[asyncio.Future[None]] = [loop.create_future() for _ in range(CONNECTIONS)]
    for future in done:
        await loop.create_connection(lambda future=future: _Client(request, budget, future), host, port)  # type: ignore[misc]  # a default binds the loop variable
    await asyncio.gather(*done)
