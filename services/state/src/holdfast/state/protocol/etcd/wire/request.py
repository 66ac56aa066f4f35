"""Requests to the key space, as they come in a body."""

from enum import IntEnum
from typing import Any, Final, NamedTuple

from holdfast.state.layer.kv.errors import KeyNotFound, KvInvalid, KvRequestTooLarge, TooManyOperations
from holdfast.state.layer.kv.operation import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRangeRequest,
    Operation,
    PutRequest,
    RangeRequest,
    SortOrder,
    SortTarget,
    TxnRequest,
)
from holdfast.state.protocol.etcd.wire.body import REQUEST_BYTES_MAX, object_of
from holdfast.state.protocol.etcd.wire.field import (
    Message,
    enum_reader,
    list_reader,
    read_bool,
    read_bytes,
    read_int64,
    read_object,
)

TXN_OPERATIONS_MAX: Final = 128
_NEVER_TOO_LARGE_BYTES: Final = REQUEST_BYTES_MAX // 3 * 4
"""What takes no more than this in base64 needs no counting."""


class CompactionRequest(NamedTuple):
    revision: int = 0
    physical: bool = False


def put_request(body: bytes) -> PutRequest:
    request = _PUT.of(object_of(body))
    if len(body) > _NEVER_TOO_LARGE_BYTES:
        _check_size(request)
    return request


def range_request(body: bytes) -> RangeRequest:
    return _RANGE.of(object_of(body))


def delete_range_request(body: bytes) -> DeleteRangeRequest:
    request = _DELETE_RANGE.of(object_of(body))
    if len(body) > _NEVER_TOO_LARGE_BYTES:
        _check_size(request)
    return request


def txn_request(body: bytes) -> TxnRequest:
    request = _txn_of(object_of(body), TXN_OPERATIONS_MAX)
    if len(body) > _NEVER_TOO_LARGE_BYTES:
        _check_size(request)
    return request


def compaction_request(body: bytes) -> CompactionRequest:
    return _COMPACTION.of(object_of(body))


_PUT: Final = Message(
    PutRequest,
    {
        "key": read_bytes,
        "value": read_bytes,
        "lease": read_int64,
        "prev_kv": read_bool,
        "ignore_value": read_bool,
        "ignore_lease": read_bool,
    },
)
_RANGE: Final = Message(
    RangeRequest,
    {
        "key": read_bytes,
        "range_end": read_bytes,
        "limit": read_int64,
        "revision": read_int64,
        "sort_order": enum_reader(SortOrder, "etcdserverpb.RangeRequest_SortOrder"),
        "sort_target": enum_reader(SortTarget, "etcdserverpb.RangeRequest_SortTarget"),
        "keys_only": read_bool,
        "count_only": read_bool,
        "min_mod_revision": read_int64,
        "max_mod_revision": read_int64,
        "min_create_revision": read_int64,
        "max_create_revision": read_int64,
    },
)
_DELETE_RANGE: Final = Message(
    DeleteRangeRequest, {"key": read_bytes, "range_end": read_bytes, "prev_kv": read_bool}
)
_COMPACTION: Final = Message(CompactionRequest, {"revision": read_int64, "physical": read_bool})


class _Comparison(NamedTuple):
    """A comparison with the operands of all targets, of which it uses one."""

    key: bytes = b""
    range_end: bytes = b""
    result: CompareResult = CompareResult.EQUAL
    target: CompareTarget = CompareTarget.VERSION
    version: int = 0
    create_revision: int = 0
    mod_revision: int = 0
    value: bytes = b""
    lease: int = 0


_COMPARISON: Final = Message(
    _Comparison,
    {
        "key": read_bytes,
        "range_end": read_bytes,
        "result": enum_reader(CompareResult, "etcdserverpb.Compare_CompareResult"),
        "target": enum_reader(CompareTarget, "etcdserverpb.Compare_CompareTarget"),
        "version": read_int64,
        "create_revision": read_int64,
        "mod_revision": read_int64,
        "value": read_bytes,
        "lease": read_int64,
    },
)


def _compare_of(members: Any) -> Compare:
    found = _COMPARISON.of(members)
    operands = found.version, found.create_revision, found.mod_revision, found.value, found.lease
    return Compare(found.key, found.range_end, found.result, found.target, operands[found.target])


class _Kind(IntEnum):
    RANGE = 0
    PUT = 1
    DELETE_RANGE = 2
    TXN = 3


_KINDS: Final = {
    "request_range": _Kind.RANGE,
    "requestRange": _Kind.RANGE,
    "request_put": _Kind.PUT,
    "requestPut": _Kind.PUT,
    "request_delete_range": _Kind.DELETE_RANGE,
    "requestDeleteRange": _Kind.DELETE_RANGE,
    "request_txn": _Kind.TXN,
    "requestTxn": _Kind.TXN,
}


class _Branches(NamedTuple):
    compare: tuple[Compare, ...] = ()
    success: tuple[dict[str, Any], ...] = ()
    failure: tuple[dict[str, Any], ...] = ()


def _unread(members: Any) -> Any:
    return members


# Both are bounded before anything of them is read: a body of two megabytes has room for many.
_compares: Final = list_reader(_compare_of, TXN_OPERATIONS_MAX, TooManyOperations)
_operations: Final = list_reader(_unread, TXN_OPERATIONS_MAX, TooManyOperations)
_BRANCHES: Final = Message(_Branches, {"compare": _compares, "success": _operations, "failure": _operations})


def _txn_of(members: Any, operations_max: int) -> TxnRequest:
    """A nested transaction may have as many operations as the one around it has left: that bounds the whole.

    The recursion is bounded too: the parser of JSON refuses what nests deeper than 200 levels.
    """
    branches = _BRANCHES.of(members)
    left = operations_max - max(map(len, branches))
    if left < 0:
        raise TooManyOperations
    return TxnRequest(
        branches.compare,
        tuple([_operation_of(operation, left) for operation in branches.success]),
        tuple([_operation_of(operation, left) for operation in branches.failure]),
    )


def _operation_of(members: Any, operations_max: int) -> Operation:
    found = [
        (kind, value)
        for name, value in read_object(members).items()
        if value is not None and (kind := _KINDS.get(name)) is not None
    ]
    if not found:
        raise KeyNotFound  # As etcd says it of an operation without a request.
    if len(found) > 1:
        raise KvInvalid("an operation of a txn request holds more than one request")
    kind, value = found[0]
    if kind is _Kind.TXN:
        return _txn_of(value, operations_max)
    if kind is _Kind.PUT:
        return _PUT.of(value)
    return _RANGE.of(value) if kind is _Kind.RANGE else _DELETE_RANGE.of(value)


def _check_size(request: Operation) -> None:
    if _size_bytes(request) > REQUEST_BYTES_MAX:
        raise KvRequestTooLarge


def _size_bytes(request: Operation) -> int:
    """Of keys and values alone."""
    if not isinstance(request, TxnRequest):
        return sum(len(field) for field in request if isinstance(field, bytes))
    compared = sum(len(field) for compare in request.compare for field in compare if isinstance(field, bytes))
    return compared + sum(map(_size_bytes, (*request.success, *request.failure)))
