"""The body of a request that is served by ASGI: collected while it is small, else a stream with a limit."""

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Receive

from holdfast.common.express.message import Header
from holdfast.common.express.route import Route


class ClientGone(Exception):
    """The client hung up before its request was complete: no client is left to answer."""


class RequestBody(AsyncIterator[bytes]):
    """Reads for one request. As an iterator it gives what `collect` has read ahead, then the rest."""

    def __init__(self, headers: list[Header], receive: Receive, route: Route) -> None:
        self.is_complete = False
        self._receive = receive
        self._route = route
        self._announced_bytes = _content_length(headers)
        self._taken_bytes = 0
        self._ahead = b""
        self._is_gone = False
        self._is_over = asyncio.Event()

    async def collect(self, inline_bytes: int) -> bytes | None:
        """The whole body; None when it is above `inline_bytes` and the route takes it as a stream."""
        # The length is known before anything is read, and before 100-continue invites the body.
        if self._announced_bytes > self._route.body_limit_bytes:
            raise self._route.above_limit()
        most_bytes = self._route.body_limit_bytes if self._route.stream_handler is None else inline_bytes
        if self._announced_bytes > most_bytes:
            return None
        pieces = bytearray()
        while not self.is_complete:
            pieces += await self._next_piece()
            if len(pieces) > most_bytes:
                self._ahead = bytes(pieces)
                return None
        return bytes(pieces)

    async def __anext__(self) -> bytes:
        piece, self._ahead = self._ahead, b""
        while not piece and not self.is_complete:
            try:
                piece = await self._next_piece()
            except ClientGone:
                await (
                    asyncio.Event().wait()
                )  # Until `hang_up`, which has seen it too, ends in a cancellation.
        if not piece:
            raise StopAsyncIteration
        return piece

    async def hang_up(self) -> None:
        """Return when the client has hung up, with its body complete or not."""
        await self._is_over.wait()
        while not self._is_gone:
            self._is_gone = (await self._receive())["type"] == "http.disconnect"

    async def _next_piece(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._is_gone = True
            self._is_over.set()
            raise ClientGone
        piece: bytes = message.get("body", b"")
        self.is_complete = not message.get("more_body", False)
        if self.is_complete:
            self._is_over.set()
        self._taken_bytes += len(piece)
        if self._taken_bytes > self._route.body_limit_bytes:
            raise self._route.above_limit()
        return piece


def _content_length(headers: list[Header]) -> int:
    return next((int(value) for name, value in headers if name == b"content-length"), 0)
