"""Transactions of the key space: compare, then run one of two branches, all as one revision."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.state.layer.kv import rules
from holdfast.state.layer.kv.errors import DuplicateKey, KeyMissing, TooManyOperations
from holdfast.state.layer.kv.operation import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRangeRequest,
    Operation,
    PutRequest,
    RangeRequest,
    Result,
    TxnRequest,
    TxnResult,
)
from holdfast.state.layer.kv.records import Entry, is_within
from holdfast.state.layer.kv.space import Space, SpaceChange

OPERATIONS_MAX: Final = 128
"""In the longest of the lists of a transaction, together with the longest ones of those within it."""

Deletes = list[tuple[bytes, bytes]]


def check_txn(request: TxnRequest, room: int = OPERATIONS_MAX) -> None:
    """Refuse what no state of the store could make right, in both branches."""
    _check_operations(request, room)
    _changed_keys(request.success)
    _changed_keys(request.failure)


def _check_operations(request: TxnRequest, room: int) -> None:
    longest = max(len(request.compare), len(request.success), len(request.failure))
    if longest > room:
        raise TooManyOperations
    for compare in request.compare:
        if not compare.key:
            raise KeyMissing
    for operation in (*request.success, *request.failure):
        if isinstance(operation, TxnRequest):
            _check_operations(operation, room - longest)
        elif isinstance(operation, PutRequest):
            rules.check_put(operation)
        elif not operation.key:
            raise KeyMissing


def _changed_keys(operations: Sequence[Operation]) -> tuple[set[bytes], Deletes]:
    """The keys that a branch puts, and the ranges that it deletes: none of the keys may be changed twice.

    The branches of a transaction within it exclude each other, so both may put a key.
    """
    deletes: Deletes = [(one.key, one.range_end) for one in operations if isinstance(one, DeleteRangeRequest)]
    puts: set[bytes] = set()
    for operation in operations:
        if not isinstance(operation, TxnRequest):
            continue
        success, success_deletes = _changed_keys(operation.success)
        failure, failure_deletes = _changed_keys(operation.failure)
        for key in success | failure:
            _add(puts, deletes, key)
        deletes += success_deletes
        deletes += failure_deletes
    for operation in operations:
        if isinstance(operation, PutRequest):
            _add(puts, deletes, operation.key)
    return puts, deletes


def _add(puts: set[bytes], deletes: Deletes, key: bytes) -> None:
    if key in puts or any(is_within(key, start, end) for start, end in deletes):
        raise DuplicateKey
    puts.add(key)


class Branch(NamedTuple):
    """The branch of a transaction that runs, and those of the transactions within it, in their order."""

    succeeded: bool
    operations: tuple[Operation, ...]
    within: "list[Branch]"


def chosen(space: Space, request: TxnRequest) -> Branch:
    """As in etcd, all comparisons are made before the first operation, also those of transactions within this one."""
    succeeded = all(holds(space, compare) for compare in request.compare)
    operations = request.success if succeeded else request.failure
    within = [chosen(space, one) for one in operations if isinstance(one, TxnRequest)]
    return Branch(succeeded, operations, within)


def run(change: SpaceChange, request: TxnRequest) -> TxnResult:
    return _run_branch(change, chosen(change, request))


def _run_branch(change: SpaceChange, branch: Branch) -> TxnResult:
    within = iter(branch.within)
    results: list[Result] = []
    for operation in branch.operations:
        if isinstance(operation, TxnRequest):
            results.append(_run_branch(change, next(within)))
        elif isinstance(operation, PutRequest):
            results.append(rules.put(change, operation))
        elif isinstance(operation, RangeRequest):
            results.append(rules.range_of(change, operation))
        else:
            results.append(rules.delete_range(change, operation))
    return TxnResult(change.revision, branch.succeeded, results)


def read(space: Space, request: TxnRequest) -> TxnResult:
    """The same of a transaction that writes in neither branch."""
    succeeded = all(holds(space, compare) for compare in request.compare)
    results: list[Result] = []
    for operation in request.success if succeeded else request.failure:
        if isinstance(operation, TxnRequest):
            results.append(read(space, operation))
        else:
            assert isinstance(operation, RangeRequest)
            results.append(rules.range_of(space, operation))
    return TxnResult(space.revision, succeeded, results)


def writes(request: TxnRequest) -> bool:
    """Whether any of its branches could write."""
    return any(
        writes(one) if isinstance(one, TxnRequest) else not isinstance(one, RangeRequest)
        for one in (*request.success, *request.failure)
    )


def single_keys(request: TxnRequest) -> list[bytes]:
    """The keys that are named one by one, in its compares and in both branches."""
    found = [compare.key for compare in request.compare if not compare.range_end]
    for one in (*request.success, *request.failure):
        if isinstance(one, TxnRequest):
            found += single_keys(one)
        elif isinstance(one, PutRequest) or not one.range_end:
            found.append(one.key)
    return found


def holds(space: Space, compare: Compare) -> bool:
    """Whether it is true of the key, or of every key of the range; of none as of a key that is not there."""
    found: Sequence[Entry | None] = space.find(compare.key, compare.range_end) or [None]
    return all(_holds(space, entry, compare) for entry in found)


def _holds(space: Space, entry: Entry | None, compare: Compare) -> bool:
    operand = compare.operand
    if isinstance(operand, bytes):
        return entry is not None and _is(compare.result, space.value(entry), operand)
    return _is(compare.result, 0 if entry is None else _number(entry, compare.target), operand)


def _number(entry: Entry, target: CompareTarget) -> int:
    record = entry.record
    if target is CompareTarget.VERSION:
        return record.version
    if target is CompareTarget.CREATE:
        return record.create_revision
    if target is CompareTarget.MOD:
        return record.mod_revision
    return record.lease


def _is(result: CompareResult, found: int | bytes, operand: int | bytes) -> bool:
    if result is CompareResult.EQUAL:
        return found == operand
    if result is CompareResult.NOT_EQUAL:
        return found != operand
    if result is CompareResult.GREATER:
        return found > operand  # type: ignore[operator]  # both are numbers, or both bytes
    return found < operand  # type: ignore[operator]  # as above
