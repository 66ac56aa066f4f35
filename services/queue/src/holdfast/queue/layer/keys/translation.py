"""Requests in the spelling that is stored, and their results in the spelling of who asked."""

from holdfast.queue.layer.keys import names
from holdfast.queue.layer.keys.names import LONG, Spelling
from holdfast.state.layer.kv.operation import (
    Compare,
    DeleteRangeRequest,
    DeleteRangeResult,
    Event,
    KeyValue,
    Operation,
    PutRequest,
    PutResult,
    RangeRequest,
    RangeResult,
    Result,
    TxnRequest,
    TxnResult,
)


def has_queue_keys(request: TxnRequest) -> bool:
    """Whether a transaction names a key or the end of a range that may belong to a queue."""
    return any(
        names.is_queue_key(compare.key) or names.is_queue_key(compare.range_end)
        for compare in request.compare
    ) or any(_names_queue_key(operation) for operation in (*request.success, *request.failure))


def _names_queue_key(operation: Operation) -> bool:
    if isinstance(operation, TxnRequest):
        return has_queue_keys(operation)
    if isinstance(operation, PutRequest):
        return names.is_queue_key(operation.key)
    return names.is_queue_key(operation.key) or names.is_queue_key(operation.range_end)


def stored_put(request: PutRequest) -> PutRequest:
    return request._replace(key=names.stored_key(request.key))


def stored_range(request: RangeRequest) -> RangeRequest:
    key, range_end = names.stored_range(request.key, request.range_end)
    return request._replace(key=key, range_end=range_end)


def stored_delete(request: DeleteRangeRequest) -> DeleteRangeRequest:
    key, range_end = names.stored_range(request.key, request.range_end)
    return request._replace(key=key, range_end=range_end)


def stored_txn(request: TxnRequest) -> TxnRequest:
    return TxnRequest(
        tuple([_stored_compare(compare) for compare in request.compare]),
        tuple([_stored(operation) for operation in request.success]),
        tuple([_stored(operation) for operation in request.failure]),
    )


def _stored_compare(compare: Compare) -> Compare:
    key, range_end = names.stored_range(compare.key, compare.range_end)
    return compare._replace(key=key, range_end=range_end)


def _stored(operation: Operation) -> Operation:
    if isinstance(operation, PutRequest):
        return stored_put(operation)
    if isinstance(operation, RangeRequest):
        return stored_range(operation)
    if isinstance(operation, DeleteRangeRequest):
        return stored_delete(operation)
    return stored_txn(operation)


def told_put(result: PutResult, request: PutRequest) -> PutResult:
    previous = result.previous
    return result if previous is None else result._replace(previous=previous._replace(key=request.key))


def told_range(result: RangeResult, request: RangeRequest) -> RangeResult:
    return result._replace(kvs=_told(result.kvs, request.key, request.range_end))


def told_delete(result: DeleteRangeResult, request: DeleteRangeRequest) -> DeleteRangeResult:
    return result._replace(previous=_told(result.previous, request.key, request.range_end))


def told_txn(result: TxnResult, request: TxnRequest) -> TxnResult:
    branch = request.success if result.succeeded else request.failure
    told = [_told_result(one, operation) for one, operation in zip(result.results, branch, strict=True)]
    return result._replace(results=told)


def _told_result(result: Result, operation: Operation) -> Result:
    if isinstance(operation, PutRequest):
        assert isinstance(result, PutResult)
        return told_put(result, operation)
    if isinstance(operation, RangeRequest):
        assert isinstance(result, RangeResult)
        return told_range(result, operation)
    if isinstance(operation, DeleteRangeRequest):
        assert isinstance(result, DeleteRangeResult)
        return told_delete(result, operation)
    assert isinstance(result, TxnResult)
    return told_txn(result, operation)


def _told(kvs: list[KeyValue], key: bytes, range_end: bytes) -> list[KeyValue]:
    if not range_end:
        return [kv._replace(key=key) for kv in kvs]
    spelling = names.spelling_of(key)
    return kvs if spelling == LONG else [told_kv(kv, spelling) for kv in kvs]


def told_kv(kv: KeyValue, spelling: Spelling) -> KeyValue:
    return kv._replace(key=names.spelled(kv.key, spelling))


def told_event(event: Event, spelling: Spelling) -> Event:
    previous = event.previous
    return Event(told_kv(event.kv, spelling), None if previous is None else told_kv(previous, spelling))


def told_as(event: Event, key: bytes) -> Event:
    """An event of a single key, as it was asked for."""
    previous = event.previous
    return Event(event.kv._replace(key=key), None if previous is None else previous._replace(key=key))
