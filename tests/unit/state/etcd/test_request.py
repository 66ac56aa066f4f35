"""Requests of etcd's clients as the key space takes them."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from holdfast.state.layer.kv.errors import (
    KeyNotFound,
    KvError,
    KvInvalid,
    KvRequestTooLarge,
    TooManyOperations,
)
from holdfast.state.layer.kv.operation import (
    UNBOUNDED,
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    SortOrder,
    SortTarget,
    TxnRequest,
    WatchRequest,
)
from holdfast.state.protocol.etcd.wire.body import BODY_BYTES_MAX, REQUEST_BYTES_MAX
from holdfast.state.protocol.etcd.wire.errors import WrongTypeInStream
from holdfast.state.protocol.etcd.wire.request import (
    CompactionRequest,
    compaction_request,
    delete_range_request,
    put_request,
    range_request,
    txn_request,
)
from holdfast.state.protocol.etcd.wire.watch_request import (
    WATCHES_MAX,
    WatchCancel,
    WatchProgress,
    stream_requests,
)

READERS: list[Callable[[bytes], object]] = [
    put_request,
    range_request,
    delete_range_request,
    txn_request,
    compaction_request,
    stream_requests,
]
NAMES = [
    *(
        "key",
        "value",
        "range_end",
        "lease",
        "prevKv",
        "limit",
        "revision",
        "sort_order",
        "sortTarget",
        "compare",
    ),
    *(
        "success",
        "failure",
        "request_put",
        "requestRange",
        "request_txn",
        "target",
        "result",
        "create_request",
    ),
    *("filters", "watch_id", "cancelRequest", "physical", "ignore_value", "version", "other"),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["YQ==", "AA==", "EQUAL", "VALUE", "NOPUT", "1", "DESCEND"])
)
MEMBERS = st.dictionaries(
    st.sampled_from(NAMES),
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
        ),
        max_leaves=12,
    ),
    max_size=5,
)


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (b"", PutRequest(b"")),
        (b'{"key":"YS8x","value":"b25l"}', PutRequest(b"a/1", b"one")),
        (b'{"key":"YQ==","lease":"777","prev_kv":true}', PutRequest(b"a", lease=777, prev_kv=True)),
        (b'{"key":"YQ==","lease":9223372036854775807}', PutRequest(b"a", lease=2**63 - 1)),
        (
            b'{"key":"YQ==","ignoreValue":true,"ignore_lease":true,"nope":1}',
            PutRequest(b"a", ignore_value=True, ignore_lease=True),
        ),
        (b'{"key":null,"value":null,"lease":null,"prevKv":null}', PutRequest(b"")),
    ],
)
def test_a_put(body: bytes, request_: PutRequest) -> None:
    assert put_request(body) == request_


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (b'{"key":"cms=","rangeEnd":"cmw=","countOnly":true}', RangeRequest(b"rk", b"rl", count_only=True)),
        (
            b'{"key":"YQ==","limit":"2","sort_order":"DESCEND","sort_target":"MOD","serializable":true}',
            RangeRequest(b"a", limit=2, sort_order=SortOrder.DESCEND, sort_target=SortTarget.MOD),
        ),
        (
            b'{"key":"YQ==","sort_order":2,"sort_target":4,"keys_only":true}',
            RangeRequest(b"a", sort_order=SortOrder.DESCEND, sort_target=SortTarget.VALUE, keys_only=True),
        ),
        (
            b'{"key":"YQ==","revision":"3","min_mod_revision":1,"maxModRevision":2,'
            b'"min_create_revision":"4","maxCreateRevision":"5"}',
            RangeRequest(
                b"a",
                revision=3,
                min_mod_revision=1,
                max_mod_revision=2,
                min_create_revision=4,
                max_create_revision=5,
            ),
        ),
    ],
)
def test_a_range(body: bytes, request_: RangeRequest) -> None:
    assert range_request(body) == request_


def test_a_delete_and_a_compaction() -> None:
    assert delete_range_request(b'{"key":"YQ==","range_end":"AA==","prev_kv":true}') == DeleteRangeRequest(
        b"a", b"\0", True
    )
    assert compaction_request(b'{"revision":"18","physical":true}') == CompactionRequest(18, True)


def test_a_transaction() -> None:
    body = to_json(
        {
            "compare": [
                {"key": "dA=="},
                {"key": "dA==", "result": "NOT_EQUAL", "target": "VALUE", "value": "djE="},
                {"key": "dA==", "rangeEnd": "dQ==", "result": 1, "target": 2, "mod_revision": "3"},
                {"key": "dA==", "target": "CREATE", "createRevision": 4, "version": 9},
                {"key": "dA==", "target": "LEASE", "lease": "5", "result": "LESS"},
                {"key": "dA==", "target": "VALUE"},
            ],
            "success": [
                {"request_put": {"key": "YQ=="}},
                {"requestRange": {"key": "YQ=="}, "other": 1, "request_put": None},
                {"request_delete_range": {"key": "YQ=="}},
                {"requestTxn": {"failure": [{"requestPut": {"key": "Yg=="}}]}},
            ],
        }
    )

    assert txn_request(body) == TxnRequest(
        (
            Compare(b"t"),
            Compare(b"t", result=CompareResult.NOT_EQUAL, target=CompareTarget.VALUE, operand=b"v1"),
            Compare(b"t", b"u", CompareResult.GREATER, CompareTarget.MOD, 3),
            Compare(b"t", target=CompareTarget.CREATE, operand=4),
            Compare(b"t", result=CompareResult.LESS, target=CompareTarget.LEASE, operand=5),
            Compare(b"t", target=CompareTarget.VALUE, operand=b""),
        ),
        (
            PutRequest(b"a"),
            RangeRequest(b"a"),
            DeleteRangeRequest(b"a"),
            TxnRequest((), (), (PutRequest(b"b"),)),
        ),
    )


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ({}, KeyNotFound),
        (None, KeyNotFound),
        ({"request_put": None}, KeyNotFound),
        ({"other": {}}, KeyNotFound),
        ({"request_put": {"key": "YQ=="}, "requestRange": {"key": "YQ=="}}, KvInvalid),
        ([], KvInvalid),
        ("request_put", KvInvalid),
        ({"request_put": []}, KvInvalid),
        ({"request_txn": {"success": {}}}, KvInvalid),
    ],
)
def test_an_operation_holds_one_request(operation: object, error: type[KvError]) -> None:
    for branch in ("success", "failure"):
        with pytest.raises(error):
            txn_request(to_json({branch: [operation]}))


@pytest.mark.parametrize("name", ["compare", "success", "failure"])
def test_a_transaction_has_as_many_operations_as_it_may(name: str) -> None:
    item = {"key": "YQ=="} if name == "compare" else {"request_range": {"key": "YQ=="}}

    txn_request(to_json({name: [item] * 128}))
    with pytest.raises(TooManyOperations):
        txn_request(to_json({name: [item] * 129}))


def test_nested_transactions_share_the_bound() -> None:
    inner = {"success": [{"request_range": {"key": "YQ=="}}] * 100}

    with pytest.raises(TooManyOperations):
        txn_request(to_json({"success": [{"request_txn": inner}] * 29}))


@pytest.mark.parametrize("depth", [1, 10, 60, 70, 1000, 100_000])
def test_however_deep_a_transaction_nests_it_is_read_or_refused(depth: int) -> None:
    body = b'{"success":[{"request_txn":' * depth + b"{}" + b"}]}" * depth

    try:
        assert isinstance(txn_request(body), TxnRequest)
    except KvInvalid:
        assert depth > 60


def test_a_request_may_be_so_large_and_no_larger() -> None:
    fits = {"key": "YWJj", "value": "AAAA" * ((REQUEST_BYTES_MAX - 3) // 3)}
    above = {"key": "YWJj", "value": "AAAA" * (REQUEST_BYTES_MAX // 3)}
    assert len(to_json(above)) <= BODY_BYTES_MAX

    assert len(put_request(to_json(fits)).value) == REQUEST_BYTES_MAX - 3
    for request in (
        lambda: put_request(to_json(above)),
        lambda: delete_range_request(to_json({"key": above["value"], "range_end": "YWJj"})),
        lambda: txn_request(to_json({"success": [{"request_put": above}]})),
        lambda: txn_request(to_json({"compare": [{**above, "target": "VALUE"}]})),
    ):
        with pytest.raises(KvRequestTooLarge):
            request()


@pytest.mark.parametrize(
    ("members", "request_"),
    [
        ({"key": "dy8=", "range_end": "dzA="}, WatchRequest(b"w/", b"w0")),
        ({"key": "dy8=", "startRevision": "19", "prev_kv": True}, WatchRequest(b"w/", b"", 19, prev_kv=True)),
        (
            {"key": "dw==", "filters": ["NOPUT"], "watch_id": "7", "fragment": True},
            WatchRequest(b"w", no_put=True, watch_id=7),
        ),
        (
            {"key": "dw==", "filters": [1], "progress_notify": True},
            WatchRequest(b"w", progress_notify=True, no_delete=True),
        ),
        ({"range_end": "AA=="}, WatchRequest(UNBOUNDED, UNBOUNDED)),
    ],
)
def test_a_watch(members: dict[str, object], request_: WatchRequest) -> None:
    for name in ("create_request", "createRequest"):
        assert stream_requests(to_json({name: members})) == [request_]


def test_a_stream_has_requests_of_all_kinds_in_their_order() -> None:
    body = b'{"create_request":{"key":"YQ=="}}\n{"progress_request":{}} {"cancelRequest":{"watch_id":"3"}}'

    assert stream_requests(body) == [WatchRequest(b"a"), WatchProgress(), WatchCancel(3)]


@pytest.mark.parametrize(
    "body",
    [
        b'{"create_request":{"key":1}}',
        b'{"create_request":5}',
        b'{"create_request":{"filters":1}}',
        b'{"cancel_request":{"watch_id":1.5}}',
    ],
)
def test_a_wrong_type_is_a_fault_of_the_stream(body: bytes) -> None:
    with pytest.raises(WrongTypeInStream, match=r"^json: cannot unmarshal ") as refused:
        stream_requests(body)

    assert refused.value.status == 500


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"create_request":null}',
        b'{"create_request":{"key":"!"}}',
        b'{"create_request":{"filters":["NOTHING"]}}',
        b'{"create_request":{"filters":' + b"[0" + b",0" * 100 + b"]}}",
        b'{"create_request":{}}' * (WATCHES_MAX + 1),
        b"{bad",
    ],
)
def test_what_else_is_wrong_in_a_stream_is_a_fault_of_the_client(body: bytes) -> None:
    with pytest.raises(KvError) as refused:
        stream_requests(body)

    assert refused.value.status == 400


@pytest.mark.parametrize("read", READERS)
@given(body=st.binary(max_size=80) | MEMBERS.map(to_json))
def test_whatever_comes_is_read_or_refused(read: Callable[[bytes], Any], body: bytes) -> None:
    try:
        read(body)
    except KvError as error:
        assert error.status == 400 or isinstance(error, WrongTypeInStream)
