"""Acquire: what is asked again, how long, and with which waits."""

from dataclasses import replace

import pytest

from holdfast.client.errors import (
    AlreadyExists,
    Forbidden,
    InvalidArgument,
    LeaseHeld,
    RequestRefused,
    TransportFailed,
)
from holdfast.client.session.acquisition import Acquisition
from holdfast.client.wire.call import Answer
from tests.infra.player import Player, answer

WANTED = Acquisition(namespace="default", key="orders", owner="me", correlation_id="c", block_s=10.0)


def held(retry_after_s: int = 1) -> Answer:
    return answer(409, {"retry-after": str(retry_after_s)}, error="waiting")


def test_the_body_is_what_the_wire_knows() -> None:
    player = Player([answer(200)])
    wanted = replace(WANTED, ttl_s=2.5, txn_id="t", if_not_exists=True)

    player.play(wanted.run(player.channel))

    assert player.bodies() == [
        {
            "namespace": "default",
            "key": "orders",
            "ttl_seconds": 3,
            "owner": "me",
            "block_seconds": 10,
            "txn_id": "t",
            "if_not_exists": True,
        }
    ]
    assert player.sent[0].headers["X-Correlation-Id"] == "c"
    assert player.sent[0].pool == "wait"


@pytest.mark.parametrize(("block_s", "on_the_wire"), [(None, 0), (0.0, -1), (0.2, 1), (60.0, 60)])
def test_waiting_is_spelled_as_the_wire_does(block_s: float | None, on_the_wire: int) -> None:
    player = Player([answer(200)])

    player.play(replace(WANTED, block_s=block_s).run(player.channel))

    assert player.bodies()[0]["block_seconds"] == on_the_wire


def test_a_wait_is_not_timed_out_and_one_for_ever_never() -> None:
    timed, endless = Player([answer(200)]), Player([answer(200)])

    timed.play(WANTED.run(timed.channel))
    endless.play(replace(WANTED, block_s=None).run(endless.channel))

    assert (timed.timeouts_s, endless.timeouts_s) == ([25.0], [None])


def test_a_held_key_is_asked_again_with_the_rest_of_the_time_until_it_is_over() -> None:
    player = Player([held() for _ in range(40)], seconds_per_call=1.0)

    with pytest.raises(LeaseHeld):
        player.play(WANTED.run(player.channel))

    asked = [body["block_seconds"] for body in player.bodies()]
    assert asked[0] == 10
    assert asked == sorted(asked, reverse=True)
    assert 10.0 <= player.clock.monotonic_s() - 1000.0 <= 13.0


def test_a_far_retry_after_is_cut_to_the_time_left_and_followed_by_one_last_attempt() -> None:
    player = Player([held(3600), answer(200)], seconds_per_call=1.0)

    player.play(WANTED.run(player.channel))

    assert player.pauses_s == [9.0]
    assert [body["block_seconds"] for body in player.bodies()] == [10, -1]


def test_without_waiting_there_is_one_attempt() -> None:
    player = Player([held()])

    with pytest.raises(LeaseHeld):
        player.play(replace(WANTED, block_s=0.0).run(player.channel))

    assert player.pauses_s == []


@pytest.mark.parametrize(
    ("refusal", "family"),
    [
        (answer(403, error="namespace_forbidden"), Forbidden),
        (answer(409, error="already_exists"), AlreadyExists),
        (answer(400, error="invalid_key"), RequestRefused),
    ],
)
def test_what_does_not_pass_is_final(refusal: Answer, family: type[Exception]) -> None:
    player = Player([refusal])

    with pytest.raises(family):
        player.play(WANTED.run(player.channel))


def test_throttling_and_failures_of_the_server_pass() -> None:
    throttled = answer(429, {"retry-after": "2"}, error="throttled")
    player = Player(
        [throttled, answer(500, error="internal_error"), answer(503, error="not_ready"), answer(200)]
    )

    player.play(replace(WANTED, block_s=None).run(player.channel))

    assert player.pauses_s[0] == 2.0
    assert len(player.sent) == 4


def test_no_answer_is_taken_five_times_with_growing_waits() -> None:
    player = Player([TransportFailed(f"{number}") for number in range(6)])

    with pytest.raises(TransportFailed, match="5"):
        player.play(replace(WANTED, block_s=None).run(player.channel))

    expected_s = [1.0, 1.2, 1.44, 1.728, 2.0736]
    assert player.pauses_s == pytest.approx(expected_s, abs=0.1)


def test_an_answer_in_between_starts_the_count_anew() -> None:
    failures = [TransportFailed("cut") for _ in range(5)]
    player = Player([*failures, held(), *failures, answer(200)])

    player.play(replace(WANTED, block_s=None).run(player.channel))

    assert len(player.sent) == 12
    assert max(player.pauses_s) <= 5.1


def test_negative_times_are_refused_with_what_to_write_instead() -> None:
    with pytest.raises(InvalidArgument, match="None waits for ever"):
        replace(WANTED, block_s=-1.0)
    with pytest.raises(InvalidArgument, match="0 takes"):
        replace(WANTED, ttl_s=-1.0)
