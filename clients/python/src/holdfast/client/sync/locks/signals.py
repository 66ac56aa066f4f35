# Generated from aio/locks/signals.py by generate_sync.py: change that, then run `make sync-client`.
"""Signals without an end, and a bell that a signal rings."""

from collections.abc import Generator
from contextlib import closing
from types import TracebackType
from typing import Self

from holdfast.client.errors import ClientError, TransportFailed, TransportTimedOut
from holdfast.client.locks.calls import LockCalls
from holdfast.client.locks.view import Signal, SignalReader
from holdfast.client.sync.concurrency import Background, Event, is_set_within
from holdfast.client.sync.queue.live import LiveStream
from holdfast.client.sync.transport import Transport


class SignalStream(LiveStream[Signal]):
    """`for signal in signals`. It is opened again whenever it breaks off; what is sent meanwhile is lost.

    `opened` is set as soon as the server knows the listener.
    """

    def __init__(self, transport: Transport, calls: LockCalls, pattern: str, group: str = "") -> None:
        super().__init__(transport)
        self.opened = Event()
        self._calls = calls
        self._pattern = pattern
        self._group = group

    def _read(self) -> Generator[Signal, None, None]:
        opening = self._calls.listen(self._pattern, self._group, self._prepare)
        for answer in self._answers(opening):
            opening.succeeded()
            self.opened.set()
            is_empty = True
            try:
                with closing(self._events(answer, SignalReader().feed)) as signals:
                    for signal in signals:
                        is_empty = False
                        yield signal
            except TransportFailed as problem:
                if self._closed.is_set():
                    return
                opening.failed(problem)
            else:
                opening.ended(is_empty=is_empty)


class Bell(SignalStream):
    """Listens in the background, and rings at every signal."""

    def __init__(self, transport: Transport, calls: LockCalls, channel: str) -> None:
        super().__init__(transport, calls, channel)
        self._rung = Event()
        self._background = Background()
        self._problem: ClientError | None = None

    def __enter__(self) -> Self:
        self._background.start(self._listen, name="holdfast.bell")
        timeout_s = self._calls.channel.timeout_s
        if not is_set_within(self.opened, timeout_s) or self._problem is not None:
            self.close()
            raise self._problem or TransportTimedOut("no stream of signals in time")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._background.wait(self._calls.channel.timeout_s)

    def wait(self, seconds: float) -> None:
        """Until it rings, no longer than that."""
        is_set_within(self._rung, max(0.0, seconds))
        self._rung.clear()
        if self._problem is not None:
            raise self._problem

    def _listen(self) -> None:
        try:
            for _ in self:
                self._rung.set()
        except ClientError as problem:
            self._problem = problem
            self.opened.set()
            self._rung.set()
