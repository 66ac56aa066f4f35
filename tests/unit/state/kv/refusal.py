"""What is wrong with a request, whatever there is; a part of the model."""

from collections.abc import Iterator, Sequence

from holdfast.state.layer.kv.errors import DuplicateKey, KeyMissing, KvError, LeaseGiven, ValueGiven
from holdfast.state.layer.kv.operation import UNBOUNDED, DeleteRangeRequest, Operation, PutRequest, TxnRequest

Problem = type[KvError]
Bounds = tuple[bytes, bytes]


def is_within(key: bytes, start: bytes, end: bytes) -> bool:
    if not end:
        return key == start
    return key >= start and (end == UNBOUNDED or key < end)


def problems_of(operation: Operation) -> Iterator[Problem]:
    if isinstance(operation, TxnRequest):
        for compare in operation.compare:
            if not compare.key:
                yield KeyMissing
        for branch in (operation.success, operation.failure):
            for one in branch:
                yield from problems_of(one)
            puts, deletes = zip(*map(_changes, branch), strict=True) if branch else ((), ())
            if _collide(puts, deletes):
                yield DuplicateKey
        return
    if not operation.key:
        yield KeyMissing
    if isinstance(operation, PutRequest):
        if operation.ignore_value and operation.value:
            yield ValueGiven
        if operation.ignore_lease and operation.lease:
            yield LeaseGiven


def _changes(operation: Operation) -> tuple[set[bytes], set[Bounds]]:
    """The keys that it may put, in either branch, and the ranges that it may delete."""
    if isinstance(operation, PutRequest):
        return {operation.key}, set()
    if isinstance(operation, DeleteRangeRequest):
        return set(), {(operation.key, operation.range_end)}
    if isinstance(operation, TxnRequest):
        inner = [_changes(one) for one in (*operation.success, *operation.failure)]
        return {key for puts, _ in inner for key in puts}, {one for _, found in inner for one in found}
    return set(), set()


def _collide(puts: Sequence[set[bytes]], deletes: Sequence[set[Bounds]]) -> bool:
    """Whether two operations put one key, or one deletes what another one puts."""
    keys = [key for found in puts for key in found]
    ranges = [one for found in deletes for one in found]
    if len(keys) > len(set(keys)):
        return True
    return any(is_within(key, start, end) for key in keys for start, end in ranges)


def is_told_differently(operation: Operation) -> bool:
    """Whether a transaction within another one deletes what is put somewhere in the whole: there the answer of the original
    depends on the order of both, and the contract says nothing."""
    if not isinstance(operation, TxnRequest):
        return False
    for branch in (operation.success, operation.failure):
        nested = [one for one in branch if isinstance(one, TxnRequest)]
        puts, deletes = zip(*map(_changes, branch), strict=True) if branch else ((), ())
        if nested and any(
            is_within(key, start, end)
            for found in puts
            for key in found
            for ranges in deletes
            for start, end in ranges
        ):
            return True
        if any(is_told_differently(one) for one in nested):
            return True
    return False
