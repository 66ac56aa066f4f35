"""The clocks: the system's tell the time, the fake one moves only when told."""

import time

import pytest

from holdfast.common.clock import FakeClock, SystemClock


def test_the_system_clock_tells_wall_and_monotonic_time() -> None:
    before = (time.time(), time.monotonic())

    told = (SystemClock().wall_s(), SystemClock().monotonic_s())

    assert before[0] <= told[0] <= time.time()
    assert before[1] <= told[1] <= time.monotonic()


def test_a_fake_clock_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock(wall_s=100.0, monotonic_s=5.0)
    assert (clock.wall_s(), clock.monotonic_s()) == (100.0, 5.0)

    clock.advance(1.5)

    assert (clock.wall_s(), clock.monotonic_s()) == (101.5, 6.5)


def test_a_jump_moves_the_wall_clock_only() -> None:
    clock = FakeClock(wall_s=100.0, monotonic_s=5.0)

    clock.jump_wall(-60)

    assert (clock.wall_s(), clock.monotonic_s()) == (40.0, 5.0)


def test_time_does_not_advance_backwards() -> None:
    with pytest.raises(AssertionError, match="jump_wall"):
        FakeClock().advance(-1)
