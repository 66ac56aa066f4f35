"""When the event loop may wait for a device."""

import pytest

from holdfast.storage.disk.fsync_policy import QUICK_S, STALL_S, SYNCS_AFTER_STALL, FsyncPolicy

QUICK = QUICK_S / 5


def _after(syncs_min: int | None, *took_s: float) -> FsyncPolicy:
    policy = FsyncPolicy(syncs_min)
    for seconds in took_s:
        policy.took(seconds)
    return policy


def test_the_loop_may_begin_after_quick_syncs() -> None:
    assert not _after(3, QUICK, QUICK).allows_loop
    assert _after(3, QUICK, QUICK, QUICK).allows_loop


def test_a_few_slow_syncs_among_many_are_borne() -> None:
    assert _after(64, *([QUICK] * 32 + [5 * QUICK_S]) * 30).allows_loop


@pytest.mark.parametrize(("slow_s", "syncs_max"), [(2 * QUICK_S, 64), (10 * QUICK_S, 8), (0.9 * STALL_S, 2)])
def test_a_device_that_becomes_slow_is_left_the_sooner_the_slower_it_is(
    slow_s: float, syncs_max: int
) -> None:
    policy = _after(64, *[QUICK] * 64)
    slow = 0
    while policy.allows_loop:
        policy.took(slow_s)
        slow += 1
    quick = 0
    while not policy.allows_loop:
        policy.took(QUICK)
        quick += 1

    assert slow <= syncs_max
    assert 10 < quick < 400


@pytest.mark.parametrize("every", [5, 80, 100, 1000])
def test_a_device_that_stalls_now_and_then_is_not_waited_for(every: int) -> None:
    policy = FsyncPolicy(64)
    on_the_loop = 0
    for number in range(20_000):
        is_stall = number % every == every - 1
        on_the_loop += is_stall and policy.allows_loop
        policy.took(5.0 if is_stall else QUICK)

    assert on_the_loop <= 1


def test_a_stall_is_forgotten_in_the_end() -> None:
    assert not _after(0, QUICK, STALL_S, *[QUICK] * (SYNCS_AFTER_STALL - 1)).allows_loop
    assert _after(0, QUICK, STALL_S, *[QUICK] * SYNCS_AFTER_STALL).allows_loop


def test_a_device_that_is_slow_from_the_beginning_is_not_waited_for() -> None:
    assert not _after(64, *[2 * QUICK_S] * 100).allows_loop


def test_no_device_is_waited_for_where_that_is_turned_off() -> None:
    assert not _after(None, *[QUICK] * 1000).allows_loop


def test_a_quick_sync_changes_nothing_while_it_is_calm() -> None:
    policy = _after(64, *[QUICK] * 64, 3 * QUICK_S)
    assert not policy.is_calm  # A slow one is remembered for a while.

    syncs = 0
    while not policy.is_calm:
        policy.took(QUICK)
        syncs += 1

    assert syncs < 1000
    assert policy.allows_loop
    policy.took(STALL_S)
    assert not policy.is_calm
