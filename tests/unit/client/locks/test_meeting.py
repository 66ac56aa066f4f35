"""The rule of a barrier: who may pass, by what one look at its slots shows."""

import pytest

from holdfast.client.errors import InvalidArgument
from holdfast.client.locks.meeting import LINGER_S, ROUNDS, channel_of, is_open, round_of, waiting_ttl_s
from holdfast.client.locks.view import LockHolder, LockView
from holdfast.client.session.lease import whole_seconds

TTL_S = 30


def waits(token: int, *, age_s: float) -> LockHolder:
    return LockHolder("", "", token, TTL_S, age_s, TTL_S - 1)


def passed(token: int, *, age_s: float, ago_s: float) -> LockHolder:
    return LockHolder("", "", token, LINGER_S, age_s, LINGER_S - ago_s)


def view(*holders: LockHolder) -> LockView:
    return LockView("k", 3, len(holders), 0, holders, (), 0.0, {})


def test_it_is_open_when_all_wait() -> None:
    here = [waits(number, age_s=5 - number) for number in range(3)]

    assert is_open(view(*here), 2, 3) is True
    assert is_open(view(*here[:2]), 1, 3) is False


def test_it_is_open_to_one_that_sees_others_pass_after_it_came() -> None:
    here = view(passed(1, age_s=9, ago_s=1), passed(2, age_s=8, ago_s=1), waits(3, age_s=2))

    assert is_open(here, 3, 3) is True


def test_it_is_closed_to_one_that_came_after_the_others_passed() -> None:
    here = view(passed(1, age_s=9, ago_s=2), passed(2, age_s=8, ago_s=2), waits(3, age_s=1))

    assert is_open(here, 3, 3) is False


def test_one_that_comes_when_the_marks_are_gone_misses_the_round() -> None:
    assert is_open(view(waits(3, age_s=LINGER_S + 5)), 3, 3) is False


@pytest.mark.parametrize("seen", [None, view(), view(waits(1, age_s=1))])
def test_one_whose_slot_is_gone_is_told(seen: LockView | None) -> None:
    assert is_open(seen, 3, 3) is None


@pytest.mark.parametrize("ttl_s", [LINGER_S - 0.999, LINGER_S - 0.8, LINGER_S - 0.5, LINGER_S])
def test_nobody_waits_with_the_time_of_a_mark(ttl_s: float) -> None:
    assert whole_seconds(waiting_ttl_s(ttl_s)) == LINGER_S + 1


def test_any_other_time_is_waited_with_as_it_is_sent() -> None:
    assert waiting_ttl_s(LINGER_S - 1) == LINGER_S - 1
    assert waiting_ttl_s(LINGER_S + 0.1) == LINGER_S + 1
    assert waiting_ttl_s(TTL_S) == TTL_S
    with pytest.raises(InvalidArgument):
        waiting_ttl_s(0.5)


def test_rounds_use_few_keys_in_turns() -> None:
    assert len({round_of("k", number) for number in range(100)}) == ROUNDS


def test_a_channel_is_made_of_any_key() -> None:
    assert " " not in channel_of("barrier", "a > b.*")
    assert channel_of("barrier", "a") != channel_of("barrier", "b")
    assert channel_of("barrier", "a") != channel_of("election", "a")
