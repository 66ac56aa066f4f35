"""A lease in use: what its calls send, what they learn, and how an update survives a lost answer."""

import hashlib
from typing import Any

import pytest

from holdfast.client.errors import CasMismatch, LeaseLost, TransportFailed, Unavailable, UnexpectedAnswer
from holdfast.client.options import ClientOptions
from holdfast.client.session.hold import Hold
from holdfast.client.session.lease import Lease
from holdfast.client.wire.call import Answer, Call
from tests.infra.player import Player, answer

GRANT: dict[str, Any] = {
    "namespace": "default",
    "key": "orders",
    "lease_id": "l1",
    "txn_id": "t1",
    "fencing_token": 1,
    "expires_at_unix": 1794787230,
}


def holding(player: Player, *, version: int = 0, etag: str = "", ttl_s: float = 30.0) -> Hold:
    lease = Lease("orders", "lease", "txn", 7, version=version, etag=etag)
    deadline_s = player.clock.monotonic_s() + ttl_s
    return Hold(player.channel, ClientOptions(), lease, asked_ttl_s=ttl_s, ttl_s=ttl_s, deadline_s=deadline_s)


def written(version: int, etag: str = "new") -> Answer:
    return answer(200, new_version=version, new_state_etag=etag, bytes=2, metadata={})


def test_writes_build_on_the_version_and_etag_that_were_seen_last() -> None:
    removed = answer(200, removed=True, new_version=5)
    player = Player([written(4), removed, answer(200, version=6, metadata={})])
    hold = holding(player, version=3, etag="old")

    player.play(hold.update(b"{}", hold.conditions()))
    player.play(hold.remove(hold.conditions()))
    player.play(hold.metadata(query_hidden=True, if_version=None, cas=True))

    sent = [(call.headers.get("X-If-Version"), call.headers.get("X-If-State-ETag")) for call in player.sent]
    assert sent == [("3", "old"), ("4", "new"), ("5", None)]
    assert (hold.lease.version, hold.lease.etag, hold.has_staged) == (6, "", True)


def test_a_key_that_was_never_written_is_written_without_conditions() -> None:
    player = Player([written(1)])
    hold = holding(player)

    player.play(hold.update(b"{}", hold.conditions()))

    assert not {"X-If-Version", "X-If-State-ETag"} & player.sent[0].headers.keys()
    assert player.sent[0].headers["X-Fencing-Token"] == "7"


def test_a_named_condition_replaces_what_was_seen() -> None:
    hold = holding(Player([]), version=3, etag="old")

    assert hold.conditions(if_version=0) == {"X-If-Version": "0"}
    assert hold.conditions(if_etag="x", query_hidden=False) == {
        "X-If-State-ETag": "x",
        "X-Lockd-Meta-Query-Hidden": "false",
    }
    assert hold.conditions(cas=False) == {}


def test_a_get_teaches_version_etag_and_token() -> None:
    headers = {"etag": '"e2"', "x-key-version": "9", "x-fencing-token": "8"}
    player = Player([Answer(200, headers, b"{}"), answer(204)])
    hold = holding(player)

    state = player.play(hold.get())
    seen = (hold.lease.version, hold.lease.etag, hold.lease.fencing_token)
    nothing = player.play(hold.get())

    assert state is not None
    assert (state.json(), state.version, state.etag) == ({}, 9, "e2")
    assert seen == (9, "e2", 8)
    assert (nothing, hold.lease.version, hold.lease.etag) == (None, 9, "")


def test_an_update_is_sent_again_when_no_active_node_answers() -> None:
    passive = answer(503, error="node_passive")
    player = Player([TransportFailed("cut", is_sent=False), passive, written(1)])
    hold = holding(player)

    player.play(hold.update(b"{}", {}))

    assert player.pauses_s == [0.01, 0.02]


def test_an_update_gives_up_after_five_retries() -> None:
    player = Player([TransportFailed(f"{number}") for number in range(6)])
    hold = holding(player)

    with pytest.raises(TransportFailed, match="5"):
        player.play(hold.update(b"{}", {}))

    assert player.pauses_s == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16])


def test_other_refusals_of_an_update_are_final() -> None:
    player = Player([answer(503, error="not_ready")])

    with pytest.raises(Unavailable):
        player.play(holding(player).update(b"{}", {}))


def test_a_repeated_update_that_meets_its_own_first_attempt_has_succeeded() -> None:
    etag = hashlib.sha256(b'{"a":1}').hexdigest()
    conflict = answer(409, error="version_conflict", current_version=1)
    staged = Answer(200, {"etag": etag, "x-key-version": "1"}, b'{"a":1}')
    player = Player([TransportFailed("cut"), conflict, staged])
    hold = holding(player)

    result = player.play(hold.update(b'{"a":1}', {"X-If-Version": "0"}))

    assert (result.version, result.etag, hold.has_staged) == (1, etag, True)


def test_a_repeated_update_that_meets_something_else_is_a_conflict() -> None:
    conflict = answer(409, error="version_conflict", current_version=1)
    player = Player([TransportFailed("cut"), conflict, Answer(200, {"etag": "other"}, b"{}")])

    with pytest.raises(CasMismatch):
        player.play(holding(player).update(b'{"a":1}', {"X-If-Version": "0"}))


def test_a_conflict_without_a_repeat_is_not_looked_into() -> None:
    player = Player([answer(409, error="version_conflict")])

    with pytest.raises(CasMismatch):
        player.play(holding(player).update(b"{}", {}))


def test_a_release_that_comes_too_late_says_that_nothing_was_committed() -> None:
    player = Player([written(1), answer(200, released=True)])
    hold = holding(player, ttl_s=5.0)
    player.play(hold.update(b"{}", {}))
    player.clock.advance(6.0)

    with pytest.raises(LeaseLost, match="may be gone"):
        player.play(hold.release(rollback=False))


def test_a_late_release_with_nothing_at_stake_is_fine() -> None:
    refused = answer(403, error="lease_required")
    player = Player([answer(200, released=True), refused])
    hold = holding(player, ttl_s=5.0)
    player.clock.advance(6.0)

    player.play(hold.release(rollback=False))
    player.play(hold.release(rollback=True))


def test_a_release_that_is_not_one_is_an_error() -> None:
    player = Player([answer(200, released=False)])

    with pytest.raises(UnexpectedAnswer):
        player.play(holding(player).release(rollback=False))


def test_the_end_is_counted_from_before_the_keepalive_was_sent() -> None:
    player = Player([answer(200, expires_at_unix=123)], seconds_per_call=2.0)
    hold = holding(player, ttl_s=10.0)

    player.play(hold.keepalive())

    assert hold.remaining_s() == 8.0
    assert hold.keepalive_in_s() == 3.0


def test_a_ttl_that_the_server_cut_is_noticed_by_its_own_clock() -> None:
    date = {"date": "Mon, 16 Nov 2026 00:00:00 GMT"}
    player = Player([answer(200, date, expires_at_unix=1794787200 + 60)])
    hold = holding(player, ttl_s=1000.0)

    player.play(hold.keepalive(3600.0))

    assert hold.ttl_s == 60.0


def test_a_ttl_does_not_shrink_by_rounding_nor_by_what_was_cut_before() -> None:
    date = {"date": "Mon, 16 Nov 2026 00:00:01 GMT"}
    rounded = answer(200, date, expires_at_unix=1794787201 + 29)
    cut = answer(200, date, expires_at_unix=1794787201 + 5)
    player = Player([rounded, cut, rounded])
    hold = holding(player, ttl_s=30.0)

    granted = [(player.play(hold.keepalive()), hold.ttl_s)[1] for _ in range(3)]

    assert granted == [30.0, 5.0, 30.0]
    assert [body["ttl_seconds"] for body in player.bodies()] == [30, 30, 30]


def test_a_failed_keepalive_is_tried_again_soon_until_the_lease_is_over() -> None:
    player = Player([])
    hold = holding(player, ttl_s=10.0)
    failed = TransportFailed("down")

    early = hold.verdict(failed)
    again_s = hold.keepalive_in_s(after_failure=True)
    player.clock.advance(10.0)
    late = hold.verdict(failed)

    assert early is None
    assert again_s == 0.5
    assert late is not None
    assert late.code == "lease_expired"


def test_a_server_that_stops_gets_an_idle_lease_at_once_and_a_busy_one_afterwards() -> None:
    player = Player([])
    idle, busy = holding(player), holding(player)
    due: list[str] = []
    idle.on_due = lambda: due.append("idle")
    busy.on_due = lambda: due.append("busy")

    with busy.in_use():
        idle.want_back()
        busy.want_back()
        during = list(due)

    assert (during, due) == (["idle"], ["idle", "busy"])


def test_what_a_block_has_staged_is_not_given_back_in_its_middle() -> None:
    hold = holding(Player([]))
    due: list[str] = []
    hold.on_due = lambda: due.append("due")
    hold.is_in_block = hold.has_staged = True

    hold.want_back()

    assert due == []


def test_a_call_after_the_end_is_refused_without_being_sent() -> None:
    hold = holding(Player([]))
    hold.end()

    with pytest.raises(LeaseLost, match="released"), hold.in_use():
        pass


def test_a_lease_that_was_waited_for_longer_than_it_lasts_is_held_and_renewed_at_once() -> None:
    player = Player([answer(200, **GRANT)], seconds_per_call=40.0)
    granted = player.play(player.channel.send(Call("POST", "/v1/acquire")))

    hold = Hold.granted(player.channel, ClientOptions(), granted, 30.0)

    assert hold.remaining_s() == 15.0
    assert hold.keepalive_in_s() == 0.0


def test_what_waits_here_for_its_turn_does_not_shorten_its_lease() -> None:
    queued = answer(200, **GRANT)
    queued.queued_s = 4.0
    player = Player([queued], seconds_per_call=5.0)
    granted = player.play(player.channel.send(Call("POST", "/v1/acquire")))

    hold = Hold.granted(player.channel, ClientOptions(), granted, 30.0)

    assert hold.remaining_s() == 29.0
