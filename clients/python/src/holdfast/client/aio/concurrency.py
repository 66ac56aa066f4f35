"""How the asynchronous client waits: events, locks and tasks. `sync/concurrency.py` has the same names for threads."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast.client.queue.consumer import Stop

T = TypeVar("T")
Entered = TypeVar("Entered", bound=AbstractAsyncContextManager[Any])

Event = asyncio.Event
Lock = asyncio.Lock
deadline = asyncio.timeout
"""`async with deadline(seconds)`: TimeoutError when the block takes longer than that; None for no limit."""
run_blocking = asyncio.to_thread
"""A call that blocks, as of a file, has to leave the event loop free."""

GENERATOR_RUNNING: Final = RuntimeError
"""What closing a generator raises while another task reads from it."""


async def is_set_within(event: Event, seconds: float) -> bool:
    """Wait for an event, no longer than that."""
    if not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
    return event.is_set()


async def result_of(returned: object) -> object:
    """What a function of the user returned, which may be plain or asynchronous."""
    return await returned if inspect.isawaitable(returned) else returned


async def run_until(
    ended: Event, work: Callable[[], Awaitable[T]], because: Callable[[], Exception | None]
) -> T:
    """Do some work, and cancel it when `ended` is set: then `because()` is raised."""
    running = asyncio.ensure_future(work())
    ending = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait({running})
    if running.cancelled() and (error := because()) is not None:
        raise error
    return running.result()


class Pending(Generic[Entered]):
    """A call that is not made yet: `async with` it for a block, or `await` it for a result to end by hand."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, Entered]]) -> None:
        self._start = start
        self._entered: Entered | None = None

    def __await__(self) -> Generator[Any, None, Entered]:
        return self._start().__await__()

    async def __aenter__(self) -> Entered:
        self._entered = await self._start()
        await self._entered.__aenter__()
        return self._entered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._entered is not None, "entered before"
        await self._entered.__aexit__(kind, error, trace)


def pending(start: Callable[[], Coroutine[Any, Any, Entered]]) -> Pending[Entered]:
    """The call is made when it is awaited or entered."""
    return Pending(start)


class Background:
    """Work that its caller does not wait for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> None:
        task = asyncio.get_running_loop().create_task(work(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, seconds: float) -> None:
        """Until all of it is done, no longer than that."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


class Member(Protocol):
    """One of those that run together."""

    @property
    def label(self) -> str: ...

    async def run(self) -> None: ...

    def end(self) -> None:
        """Make `run` come to its end."""
        ...


async def run_together(members: Sequence[Member], stop: Stop) -> None:
    """Run all, in a task each, until they come to their end; a stop or a failure of one ends all."""
    loop = asyncio.get_running_loop()

    def end_all() -> None:
        for member in members:
            member.end()

    def end_from_anywhere() -> None:
        loop.call_soon_threadsafe(end_all)

    stop.add(end_from_anywhere)
    tasks = [asyncio.create_task(member.run(), name=f"holdfast.{member.label}") for member in members]
    try:
        for ended in asyncio.as_completed(tasks):
            try:
                await ended
            except Exception:  # noqa: BLE001  # Raised again below, when all have ended.
                end_all()
    finally:
        stop.remove(end_from_anywhere)
        await _cancel(tasks)
    for task in tasks:
        task.result()


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
