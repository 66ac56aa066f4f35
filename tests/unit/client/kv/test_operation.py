"""Operations on keys, as they are written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client import Compare, DeleteOp, GetOp, InvalidArgument, PutOp, TxnOp
from holdfast.client.kv.operation import prefix_end
from tests.unit.client.kv.texts import b64


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        (b"a/", b"a0"),
        (b"a\xff", b"b"),
        (b"a\xff\xff", b"b"),
        (b"\xff\xff", b"\0"),
        (b"", b"\0"),
        (b"\0", b"\1"),
    ],
)
def test_a_prefix_ends_before_the_next_key_that_does_not_begin_so(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end


@given(st.binary(min_size=1, max_size=4), st.binary(max_size=5))
def test_the_range_of_a_prefix_has_all_keys_that_begin_so_and_no_others(prefix: bytes, key: bytes) -> None:
    end = prefix_end(prefix)

    assert (key >= prefix and (end == b"\0" or key < end)) is key.startswith(prefix)


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        (PutOp("k"), {"key": b64("k")}),
        (PutOp("ключ", b"\xff"), {"key": b64("ключ"), "value": "/w=="}),
        (PutOp("\udcff", "v", lease=2**63 - 1), {"key": "/w==", "value": b64("v"), "lease": str(2**63 - 1)}),
        (
            PutOp("k", prev_kv=True, ignore_value=True, ignore_lease=True),
            {"key": b64("k"), "prev_kv": True, "ignore_value": True, "ignore_lease": True},
        ),
        (GetOp("k"), {"key": b64("k")}),
        (GetOp("a", "c", limit=2), {"key": b64("a"), "range_end": b64("c"), "limit": "2"}),
        (GetOp("a/", prefix=True), {"key": b64("a/"), "range_end": b64("a0")}),
        (GetOp("a", from_key=True), {"key": b64("a"), "range_end": "AA=="}),
        (GetOp("", prefix=True), {"key": "AA==", "range_end": "AA=="}),
        (
            GetOp("k", revision=2**53 + 1, order="DESCEND", sort_by="MOD", keys_only=True, count_only=True),
            {
                "key": b64("k"),
                "revision": "9007199254740993",
                "sort_order": "DESCEND",
                "sort_target": "MOD",
                "keys_only": True,
                "count_only": True,
            },
        ),
        (DeleteOp("k", prev_kv=True), {"key": b64("k"), "prev_kv": True}),
        (DeleteOp("a/", prefix=True), {"key": b64("a/"), "range_end": b64("a0")}),
    ],
)
def test_an_operation_is_written_without_what_has_its_default(
    operation: PutOp | GetOp | DeleteOp, members: dict[str, Any]
) -> None:
    assert operation.members() == members


@pytest.mark.parametrize(
    ("compare", "members"),
    [
        (Compare.version("k", "=", 0), {"target": "VERSION", "result": "EQUAL"}),
        (Compare.create("k", "!=", 5), {"target": "CREATE", "result": "NOT_EQUAL", "create_revision": "5"}),
        (Compare.mod("k", ">", 5), {"target": "MOD", "result": "GREATER", "mod_revision": "5"}),
        (Compare.value("k", "<", "v"), {"target": "VALUE", "result": "LESS", "value": b64("v")}),
        (Compare.lease("k", "=", 7), {"target": "LEASE", "result": "EQUAL", "lease": "7"}),
        (
            Compare.version("k", ">", 0, prefix=True),
            {"target": "VERSION", "result": "GREATER", "range_end": b64("l")},
        ),
    ],
)
def test_a_comparison_is_written_with_its_operand(compare: Compare, members: dict[str, Any]) -> None:
    assert compare.members() == {"key": b64("k"), **members}


def test_a_transaction_is_written_with_both_branches() -> None:
    inner = TxnOp(success=[GetOp("a")])

    members = TxnOp([Compare.version("a", "=", 0)], [PutOp("a", "1"), DeleteOp("b")], [inner]).members()

    assert members == {
        "compare": [{"key": b64("a"), "target": "VERSION", "result": "EQUAL"}],
        "success": [
            {"request_put": {"key": b64("a"), "value": b64("1")}},
            {"request_delete_range": {"key": b64("b")}},
        ],
        "failure": [{"request_txn": {"success": [{"request_range": {"key": b64("a")}}]}}],
    }


@pytest.mark.parametrize(
    "operation",
    [
        GetOp("a", "b", prefix=True),
        GetOp("a", prefix=True, from_key=True),
        DeleteOp("a", "b", from_key=True),
        PutOp("a", lease=2**63),
        GetOp("a", revision=-(2**63) - 1),
        Compare.mod("a", "~", 1),  # type: ignore[arg-type]  # what a caller without types may give
    ],
)
def test_what_makes_no_sense_is_not_sent(operation: PutOp | GetOp | DeleteOp | Compare) -> None:
    with pytest.raises(InvalidArgument):
        operation.members()
