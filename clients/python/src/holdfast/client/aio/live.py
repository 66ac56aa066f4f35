"""Streams without an end: opened again whenever they break off, and closed from any task."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.client.aio.transport import Transport
from holdfast.client.call import Answer
from holdfast.client.queue_opening import Opening

T = TypeVar("T")


class StreamClosed(Exception):
    """The stream was closed while something was waited for."""


class LiveStream:
    """Use it in an `async with`: the server holds a place for whoever listens."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._closed = asyncio.Event()
        self._reading: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End it. Whoever reads from it at this moment comes to an end too."""
        self.close_soon()

    def close_soon(self) -> None:
        """`close` for a callback."""
        self._closed.set()
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()

    async def _unless_closed(self, work: Awaitable[T]) -> T:
        """What came in; StreamClosed when it is not waited for any longer."""
        reading = asyncio.current_task()
        assert reading is not None, "this runs in a task"
        self._reading = reading
        try:
            return await work
        except asyncio.CancelledError:
            if not self._closed.is_set() or reading.uncancel() > 0:
                raise  # Somebody else cancelled it.
            raise StreamClosed from None
        finally:
            self._reading = None

    async def _answers(self, opening: Opening) -> AsyncIterator[Answer]:
        """One open answer after the other."""
        while not self._closed.is_set():
            if opening.delay_s():
                await self._unless_closed(asyncio.sleep(opening.delay_s()))
            answer = await self._unless_closed(self._transport.run(opening.attempt()))
            if answer is not None:
                yield answer
