"""The body of an answer on its way through: at most a bounded part of it waits here for its reader."""

import asyncio
from collections.abc import AsyncIterator, Callable


class AnswerBody(AsyncIterator[bytes]):
    """Filled by the connection, read by one caller. A connection with enough in here is not read any further."""

    __slots__ = (
        "_error",
        "_loop",
        "_on_call_off",
        "_on_close",
        "_on_low",
        "_pieces",
        "_reader",
        "buffered_bytes",
        "is_ended",
    )

    def __init__(
        self, on_low: Callable[[], None], on_close: Callable[[], None], on_call_off: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_low = on_low
        self._on_close = on_close
        self._on_call_off = on_call_off
        self._pieces: list[bytes] = []
        self._reader: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        self.buffered_bytes = 0
        self.is_ended = False

    def push(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.buffered_bytes += len(piece)
        self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """No more pieces come; those that are here are still read before the error is told."""
        if not self.is_ended:
            self.is_ended = True
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self.is_ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        pieces, self._pieces = self._pieces, []
        self.buffered_bytes = 0
        if not self.is_ended:  # Else the connection may serve another call already.
            self._on_low()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def call_off(self) -> None:
        """Nothing more is wanted, but what is on its way is still to be read, up to the end that comes soon."""
        if not self.is_ended:
            self._on_call_off()

    async def aclose(self) -> None:
        """Let go: what is still to come is not wanted any more."""
        self._pieces.clear()
        if not self.is_ended:
            self.is_ended = True
            self._on_close()
