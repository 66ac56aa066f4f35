"""A worker's work sees one task from its first line to its last, whether it has to wait or not."""

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from holdfast.common.express.execution import Worker

_name: ContextVar[str] = ContextVar("name", default="nobody")


class Desk:
    """A worker and what came of its work."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.cancellations = 0
        self.worker: Worker[object] = Worker(asyncio.get_running_loop())
        self.worker.serve(self.done.append, self._cancelled)

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


async def test_the_first_work_begins_at_once_too() -> None:
    desk = Desk()

    await desk.run(_value("first"))

    assert desk.done == ["first"]


async def test_what_completes_a_future_goes_on_with_the_work() -> None:
    desk = Desk()
    futures = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def work() -> int:
        return sum([await future for future in futures])

    await desk.run(work())
    for number, future in enumerate(futures):
        future.set_result(number)
        await asyncio.sleep(0)

    assert desk.done == [3]


async def test_an_error_of_what_it_waits_for_reaches_the_work() -> None:
    desk = Desk()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await future
        except LookupError:
            return "told"
        return "never"

    await desk.run(work())
    future.set_exception(LookupError())

    await _until(lambda: desk.done == ["told"])


@pytest.mark.parametrize("rounds", range(4))
async def test_cancelling_cancels_what_the_work_waits_for_and_lets_that_clean_up(rounds: int) -> None:
    desk = Desk()
    ended: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("inner")

    async def work() -> None:
        try:
            await asyncio.create_task(inner())
        finally:
            ended.append("work")

    await desk.run(work())
    for _ in range(rounds):
        await asyncio.sleep(0)
    desk.worker.cancel()
    await _until(lambda: desk.cancellations == 1)

    assert ended[-1:] == ["work"]
    assert ended in (["inner", "work"], ["work"])  # A task that has not begun has nothing to clean up.
    assert desk.done == []


async def test_a_result_and_a_cancellation_at_the_same_moment_end_the_work_once() -> None:
    desk = Desk()
    await desk.warm_up()
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ended: list[str] = []

    async def work() -> str:
        try:
            return await future
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    await desk.run(work())
    future.set_result("second")
    desk.worker.cancel()
    await _until(lambda: desk.cancellations == 1)
    await asyncio.sleep(0)

    assert ended == ["cancelled"]
    assert desk.done == ["first"]


async def test_timeouts_work_in_every_step() -> None:
    desk = Desk()
    ended = asyncio.Event()

    async def work() -> list[str]:
        seen: list[str] = []
        for _ in range(3):
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.get_running_loop().create_future()
            except TimeoutError:
                seen.append("late")
            done = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(done.set_result, None)
            async with asyncio.timeout(60):
                await done
        ended.set()
        return seen

    await desk.run(work())
    await asyncio.wait_for(ended.wait(), 10)
    await _until(lambda: desk.done)
    await desk.run(_value("second"))
    await _until(lambda: len(desk.done) == 2)

    assert desk.done == [["late"] * 3, "second"]
    assert desk.cancellations == 0


async def test_work_that_is_begun_by_the_end_of_other_work_runs_in_its_turn() -> None:
    desk = Desk()
    waited = [asyncio.get_running_loop().create_future() for _ in range(2)]
    names: list[tuple[str, object]] = []

    async def work(number: int) -> int:
        _name.set(f"work {number}")
        await waited[number]
        names.append((_name.get(), asyncio.current_task()))
        return number

    def done(result: object) -> None:
        desk.done.append(result)
        if result == 0:
            desk.worker.run(work(1))

    desk.worker._on_done = done
    await desk.run(work(0))
    waited[0].set_result(None)
    await asyncio.sleep(0)
    waited[1].set_result(None)
    await _until(lambda: desk.done == [0, 1])

    assert [name for name, _ in names] == ["work 0", "work 1"]
    assert names[0][1] is names[1][1] is not None


async def test_a_long_line_of_work_behind_work_that_waited_is_no_deep_stack() -> None:
    gate = asyncio.Event()
    left = 5000

    def next_one(_: object) -> None:
        nonlocal left
        if left:
            left -= 1
            worker.run(_value(left))

    worker: Worker[object] = Worker(asyncio.get_running_loop())
    worker.serve(next_one, lambda: None)
    asyncio.get_running_loop().call_soon(worker.run, gate.wait())
    await asyncio.sleep(0)
    gate.set()

    await _until(lambda: left == 0)


async def test_a_cancel_scope_of_anyio_knows_its_own_cancellation() -> None:
    """By the message of it."""
    desk = Desk()
    await desk.warm_up()

    is_over = asyncio.Event()

    async def work() -> str:
        try:
            with anyio.move_on_after(0.001):
                await asyncio.Event().wait()
        finally:
            is_over.set()
        return "moved on"

    await desk.run(work())
    await asyncio.wait_for(is_over.wait(), 5)

    assert desk.done == ["first", "moved on"]


async def test_work_that_is_cancelled_before_its_task_has_started_cleans_up() -> None:
    desk = Desk()
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    def run_and_cancel() -> None:
        desk.worker.run(work())
        desk.worker.cancel()

    asyncio.get_running_loop().call_soon(run_and_cancel)

    await _until(lambda: desk.cancellations == 1)
    assert seen == ["cleaned up"]


def test_workers_of_two_loops_do_not_get_in_each_others_way() -> None:
    is_first_inside, is_second_done = threading.Event(), threading.Event()

    async def first() -> bool:
        await asyncio.sleep(0.001)
        is_first_inside.set()
        return is_second_done.wait(10)

    async def second() -> bool:
        await asyncio.sleep(0.001)
        is_second_done.set()
        return True

    async def ended(work: Coroutine[Any, None, bool]) -> bool:
        loop = asyncio.get_running_loop()
        end: asyncio.Future[bool] = loop.create_future()
        worker: Worker[bool] = Worker(loop)
        worker.serve(end.set_result, lambda: None)
        loop.call_soon(worker.run, work)
        return await asyncio.wait_for(end, 10)

    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(ended(first()))))
    thread.start()
    assert is_first_inside.wait(10)
    results.append(asyncio.run(ended(second())))
    thread.join()

    assert results == [True, True]


@pytest.mark.parametrize("waits", [0, 1, 2])
async def test_an_error_of_the_work_ends_its_connection_wherever_it_comes(waits: int) -> None:
    desk = Desk()

    async def fail() -> object:
        for _ in range(waits):
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.set_result, None)
            await future
        raise ValueError("a defect")

    await desk.run(fail())
    await _until(lambda: desk.cancellations == 1)

    assert desk.done == []


async def test_an_error_of_work_that_was_handed_over_ends_its_connection() -> None:
    desk = Desk()

    async def fail() -> object:
        await asyncio.sleep(0)  # Waits for no future.
        raise ValueError("a defect")

    await desk.run(fail())
    await _until(lambda: desk.cancellations == 1)

    assert desk.done == []
