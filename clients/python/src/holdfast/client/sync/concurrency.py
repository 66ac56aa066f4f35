"""How the blocking client waits: events, locks and threads. `aio/concurrency.py` has the same names for an event loop."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, ParamSpec, Protocol, TypeVar

from holdfast.client.queue.consumer import Stop

P = ParamSpec("P")
T = TypeVar("T")

Event = threading.Event
Lock = threading.Lock

GENERATOR_RUNNING: Final = ValueError
"""What closing a generator raises while another thread reads from it."""


def deadline(seconds: float | None) -> AbstractContextManager[None]:
    """A thread can't be interrupted: the timeout of the call itself ends it."""
    return nullcontext()


def run_blocking(call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Here everything may block."""
    return call(*arguments, **keywords)


def is_set_within(event: Event, seconds: float) -> bool:
    """Wait for an event, no longer than that."""
    return event.wait(seconds)


def result_of(returned: object) -> object:
    """What a function of the user returned."""
    return returned


def run_until(ended: Event, work: Callable[[], T], because: Callable[[], Exception | None]) -> T:
    """A thread can't be cancelled: work that takes long has to look at `ended` by itself."""
    return work()


def pending(start: Callable[[], T]) -> T:
    """The call is made at once."""
    return start()


class Background:
    """Work that its caller does not wait for."""

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()

    def start(self, work: Callable[[], None], *, name: str) -> None:
        def run() -> None:
            try:
                work()
            finally:
                self._threads.discard(thread)

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # No more threads.
            self._threads.discard(thread)
            raise

    def wait(self, seconds: float) -> None:
        """Until all of it is done, no longer than that."""
        until_s = time.monotonic() + seconds
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(max(0.0, until_s - time.monotonic()))


class Member(Protocol):
    """One of those that run together."""

    @property
    def label(self) -> str: ...

    def run(self) -> None: ...

    def end(self) -> None:
        """Make `run` come to its end. Called by another thread."""
        ...


def run_together(members: Sequence[Member], stop: Stop) -> None:
    """Run all, in a thread each, until they come to their end; a stop or a failure of one ends all."""
    failures: dict[int, BaseException] = {}

    def end_all() -> None:
        for member in members:
            member.end()

    def run(number: int) -> None:
        try:
            members[number].run()
        except BaseException as error:  # noqa: BLE001  # The edge of the thread: raised again below.
            failures[number] = error
            end_all()

    threads = [
        threading.Thread(target=run, args=(number,), name=f"holdfast.{member.label}", daemon=True)
        for number, member in enumerate(members)
    ]
    stop.add(end_all)
    try:
        _run_threads(threads, end_all)
    finally:
        stop.remove(end_all)
    for _, failure in sorted(failures.items()):
        raise failure


def _run_threads(threads: Sequence[threading.Thread], end_all: Callable[[], None]) -> None:
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        end_all()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
