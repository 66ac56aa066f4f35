"""One task per connection that runs its requests; a request that need not wait is done without waking it.

Making a task and going round the event loop costs as much as the rest of a small request. So the first step of a
request runs at once, in the name and in the context of the connection's task: `current_task`, timeouts, task groups
and context variables see that task from the first line on. Only a request that has to wait is handed over to it.
The requests of a connection share its context: a handler that sets a context variable has to reset it.
"""

import asyncio
import contextvars
import types
from asyncio.tasks import _enter_task, _leave_task  # Documented for those who extend asyncio.
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Worker(Generic[Result]):
    """Runs one piece of work at a time; the caller with the next one waits for the end of the last."""

    __slots__ = (
        "_context",
        "_handed",
        "_has_started",
        "_is_ready",
        "_loop",
        "_on_cancelled",
        "_on_done",
        "_task",
        "_wake",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_done: Callable[[Result], None],
        on_cancelled: Callable[[], None],
    ) -> None:
        self._on_done = on_done
        self._on_cancelled = on_cancelled
        self._loop = loop
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        self._has_started = False
        self._is_ready = False
        self._wake: asyncio.Future[None] | None = None
        self._handed: tuple[Coroutine[Any, None, Result], Any, bool] | None = None

    def run(self, work: Coroutine[Any, None, Result]) -> None:
        """Run work: at once where no other task is running, as when a protocol gets its bytes, else soon."""
        task = self._task
        if task is None:
            task = self._task = self._loop.create_task(self._run_handed(), context=self._context)
        if not self._is_ready:
            self._hand_over(work, None, False)
            return
        try:
            _enter_task(self._loop, task)
        except RuntimeError:  # Another task is running.
            self._hand_over(work, None, False)
            return
        self._is_ready = False
        try:
            waits_for = self._context.run(work.send, None)
        except StopIteration as stop:
            self._is_ready = True
            result = stop.value
        except asyncio.CancelledError:
            self._on_cancelled()
            return
        else:
            self._hand_over(work, waits_for, True)
            return
        finally:
            _leave_task(self._loop, task)
        self._on_done(result)

    def cancel(self) -> None:
        """Cancel what runs, and be of no further use."""
        if self._task is None:
            return
        self._task.cancel()
        if not self._has_started and self._handed is not None:  # Then its task will not notice.
            self._handed[0].close()
            self._handed = None
            self._on_cancelled()

    def _hand_over(self, work: Coroutine[Any, None, Result], waits_for: Any, has_begun: bool) -> None:
        self._handed = work, waits_for, has_begun
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _run_handed(self) -> None:
        self._has_started = True
        try:
            while True:
                error: asyncio.CancelledError | None = None
                if self._handed is None:
                    error = await self._wait_for_work()
                assert self._handed is not None
                work, waits_for, has_begun = self._handed
                self._handed = None
                if has_begun:
                    result = await _resume(work, waits_for, error)
                elif error is None:
                    result = await work
                else:
                    work.close()
                    raise error
                self._on_done(result)
        except asyncio.CancelledError:
            self._on_cancelled()
            raise
        finally:
            if self._handed is not None:
                self._handed[0].close()

    async def _wait_for_work(self) -> asyncio.CancelledError | None:
        """Wait; a cancellation that comes after work was handed over is meant for that work."""
        self._wake = self._loop.create_future()
        self._is_ready = True
        try:
            await self._wake
        except asyncio.CancelledError as error:
            if self._handed is None:
                raise
            return error
        finally:
            self._is_ready = False
            self._wake = None
        return None


@types.coroutine
def _resume(
    work: Coroutine[Any, None, Result], waits_for: Any, error: BaseException | None
) -> Generator[Any, Any, Result]:
    """Go on with work that was begun elsewhere and waits for a future; `error` is thrown into it first."""
    while True:
        value = None
        if error is None:
            try:
                value = yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - passed on into the work, whatever it is
                error = thrown
        try:
            waits_for = work.send(value) if error is None else work.throw(error)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        error = None
