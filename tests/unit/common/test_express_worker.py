"""A worker's work sees one task from its first line to its last, whether it has to wait or not."""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

from holdfast.common.express.execution import Worker

_name: ContextVar[str] = ContextVar("name", default="nobody")


class Desk:
    """A worker and what came of its work."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.cancellations = 0
        self.worker: Worker[object] = Worker(asyncio.get_running_loop(), self.done.append, self._cancelled)

    def _cancelled(self) -> None:
        self.cancellations += 1

    async def run(self, work: Coroutine[Any, None, object]) -> None:
        """Give work from the loop, as a protocol does, and wait for that callback."""
        ran = asyncio.get_running_loop().create_future()

        def give() -> None:
            self.worker.run(work)
            ran.set_result(None)

        asyncio.get_running_loop().call_soon(give)
        await ran

    async def warm_up(self) -> None:
        await self.run(_value("first"))
        await _until(lambda: self.done == ["first"])
        await asyncio.sleep(0)


async def _value(value: object) -> object:
    return value


async def _until(is_met: Any) -> None:
    for _ in range(1000):
        if is_met():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


async def test_work_that_need_not_wait_is_done_at_once() -> None:
    desk = Desk()
    await desk.warm_up()

    await desk.run(_value("second"))

    assert desk.done == ["first", "second"]


async def test_work_that_waits_is_gone_on_with() -> None:
    desk = Desk()
    await desk.warm_up()
    gate = asyncio.Event()

    async def wait() -> str:
        await gate.wait()
        await asyncio.sleep(0)
        return "second"

    await desk.run(wait())
    assert desk.done == ["first"]
    gate.set()
    await _until(lambda: desk.done == ["first", "second"])


async def test_task_and_context_are_the_same_before_and_after_waiting() -> None:
    desk = Desk()
    await desk.warm_up()
    seen: list[object] = []

    async def work() -> None:
        _name.set("worker")
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        seen.append(_name.get())

    await desk.run(work())
    await _until(lambda: len(seen) == 3)

    assert seen[0] is seen[1] is not None
    assert seen[2] == "worker"
    assert _name.get() == "nobody"
    assert asyncio.current_task() is not seen[0]


async def test_a_timeout_begun_in_the_first_step_ends_the_work_only() -> None:
    desk = Desk()
    await desk.warm_up()

    async def work() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    await desk.run(work())
    await _until(lambda: desk.done == ["first", "timed out"])
    await asyncio.sleep(0)
    await desk.run(_value("third"))

    await _until(lambda: desk.done[-1] == "third")
    assert desk.cancellations == 0


async def test_a_task_group_works_in_the_first_step() -> None:
    desk = Desk()
    await desk.warm_up()

    async def work() -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_value(number)) for number in (1, 2)]
        return sum(int(str(task.result())) for task in tasks)

    await desk.run(work())

    await _until(lambda: desk.done == ["first", 3])


async def test_cancelling_reaches_the_work() -> None:
    desk = Desk()
    await desk.warm_up()
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await desk.run(work())
    desk.worker.cancel()

    await asyncio.wait_for(cancelled.wait(), 5)
    await _until(lambda: desk.cancellations == 1)


async def test_work_given_from_within_a_task_runs_soon() -> None:
    desk = Desk()
    await desk.warm_up()

    desk.worker.run(_value("second"))
    assert desk.done == ["first"]

    await _until(lambda: desk.done == ["first", "second"])
