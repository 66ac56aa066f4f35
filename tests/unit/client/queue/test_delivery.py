"""A delivery's calls without a network: resolved once, extended in time, lost when it is lost."""

from typing import Any

import pytest

from holdfast.client import (
    CasMismatch,
    ClientOptions,
    Forbidden,
    LeaseLost,
    Message,
    NotFound,
    Throttled,
    TransportFailed,
)
from holdfast.client.queue.delivery import DeliveryClaim, ServerClock, reason_of
from holdfast.client.wire.call import Answer, Members
from tests.infra.deliveries import STATE, message
from tests.infra.player import Player, answer

NOT_FOUND: dict[str, Any] = {"error": "not_found", "detail": "message already removed"}
MISMATCH: dict[str, Any] = {"error": "queue_message_lease_mismatch", "detail": "queue message lease mismatch"}
BROKEN = TransportFailed("broken", is_sent=True)


def claim(
    *script: Answer | Exception, left_s: float | None = 20.0, **changes: Any
) -> tuple[DeliveryClaim, Player]:
    player = Player(list(script))
    delivered = Message.read(Members(message(**changes)))
    return DeliveryClaim(player.channel, ClientOptions(), delivered, left_s=left_s), player


def extended(etag: str = "m2", seconds: int = 20) -> Answer:
    return answer(lease_expires_at_unix=4_000_000_020, visibility_timeout_seconds=seconds, meta_etag=etag)


def test_an_ack_carries_what_proves_the_delivery() -> None:
    held, player = claim(answer(acked=True), **STATE)

    player.play(held.ack())

    assert player.bodies()[0] == {
        "namespace": "default",
        "queue": "orders",
        "message_id": held.message.message_id,
        "lease_id": "dbt4ud9ksducbc8b3la0",
        "txn_id": "dbt4ud9ksducbc8b3lag",
        "fencing_token": 1,
        "meta_etag": "m1",
        "state_etag": "s1",
        "state_lease_id": "dbt4ue9ksducbc8b3lg0",
        "state_fencing_token": 1,
    }
    assert player.sent[0].headers["X-Correlation-Id"] == "req-4711"


def test_a_second_ack_is_refused() -> None:
    held, player = claim(answer(404, **NOT_FOUND))

    with pytest.raises(NotFound):
        player.play(held.ack())


def test_an_ack_whose_answer_was_lost_meets_its_own_first_attempt() -> None:
    held, player = claim(BROKEN, answer(404, **NOT_FOUND))

    player.play(held.ack())

    assert len(player.sent) == 2


def test_an_ack_that_never_left_is_no_first_attempt() -> None:
    held, player = claim(TransportFailed("refused", is_sent=False), answer(404, **NOT_FOUND))

    with pytest.raises(NotFound):
        player.play(held.ack())


def test_an_ack_is_sent_again_while_the_server_has_no_time() -> None:
    held, player = claim(answer(429, {"retry-after": "2"}, error="throttled"), answer(acked=True))

    player.play(held.ack())

    assert player.pauses_s == [2.0]


def test_an_ack_does_not_wait_beyond_the_end_of_the_delivery() -> None:
    held, player = claim(answer(429, {"retry-after": "60"}, error="throttled"))

    with pytest.raises(Throttled):
        player.play(held.ack())


def test_an_ack_gives_up_when_no_server_answers() -> None:
    held, player = claim(*[BROKEN] * 6)

    with pytest.raises(TransportFailed):
        player.play(held.ack())


def test_a_nack_tells_delay_intent_and_reason() -> None:
    held, player = claim(answer(requeued=True), answer(requeued=True))

    player.play(held.nack(delay_s=1.2, intent="failure", reason="upstream"))
    player.play(held.nack(delay_s=0, intent="defer", reason=""))

    first, second = player.bodies()
    assert (first["delay_seconds"], first["last_error"], "intent" in first) == (
        2,
        {"detail": "upstream"},
        False,
    )
    assert (second["delay_seconds"], second["intent"], "last_error" in second) == (0, "defer", False)


@pytest.mark.parametrize("refusal", [MISMATCH, {"error": "cas_mismatch"}])
def test_a_nack_whose_answer_was_lost_meets_its_own_first_attempt(refusal: dict[str, Any]) -> None:
    held, player = claim(BROKEN, answer(409, **refusal))

    player.play(held.nack(delay_s=0, intent="failure", reason=""))

    assert len(player.sent) == 2


def test_a_nack_of_somebody_elses_delivery_is_refused() -> None:
    held, player = claim(answer(409, **MISMATCH))

    with pytest.raises(LeaseLost):
        player.play(held.nack(delay_s=0, intent="failure", reason=""))


def test_each_extend_teaches_the_etag_of_the_next() -> None:
    held, player = claim(extended("m2"), extended("m3"), answer(requeued=True))

    player.play(held.extend(None))
    player.play(held.extend(45))
    player.play(held.nack(delay_s=0, intent="failure", reason=""))

    assert [body["meta_etag"] for body in player.bodies()] == ["m1", "m2", "m3"]
    assert [body.get("extend_by_seconds") for body in player.bodies()] == [20, 45, None]


def test_an_extend_goes_on_with_the_etag_that_the_server_names() -> None:
    conflict = answer(409, error="cas_mismatch", current_etag="m7")
    held, player = claim(conflict, extended("m8"))

    player.play(held.extend(None))

    assert [body["meta_etag"] for body in player.bodies()] == ["m1", "m7"]
    assert held.meta_etag == "m8"


def test_a_nack_goes_on_with_the_etag_that_the_server_names() -> None:
    conflict = answer(409, error="cas_mismatch", current_etag="m7")
    held, player = claim(conflict, answer(requeued=True))

    player.play(held.nack(delay_s=3, intent="failure", reason="upstream"))

    first, second = player.bodies()
    assert (first["meta_etag"], second["meta_etag"]) == ("m1", "m7")
    assert second["delay_seconds"] == 3


def test_a_nack_with_an_old_etag_is_refused() -> None:
    held, player = claim(answer(409, error="cas_mismatch"))

    with pytest.raises(CasMismatch):
        player.play(held.nack(delay_s=0, intent="failure", reason=""))


def test_an_extend_with_an_old_etag_is_refused() -> None:
    held, player = claim(answer(409, error="cas_mismatch"))

    with pytest.raises(CasMismatch):
        player.play(held.extend(None))


@pytest.mark.parametrize(
    ("visibility_s", "left_s", "in_s"), [(20, 20, 10), (20, 8, 0), (3600, 3600, 30), (1, 1, 0.5), (20, 0, 0)]
)
def test_it_is_extended_at_half_time_and_every_half_minute_at_the_least(
    visibility_s: int, left_s: float, in_s: float
) -> None:
    held, _ = claim(left_s=left_s, visibility_timeout_seconds=visibility_s)

    assert held.keepalive_in_s() == in_s


def test_after_a_failed_extend_it_is_tried_again_soon() -> None:
    held, _ = claim()

    assert held.keepalive_in_s(after_failure=True) == 1.0


def test_what_a_failed_extend_means() -> None:
    held, player = claim()
    problems = [
        LeaseLost("lease_expired"),
        NotFound("not_found", status=404),
        Forbidden("forbidden", status=403),
        BROKEN,
    ]

    verdicts = [held.verdict(problem) for problem in problems]
    player.clock.advance(21)
    late = held.verdict(BROKEN)

    assert [verdict and verdict.code for verdict in verdicts] == [
        "lease_expired",
        "queue_message_lease_mismatch",
        "lease_required",
        None,
    ]
    assert late is not None
    assert late.code == "lease_expired"


def test_a_delivery_ends_once() -> None:
    held, _ = claim()
    ends: list[bool] = []
    held.on_end = lambda: ends.append(held.is_resolved)

    held.resolve()
    held.lose(LeaseLost("lease_expired"))

    assert (ends, held.lost_because) == ([True], None)
    with pytest.raises(LeaseLost):
        held.check_live()


def test_the_state_has_a_lease_of_its_own() -> None:
    with_state, _ = claim(**STATE)
    without, _ = claim()

    lease = with_state.state_lease()

    assert without.state_lease() is None
    assert lease is not None
    assert (lease.key, lease.lease_id, lease.txn_id, lease.fencing_token) == (
        f"q/orders/state/{with_state.message.message_id}",
        "dbt4ue9ksducbc8b3lg0",
        "dbt4ud9ksducbc8b3lag",
        1,
    )


DATE = "Fri, 02 Oct 2096 07:06:40 GMT"  # 4_000_000_000


@pytest.mark.parametrize(
    ("headers", "expires_at_unix", "waited_s", "left_s"),
    [
        ({}, 4_000_000_020, 5.0, 20.0),
        ({"date": "nonsense"}, 4_000_000_020, 5.0, 20.0),
        ({"date": DATE}, 4_000_000_020, 0.0, 20.0),
        ({"date": DATE}, 4_000_000_019, 0.0, 20.0),
        ({"date": DATE}, 4_000_000_020, 15.0, 5.0),
        ({"date": DATE}, 4_000_000_020, 60.0, 0.0),
    ],
)
def test_a_delivery_that_waited_on_its_way_lasts_less(
    headers: dict[str, str], expires_at_unix: int, waited_s: float, left_s: float
) -> None:
    player = Player([])
    clock = ServerClock(Answer(200, headers), player.clock.monotonic_s)

    player.clock.advance(waited_s)

    delivered = Message.read(Members(message(lease_expires_at_unix=expires_at_unix)))
    assert clock.left_s(delivered) == left_s


def test_a_reason_is_short() -> None:
    assert reason_of(KeyError("x")) == "KeyError: 'x'"
    assert len(reason_of(ValueError("x" * 5000))) == 1000
