"""A slot in use, without a network: when it is renewed, and when it is lost."""

import json
import random

import pytest

from holdfast.client.errors import LeaseLost, RequestRefused, ServerFailed, TransportFailed
from holdfast.client.locks.claim import LockClaim
from holdfast.client.options import ClientOptions
from holdfast.client.wire.call import Answer
from holdfast.client.wire.endpoint import Endpoint
from holdfast.client.wire.flow import Channel, Send

TTL_S = 30
TOKEN = "00060a24181e4000860c3ba5993c3a21"


class Clock:
    now_s = 1000.0


def claim_of(clock: Clock, *, sent_at_s: float | None = None, ttl_s: int = TTL_S) -> LockClaim:
    members = {"key": "k", "token": TOKEN, "fencing_token": 7, "limit": 1, "ttl_seconds": ttl_s}
    answer = Answer(200, {}, json.dumps(members).encode())
    answer.sent_at_s = clock.now_s if sent_at_s is None else sent_at_s
    endpoint = Endpoint("http://127.0.0.1:1", "http://127.0.0.1:1")
    channel = Channel([endpoint], chance=random.Random(1), monotonic_s=lambda: clock.now_s)
    return LockClaim(channel, ClientOptions(), answer, "cid")


def test_a_lease_is_renewed_when_a_third_of_it_is_over() -> None:
    clock = Clock()
    claim = claim_of(clock)

    assert claim.keepalive_in_s() == pytest.approx(TTL_S / 3)
    clock.now_s += TTL_S / 3
    assert claim.keepalive_in_s() == pytest.approx(0)


def test_a_lease_that_may_be_old_is_renewed_at_once() -> None:
    clock = Clock()

    claim = claim_of(clock, sent_at_s=clock.now_s - 600)

    assert claim.keepalive_in_s() == 0
    assert claim.remaining_s() == pytest.approx(TTL_S / 2)


def test_a_failed_renewal_is_tried_again_until_the_lease_ends() -> None:
    clock = Clock()
    claim = claim_of(clock)

    assert claim.verdict(TransportFailed("away")) is None
    assert claim.verdict(ServerFailed("internal_error", status=500)) is None
    clock.now_s += TTL_S
    lost = claim.verdict(TransportFailed("away"))

    assert lost is not None
    assert lost.code == "lease_expired"
    with pytest.raises(LeaseLost):
        claim.check_held()


@pytest.mark.parametrize(
    "problem", [LeaseLost("lock_not_held", status=403), RequestRefused("invalid_body", status=400)]
)
def test_a_refused_renewal_is_a_loss(problem: LeaseLost | RequestRefused) -> None:
    claim = claim_of(Clock())

    lost = claim.verdict(problem)

    assert lost is not None
    claim.lose(lost)
    assert claim.is_ended
    assert claim.lost_because is lost


def test_a_release_whose_answer_was_lost_is_sent_again_and_may_find_nothing() -> None:
    claim = claim_of(Clock())
    flow = claim.release()

    assert isinstance(next(flow), Send)
    assert isinstance(flow.throw(TransportFailed("broken")), Send)
    with pytest.raises(StopIteration):
        flow.send(Answer(403, {}, b'{"error":"lock_not_held"}'))


def test_a_release_that_finds_nothing_is_a_loss() -> None:
    flow = claim_of(Clock()).release()
    next(flow)

    with pytest.raises(LeaseLost):
        flow.send(Answer(403, {}, b'{"error":"lock_not_held"}'))
