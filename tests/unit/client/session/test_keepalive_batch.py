"""A batch of keepalives without a network: what it sends, what its results mean, who does not take it."""

from typing import Any

import pytest

from holdfast.client.errors import LeaseLost, Throttled, TransportFailed, UnexpectedAnswer
from holdfast.client.options import ClientOptions
from holdfast.client.session.hold import Hold
from holdfast.client.session.keepalive_batch import KeepaliveBatches, NotBatched
from holdfast.client.session.lease import Lease
from tests.infra.player import Player, answer

NOT_FOUND = answer(404)
ENDS: dict[str, Any] = {"expires_at_unix": 1794787260}


def holds(player: Player, *, ttl_s: float = 30.0, count: int = 2) -> list[Hold]:
    end_s = player.clock.monotonic_s() + 10.0
    return [
        Hold(
            player.channel,
            ClientOptions(),
            Lease(f"key-{number}", f"lease-{number}", "txn", 7),
            asked_ttl_s=ttl_s,
            ttl_s=ttl_s,
            deadline_s=end_s,
        )
        for number in range(count)
    ]


def batches(player: Player) -> KeepaliveBatches:
    return KeepaliveBatches(player.channel, timeout_s=5.0)


def test_each_lease_learns_its_own_result() -> None:
    refused = {"status": 403, "error": "lease_expired", "detail": "lease expired"}
    results = [{**ENDS, "fencing_token": 8}, refused, {"status": 429, "error": "throttled"}, {}]
    player = Player([answer(200, renewed=1, results=results)], seconds_per_call=2.0)
    held = holds(player, count=4)

    problems = player.play(batches(player).renew(held, "cid"))

    assert [type(problem) for problem in problems] == [type(None), LeaseLost, Throttled, UnexpectedAnswer]
    assert (held[0].lease.fencing_token, held[0].lease.expires_at_unix) == (8, 1794787260)
    assert [hold.remaining_s() for hold in held] == [28.0, 8.0, 8.0, 8.0]
    assert player.sent[0].headers["X-Correlation-Id"] == "cid"
    assert player.timeouts_s == [5.0]


def test_a_server_without_batches_is_asked_again_after_a_growing_while() -> None:
    player = Player([NOT_FOUND, NOT_FOUND])
    asking = batches(player)
    worth: list[bool] = []

    for wait_s in (29.0, 1.0):
        if asking.is_worth_a_try:
            with pytest.raises(NotBatched):
                player.play(asking.renew(holds(player), ""))
        player.clock.advance(wait_s)
        worth.append(asking.is_worth_a_try)
    with pytest.raises(NotBatched):
        player.play(asking.renew(holds(player), ""))
    player.clock.advance(59.0)
    worth.append(asking.is_worth_a_try)
    player.clock.advance(1.0)
    worth.append(asking.is_worth_a_try)

    assert worth == [False, True, False, True]


def test_only_the_endpoint_that_refused_is_remembered() -> None:
    player = Player(
        [NOT_FOUND, TransportFailed("down", is_sent=False), answer(200, **ENDS)],
        servers="http://a:1,http://b:1",
    )
    asking = batches(player)
    with pytest.raises(NotBatched):
        player.play(asking.renew(holds(player), ""))
    after_refusal = asking.is_worth_a_try

    player.play(holds(player)[0].keepalive())  # Another endpoint answers, and is asked first from now on.

    assert (after_refusal, asking.is_worth_a_try) == (False, True)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_has_no_time_is_not_taken_for_one_without_batches(status: int) -> None:
    player = Player([answer(status, error="busy")])
    asking = batches(player)

    with pytest.raises(Exception) as raised:
        player.play(asking.renew(holds(player), ""))

    assert not isinstance(raised.value, NotBatched)
    assert asking.is_worth_a_try
