"""Streams without an end: opened again whenever they break off, and closed from any task."""

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

from holdfast.client.aio.concurrency import GENERATOR_RUNNING, Event, is_set_within
from holdfast.client.aio.transport import Transport
from holdfast.client.errors import TransportFailed
from holdfast.client.queue.opening import Opening
from holdfast.client.wire.call import Answer, Call
from holdfast.client.wire.connection import mapped_errors
from holdfast.client.wire.hang_up import Connected, hang_up, second_handle

T = TypeVar("T")
Piece = TypeVar("Piece")


class LiveStream(Generic[T]):
    """Close it, or use it in its `async with`: the server holds a place for its listener."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._closed = Event()
        self._socket: socket.socket | None = None
        self._reading: AsyncGenerator[T, None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if self._reading is not None:
            with suppress(GENERATOR_RUNNING):  # Another task reads, and comes to its end by itself.
                await self._reading.aclose()
        self._let_go()

    def __aiter__(self) -> AsyncIterator[T]:
        self._reading = self._read()
        return self._reading

    async def close(self) -> None:
        """End it. A reader that waits at this moment comes to an end too."""
        self.close_soon()

    def close_soon(self) -> None:
        """`close` for a callback."""
        self._closed.set()
        if self._socket is not None:
            hang_up(self._socket)

    def _read(self) -> AsyncGenerator[T, None]:
        raise NotImplementedError

    def _prepare(self, call: Call) -> None:
        call.on_connected = self._on_connected

    def _on_connected(self, connected: Connected) -> None:
        self._let_go()
        self._socket = second_handle(connected)
        if self._closed.is_set():
            hang_up(self._socket)

    def _let_go(self) -> None:
        handle, self._socket = self._socket, None
        if handle is not None:
            handle.close()

    async def _answers(self, opening: Opening) -> AsyncIterator[Answer]:
        """One open answer after the other."""
        while not await is_set_within(self._closed, opening.delay_s()):
            try:
                answer = await self._transport.run(opening.attempt())
                if answer is not None:
                    yield answer
            except TransportFailed:
                if self._closed.is_set():
                    return
                raise
            finally:
                self._let_go()

    async def _events(
        self, answer: Answer, feed: Callable[[bytes], Iterable[Piece]]
    ) -> AsyncGenerator[Piece, None]:
        """What `feed` makes of the bytes of one answer, until it ends."""
        assert answer.response is not None, "the answer is open"
        assert answer.endpoint is not None, "an answer knows its endpoint"
        chunks = answer.response.aiter_raw()
        try:
            while True:
                with mapped_errors(answer.endpoint):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                for event in feed(chunk):
                    yield event
        finally:
            await answer.response.aclose()
