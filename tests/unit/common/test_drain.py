"""A drain ends when the last lease does, or when its window is over."""

import asyncio

import pytest

from holdfast.common.clock import FakeClock
from holdfast.common.errors import ShutdownDraining
from holdfast.common.serving.drain import Drain, drain_window_s


@pytest.mark.parametrize(
    ("grace_s", "timeout_s", "window_s"), [(10, 10, 8), (3, 10, 3), (0, 10, 0), (10, 0, 10), (-1, 10, 0)]
)
def test_the_window_leaves_a_fifth_of_the_budget(grace_s: float, timeout_s: float, window_s: float) -> None:
    assert drain_window_s(grace_s, timeout_s) == window_s


async def test_new_work_is_refused_with_the_seconds_that_are_left() -> None:
    clock = FakeClock()
    drain = Drain(clock=clock)
    drain.refuse_new_work()

    drain.begin(8)
    clock.advance(1.5)

    with pytest.raises(ShutdownDraining) as refused:
        drain.refuse_new_work()
    assert refused.value.retry_after_s == 6.5


async def test_a_drain_ends_with_the_last_lease() -> None:
    held = 2
    drain = Drain(active_leases=lambda: held, clock=FakeClock())
    task = asyncio.ensure_future(drain.run(8))
    await asyncio.sleep(0)

    held = 0
    drain.lease_ended()

    await asyncio.wait_for(task, 5)
    assert drain.is_draining


async def test_a_drain_without_leases_does_not_wait() -> None:
    drain = Drain(clock=FakeClock())

    await drain.run(8)

    assert drain.is_draining


async def test_a_drain_ends_with_its_window() -> None:
    clock = FakeClock()
    drain = Drain(active_leases=lambda: 1, clock=clock)
    task = asyncio.ensure_future(drain.run(8))
    await asyncio.sleep(0)

    clock.advance(9)
    drain.lease_ended()

    await asyncio.wait_for(task, 5)


async def test_a_second_signal_cuts_a_drain_short() -> None:
    drain = Drain(active_leases=lambda: 1, clock=FakeClock())
    task = asyncio.ensure_future(drain.run(8))
    await asyncio.sleep(0)

    drain.cut_short()

    await asyncio.wait_for(task, 5)
