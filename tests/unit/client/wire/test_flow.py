"""Failover: which endpoint is asked, and what ends the search."""

import pytest

from holdfast.client.errors import TransportFailed, TransportTimedOut
from holdfast.client.wire.body import Body
from holdfast.client.wire.call import Answer, Call
from tests.infra.player import Player, answer

CALL = Call("POST", "/v1/get")


def test_an_endpoint_without_an_answer_is_followed_by_the_next() -> None:
    player = Player([TransportFailed("down", is_sent=False), answer(204)], "a,b")

    got = player.play(player.channel.send(CALL))

    assert got.status == 204
    assert sorted(player.asked) == ["http://a:9341", "http://b:9341"]
    assert not got.may_be_a_repeat


@pytest.mark.parametrize("passive", [answer(503, error="node_passive"), answer(503)])
def test_a_passive_node_is_followed_by_the_next(passive: Answer) -> None:
    player = Player([passive, answer(200)], "a,b")

    assert player.play(player.channel.send(CALL)).status == 200


def test_any_other_answer_is_final() -> None:
    player = Player([answer(503, error="shutdown_draining")], "a,b")

    assert player.play(player.channel.send(CALL)).error().code == "shutdown_draining"


def test_with_only_passive_nodes_the_caller_gets_their_answer() -> None:
    player = Player([answer(503, error="node_passive"), TransportFailed("down")], "a,b")

    assert player.play(player.channel.send(CALL)).error().code == "node_passive"


def test_the_endpoint_that_answered_is_asked_first_from_then_on() -> None:
    player = Player([TransportFailed("down"), *(answer(200) for _ in range(9))], "a,b")

    for _ in range(9):
        player.play(player.channel.send(CALL))

    assert len(set(player.asked[1:])) == 1


def test_a_broken_connection_of_an_idempotent_call_is_replaced_once() -> None:
    player = Player([TransportFailed("closed"), answer(200), TransportFailed("1"), TransportFailed("2")])
    call = Call("POST", "/v1/get", is_idempotent=True)

    assert player.play(player.channel.send(call)).status == 200
    with pytest.raises(TransportFailed, match="2"):
        player.play(player.channel.send(call))


def test_a_call_that_may_have_happened_is_marked_when_it_is_repeated() -> None:
    player = Player([TransportFailed("cut", is_sent=True), answer(409, error="version_conflict")], "a,b")

    assert player.play(player.channel.send(CALL)).may_be_a_repeat


def test_what_is_sent_once_goes_to_the_next_endpoint_only_if_it_reached_none() -> None:
    player = Player([TransportFailed("down", is_sent=False), TransportFailed("cut", is_sent=True)], "a,b,c")
    call = Call("POST", "/v3/kv/txn", is_sent_once=True)

    with pytest.raises(TransportFailed, match="cut"):
        player.play(player.channel.send(call))

    assert len(player.sent) == 2


def test_a_stream_that_was_begun_is_not_sent_to_the_next_endpoint() -> None:
    player = Player([TransportFailed("cut")], "a,b")
    call = Call("POST", "/v1/attachments", body=Body(iter([b"x"])))

    with pytest.raises(TransportFailed, match="cut"):
        player.play(player.channel.send(call))

    assert len(player.sent) == 1


def test_a_deadline_bounds_all_attempts_together() -> None:
    player = Player([TransportTimedOut("slow"), TransportTimedOut("slow")], "a,b,c", seconds_per_call=3.0)
    deadline_s = player.clock.monotonic_s() + 5.0

    with pytest.raises(TransportTimedOut):
        player.play(player.channel.send(CALL, deadline_s=deadline_s))

    assert player.timeouts_s == [5.0, 2.0]


def test_a_server_that_is_about_to_stop_is_reported() -> None:
    player = Player([answer(200, {"shutdown-imminent": " Yes"})])

    player.play(player.channel.send(CALL))

    assert [endpoint.name for endpoint in player.draining] == ["http://a:1"]
