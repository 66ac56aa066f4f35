"""What is sent for the key space, and what is made of the answers."""

import pytest

from holdfast.client import (
    ClientOptions,
    Compare,
    DeleteOp,
    GetOp,
    KeyValue,
    NotFound,
    PutOp,
    TransportFailed,
    TxnOp,
    Unavailable,
    UnexpectedAnswer,
)
from holdfast.client.kv.calls import KvCalls
from holdfast.client.wire.call import Answer
from tests.infra.player import Player, answer
from tests.unit.client.kv.texts import b64

LARGE = 2**63 - 1
HEADER = {"cluster_id": str(2**64 - 1), "member_id": "1", "revision": str(LARGE), "raft_term": "1"}
KV = {"key": b64("a"), "create_revision": "2", "mod_revision": "3", "version": "2", "value": "/w=="}
READ = KeyValue(b"a", b"\xff", 2, 3, 2)


def played(*script: Answer | Exception, servers: str = "http://a:1") -> tuple[Player, KvCalls]:
    player = Player(list(script), servers)
    return player, KvCalls(player.channel, ClientOptions())


def test_a_put_tells_its_revision_and_what_was_there() -> None:
    player, calls = played(answer(header=HEADER, prev_kv=KV))

    result = player.play(calls.put(PutOp("a", "1", prev_kv=True)))

    assert (result.revision, result.prev_kv) == (LARGE, READ)
    assert player.sent[0].path == "/v3/kv/put"
    assert player.bodies() == [{"key": b64("a"), "value": b64("1"), "prev_kv": True}]


def test_a_get_tells_how_many_there_are() -> None:
    player, calls = played(answer(header=HEADER, kvs=[KV], more=True, count="9"), answer(header=HEADER))

    some = player.play(calls.get(GetOp("a", limit=1)))
    none = player.play(calls.get(GetOp("a")))

    assert (some.kvs, some.first, some.more, some.count) == ((READ,), READ, True, 9)
    assert (none.kvs, none.first, none.more, none.count) == ((), None, False, 0)


def test_a_delete_tells_how_many_are_gone() -> None:
    player, calls = played(answer(header=HEADER, deleted="1", prev_kvs=[KV]), answer(header=HEADER))

    one = player.play(calls.delete(DeleteOp("a", prev_kv=True)))

    assert (one.deleted, one.prev_kvs) == (1, (READ,))
    assert player.play(calls.delete(DeleteOp("a"))).deleted == 0


def test_a_transaction_has_a_result_for_each_operation() -> None:
    responses = [
        {"response_put": {"header": {"revision": "5"}}},
        {"response_range": {"header": {}, "kvs": [KV], "count": "1"}},
        {"response_delete_range": {"header": {"revision": "5"}, "deleted": "1"}},
        {"response_txn": {"header": {}, "succeeded": True}},
    ]
    player, calls = played(answer(header=HEADER, succeeded=True, responses=responses))

    result = player.play(calls.txn(TxnOp([Compare.version("a", "=", 0)], [PutOp("a")])))

    assert result.succeeded
    assert [type(one).__name__ for one in result.results] == [
        "KvPutResult",
        "KvGetResult",
        "KvDeleteResult",
        "KvTxnResult",
    ]


def test_a_result_of_an_unknown_kind_is_not_guessed() -> None:
    player, calls = played(answer(header=HEADER, responses=[{"response_other": {}}]))

    with pytest.raises(UnexpectedAnswer):
        player.play(calls.txn(TxnOp()))


def test_what_changes_keys_is_not_sent_to_a_second_server() -> None:
    player, calls = played(TransportFailed("cut"), servers="a,b")

    with pytest.raises(TransportFailed):
        player.play(calls.txn(TxnOp(success=[PutOp("a")])))


def test_what_is_read_is_asked_of_the_next_server() -> None:
    cut = TransportFailed("cut")
    player, calls = played(cut, cut, answer(header=HEADER), servers="a,b")

    assert player.play(calls.get(GetOp("a"))).revision == LARGE


def test_leases_are_granted_looked_at_and_ended() -> None:
    player, calls = played(
        answer(header=HEADER, ID=str(LARGE), TTL="30"),
        answer(header=HEADER, ID=str(LARGE), TTL="29", grantedTTL="30", keys=[b64("a")]),
        answer(header=HEADER, leases=[{"ID": str(LARGE)}, {"ID": "7"}]),
        answer(header=HEADER),
        answer(header=HEADER, ID=str(LARGE), TTL="-1"),
    )

    granted = player.play(calls.grant(30, LARGE))
    state = player.play(calls.time_to_live(LARGE, keys=True))
    ids = player.play(calls.lease_ids())
    player.play(calls.revoke(LARGE))
    gone = player.play(calls.time_to_live(LARGE, keys=False))

    assert (granted.id, granted.ttl_s) == (LARGE, 30)
    assert (state.ttl_s, state.granted_ttl_s, state.keys, state.is_over) == (29, 30, (b"a",), False)
    assert ids == (LARGE, 7)
    assert gone.is_over
    assert player.bodies()[0] == {"TTL": "30", "ID": str(LARGE)}


def test_a_lease_that_is_gone_is_not_kept_alive() -> None:
    player, calls = played(answer(result={"header": HEADER, "ID": "7"}))

    with pytest.raises(NotFound):
        player.play(calls.keep_alive(7))


def test_a_renewal_comes_when_a_third_is_over_and_again_until_it_succeeds() -> None:
    player, calls = played(
        TransportFailed("down", is_sent=False),
        answer(503, error="etcdserver: no leader"),
        answer(result={"header": HEADER, "ID": "7", "TTL": "30"}),
    )

    assert player.play(calls.keep_on(7, 30)) == 30

    assert player.pauses_s[0] == 10
    assert [call.path for call in player.sent] == ["/v3/lease/keepalive"] * 3


def test_a_renewal_that_never_succeeds_ends_with_the_lease() -> None:
    player, calls = played(*(answer(503, error="etcdserver: no leader") for _ in range(99)))

    with pytest.raises(Unavailable):
        player.play(calls.keep_on(7, 30))

    assert sum(player.pauses_s) < 30


def test_a_renewal_that_is_refused_is_not_tried_again() -> None:
    player, calls = played(answer(error={"grpc_code": 5, "http_code": 404, "message": "gone"}))

    with pytest.raises(NotFound, match="gone"):
        player.play(calls.keep_on(7, 30))
