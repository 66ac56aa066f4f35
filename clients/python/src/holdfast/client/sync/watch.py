# Generated from aio/watch.py by generate_sync.py: change that, then run `make sync-client`.
"""Watches of documents and leases: what happens to keys, without an end, a gap or a repetition."""

from collections.abc import Generator
from contextlib import closing, suppress
from types import TracebackType
from typing import Self

from holdfast.client.errors import TransportFailed
from holdfast.client.sync.concurrency import GENERATOR_RUNNING
from holdfast.client.sync.queue.live import LiveStream
from holdfast.client.sync.transport import Transport
from holdfast.client.watch.calls import WatchCalls
from holdfast.client.watch.view import MessageReader, WatchEvent, WatchMessage


class Watch(LiveStream[WatchEvent]):
    """`with client.watch() as watch: for event in watch`.

    It is opened again whenever it breaks off, and goes on where it was. When what it missed is gone, it ends with Compacted:
    read what you need to know, and watch from now on.
    """

    def __init__(self, transport: Transport, calls: WatchCalls) -> None:
        super().__init__(transport)
        self.revision = calls.after or 0
        """Everything up to here was handed out and asked beyond: another watch may go on after it."""
        self._calls = calls
        self._messages: Generator[WatchMessage, None, None] | None = None

    def __enter__(self) -> Self:
        """Returns when the server has registered it: what is read from now on is no older than what it begins after."""
        self._messages = self._told()
        try:
            first = next(self._messages, None)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        if first is not None:  # None: it was closed meanwhile.
            self.revision = first.revision
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._messages is not None:
            with suppress(GENERATOR_RUNNING):  # Another thread reads, and comes to its end by itself.
                self._messages.close()

    def _read(self) -> Generator[WatchEvent, None, None]:
        self._messages = messages = self._messages or self._told()
        with closing(messages):
            for message in messages:
                yield from message.events
                self.revision = message.revision

    def _told(self) -> Generator[WatchMessage, None, None]:
        opening = self._calls.open(self._prepare)
        for answer in self._answers(opening):
            is_empty = True
            try:
                with closing(self._events(answer, MessageReader().feed)) as messages:
                    for message in messages:
                        is_empty = False
                        opening.succeeded()
                        opening.keep_trying()
                        self._calls.after = message.revision
                        yield message
            except TransportFailed as problem:
                if self._closed.is_set():
                    return
                opening.failed(problem)
            else:
                opening.ended(is_empty=is_empty)
