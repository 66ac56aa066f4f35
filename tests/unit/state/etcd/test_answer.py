"""Answers to the byte."""

from holdfast.state.layer.kv.operation import (
    DeleteRangeResult,
    Event,
    KeyValue,
    LeaseState,
    PutResult,
    RangeResult,
    TxnResult,
)
from holdfast.state.protocol.etcd.identity import Identity
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter, in_stream, kv_json

HEAD = b'"header":{"cluster_id":"18446744073709551615","member_id":"7","revision":"%d","raft_term":"2"}'
WRITER = AnswerWriter(Identity(2**64 - 1, 7, 2))
ONE = KeyValue(b"a/1", b"one", 2, 3, 2)
BARE = KeyValue(b"a/2", b"", 4, 4, 1, 777)
ONE_JSON = b'{"key":"YS8x","create_revision":"2","mod_revision":"3","version":"2","value":"b25l"}'
BARE_JSON = b'{"key":"YS8y","create_revision":"4","mod_revision":"4","version":"1","lease":"777"}'
GONE = KeyValue(b"a/1", b"", 0, 5, 0)


def test_a_key_has_no_members_with_their_defaults() -> None:
    assert kv_json(ONE) == ONE_JSON
    assert kv_json(BARE) == BARE_JSON
    assert kv_json(GONE) == b'{"key":"YS8x","mod_revision":"5"}'
    assert kv_json(KeyValue(b"\xff\xfe", b"\0", 1, 1, 1)).startswith(b'{"key":"//4=",')


def test_put() -> None:
    assert WRITER.put(PutResult(2)) == b"{" + HEAD % 2 + b"}"
    assert WRITER.put(PutResult(3, ONE)) == b"{" + HEAD % 3 + b',"prev_kv":' + ONE_JSON + b"}"


def test_range() -> None:
    assert WRITER.range(RangeResult(1, [], False, 0)) == b"{" + HEAD % 1 + b"}"
    assert WRITER.range(RangeResult(5, [ONE, BARE], True, 3)) == (
        b"{" + HEAD % 5 + b',"kvs":[' + ONE_JSON + b"," + BARE_JSON + b'],"more":true,"count":"3"}'
    )


def test_delete_range() -> None:
    assert WRITER.delete_range(DeleteRangeResult(8, 0, [])) == b"{" + HEAD % 8 + b"}"
    assert WRITER.delete_range(DeleteRangeResult(9, 1, [ONE])) == (
        b"{" + HEAD % 9 + b',"deleted":"1","prev_kvs":[' + ONE_JSON + b"]}"
    )


def test_a_transaction_and_the_headers_within_it() -> None:
    result = TxnResult(
        13,
        True,
        [
            DeleteRangeResult(13, 1, []),
            PutResult(13),
            RangeResult(13, [ONE], False, 1),
            TxnResult(13, False, [PutResult(13)]),
            TxnResult(13, True, []),
        ],
    )
    revision = b'"header":{"revision":"13"}'

    assert WRITER.txn(TxnResult(12, False, [])) == b"{" + HEAD % 12 + b"}"
    assert WRITER.txn(result) == (
        b"{" + HEAD % 13 + b',"succeeded":true,"responses":['
        b'{"response_delete_range":{' + revision + b',"deleted":"1"}},'
        b'{"response_put":{' + revision + b"}},"
        b'{"response_range":{' + revision + b',"kvs":[' + ONE_JSON + b'],"count":"1"}},'
        b'{"response_txn":{"header":{},"responses":[{"response_put":{' + revision + b"}}]}},"
        b'{"response_txn":{"header":{},"succeeded":true}}]}'
    )


def test_leases() -> None:
    state = LeaseState(777, 19, 20, [b"l/1"])

    assert WRITER.lease(14, 777, 20) == b"{" + HEAD % 14 + b',"ID":"777","TTL":"20"}'
    assert in_stream(WRITER.lease(14, 4242, 0)) == b'{"result":{' + HEAD % 14 + b',"ID":"4242"}}\n'
    assert WRITER.lease_state(14, 777, state) == (
        b"{" + HEAD % 14 + b',"ID":"777","TTL":"19","grantedTTL":"20","keys":["bC8x"]}'
    )
    assert WRITER.lease_state(14, 777, LeaseState(777, 0, 20, [])) == (
        b"{" + HEAD % 14 + b',"ID":"777","grantedTTL":"20"}'
    )
    assert WRITER.lease_state(14, 4242, None) == b"{" + HEAD % 14 + b',"ID":"4242","TTL":"-1"}'
    assert WRITER.leases(14, []) == b"{" + HEAD % 14 + b"}"
    assert WRITER.leases(14, [3, 777]) == b"{" + HEAD % 14 + b',"leases":[{"ID":"3"},{"ID":"777"}]}'


def test_the_messages_of_a_watch_are_lines() -> None:
    events = [Event(ONE, None), Event(GONE, ONE)]
    bare = b'{"cluster_id":"18446744073709551615","member_id":"7","raft_term":"2"}'

    assert WRITER.watch(18, 0, b',"created":true') == b'{"result":{' + HEAD % 18 + b',"created":true}}\n'
    assert WRITER.watch(18, -1) == b'{"result":{' + HEAD % 18 + b',"watch_id":"-1"}}\n'
    assert WRITER.watch(0, 7, b',"canceled":true') == (
        b'{"result":{"header":' + bare + b',"watch_id":"7","canceled":true}}\n'
    )
    assert WRITER.watch_events(21, 0, events, has_previous=False) == (
        b'{"result":{' + HEAD % 21 + b',"events":[{"kv":' + ONE_JSON + b"},"
        b'{"type":"DELETE","kv":{"key":"YS8x","mod_revision":"5"}}]}}\n'
    )
    assert WRITER.watch_events(21, 0, events, has_previous=True).endswith(
        b'{"type":"DELETE","kv":{"key":"YS8x","mod_revision":"5"},"prev_kv":' + ONE_JSON + b"}]}}\n"
    )
