# Generated from aio/queue/live.py by generate_sync.py: change that, then run `make sync-client`.
"""Streams without an end: opened again whenever they break off, and closed from any thread."""

import socket
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

from holdfast.client.errors import TransportFailed
from holdfast.client.queue.opening import Opening
from holdfast.client.sync.concurrency import GENERATOR_RUNNING, Event, is_set_within
from holdfast.client.sync.transport import Transport
from holdfast.client.wire.call import Answer, Call
from holdfast.client.wire.connection import mapped_errors
from holdfast.client.wire.hang_up import Connected, hang_up, second_handle

T = TypeVar("T")
Piece = TypeVar("Piece")


class LiveStream(Generic[T]):
    """Close it, or use it in its `with`: the server holds a place for its listener."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._closed = Event()
        self._socket: socket.socket | None = None
        self._reading: Generator[T, None, None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._reading is not None:
            with suppress(GENERATOR_RUNNING):  # Another thread reads, and comes to its end by itself.
                self._reading.close()
        self._let_go()

    def __iter__(self) -> Iterator[T]:
        self._reading = self._read()
        return self._reading

    def close(self) -> None:
        """End it. A reader that waits at this moment comes to an end too."""
        self.close_soon()

    def close_soon(self) -> None:
        """`close` for a callback."""
        self._closed.set()
        if self._socket is not None:
            hang_up(self._socket)

    def _read(self) -> Generator[T, None, None]:
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

    def _answers(self, opening: Opening) -> Iterator[Answer]:
        """One open answer after the other."""
        while not is_set_within(self._closed, opening.delay_s()):
            try:
                answer = self._transport.run(opening.attempt())
                if answer is not None:
                    yield answer
            except TransportFailed:
                if self._closed.is_set():
                    return
                raise
            finally:
                self._let_go()

    def _events(
        self, answer: Answer, feed: Callable[[bytes], Iterable[Piece]]
    ) -> Generator[Piece, None, None]:
        """What `feed` makes of the bytes of one answer, until it ends."""
        assert answer.response is not None, "the answer is open"
        assert answer.endpoint is not None, "an answer knows its endpoint"
        chunks = answer.response.iter_raw()
        try:
            while True:
                with mapped_errors(answer.endpoint):
                    chunk = next(chunks, None)
                if chunk is None:
                    return
                yield from feed(chunk)
        finally:
            answer.response.close()
