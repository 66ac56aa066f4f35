"""The clocks: the system's tell the time, the fake one moves only when told."""

import time

import pytest

from holdfast.common.clock import FakeClock, SteadyClock, SystemClock, end_ms, unix_s


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


def test_steady_time_moves_with_the_monotonic_clock_alone() -> None:
    machine = FakeClock(wall_s=100.0)
    clock = SteadyClock(machine)

    machine.jump_wall(3600)
    machine.advance(1)

    assert clock.now_ms() == 101_000
    assert clock.lead_s == -3600


def test_steady_time_is_raised_at_once_and_tells_of_a_step() -> None:
    clock = SteadyClock(FakeClock(wall_s=100.0))
    heard: list[int] = []

    with clock.stepping(lambda: heard.append(clock.now_ms())):
        clock.raise_to(90.0)
        clock.raise_to(100.1)
        clock.raise_to(160.0)
    clock.raise_to(200.0)

    assert heard == [160_000]
    assert clock.now_ms() == 200_000


def test_steady_time_stands_still_where_it_would_go_back() -> None:
    machine = FakeClock(wall_s=100.0)
    clock = SteadyClock(machine)
    assert clock.now_ms() == 100_000

    clock.slew_to(90.0, 0.5)
    seen = [clock.now_ms()]
    for _ in range(3):
        machine.advance(0.25)
        seen.append(clock.now_ms())

    assert seen == [100_000, 100_000, 100_000, 100_250]


def test_an_end_is_a_whole_second_that_is_not_before_its_time() -> None:
    assert [end_ms(now_ms, 7) for now_ms in (0, 1, 999, 1000, 1001)] == [7000, 8000, 8000, 8000, 9000]
    assert unix_s(end_ms(1, 0.5)) == 1
