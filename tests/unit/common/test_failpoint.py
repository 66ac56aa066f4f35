"""Failpoints act as armed, for as many hits as armed, and are off otherwise."""

from collections.abc import Iterator

import pytest

from holdfast.common import failpoint
from holdfast.common.failpoint import FailpointError, hit


@pytest.fixture(autouse=True)
def disarm_afterwards() -> Iterator[None]:
    yield
    failpoint.disarm()


def test_an_unarmed_place_does_nothing() -> None:
    assert not hit("journal.sync")
    assert not failpoint.ARMED


def test_error_raises_an_oserror_that_names_the_place() -> None:
    with failpoint.armed("journal.sync:error"), pytest.raises(FailpointError, match=r"journal\.sync"):
        hit("journal.sync")


def test_skip_tells_the_caller_to_leave_the_step_out() -> None:
    with failpoint.armed("journal.sync:skip"):
        assert hit("journal.sync")
        assert not hit("another.place")


def test_a_leading_count_lets_the_first_hits_pass() -> None:
    with failpoint.armed("a:3*skip"):
        assert [hit("a") for _ in range(4)] == [False, False, True, True]


def test_a_trailing_count_stops_after_so_many() -> None:
    with failpoint.armed("a:skip*2"):
        assert [hit("a") for _ in range(4)] == [True, True, False, False]


def test_several_places_are_armed_at_once() -> None:
    with failpoint.armed("a:skip,b:sleep(1)"):
        assert hit("a")
        assert not hit("b")


def test_leaving_the_block_disarms() -> None:
    with failpoint.armed("a:skip"):
        pass

    assert not hit("a")


@pytest.mark.parametrize("spec", ["a", "a:", ":skip", "a:explode", "a:sleep", "a:sleep(x)", "a:x*skip"])
def test_a_wrong_spec_names_itself(spec: str) -> None:
    with pytest.raises(ValueError, match="HOLDFAST_FAILPOINT"):
        failpoint.arm(spec)
