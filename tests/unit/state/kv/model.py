"""etcd's key space in the simplest way there is: each revision is a copy of all keys, and everything is looked for in a loop.

Nothing is shared with the layer but the values of requests and results, and the names of errors.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.state.layer.kv.errors import (
    KeyNotFound,
    KvLeaseExists,
    KvLeaseNotFound,
    LeaseTtlTooLarge,
    RevisionCompacted,
    RevisionInFuture,
)
from holdfast.state.layer.kv.operation import (
    Compare,
    CompareResult,
    CompareTarget,
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
    SortOrder,
    SortTarget,
    TxnRequest,
    TxnResult,
    WatchRequest,
)
from tests.unit.state.kv.refusal import Problem, is_within, problems_of

TTL_S_MAX: Final = 9_000_000_000
NESTED: Final = 0
"""The revision in the results of a transaction within another one, where nothing is told."""

Keys = dict[bytes, KeyValue]


class Refused(Exception):
    """The request is refused for one of these reasons. Which one is told first is nobody's business."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(problems)
        self.problems = problems


@dataclass
class Lease:
    granted_ttl_s: int
    end_s: float


class KvModel:
    """`keys[r]` is what there was at revision r, `events[r]` what it changed, in the order of the changes."""

    def __init__(self) -> None:
        self.keys: list[Keys] = [{}, {}]
        self.events: list[list[Event]] = [[], []]
        self.compacted = 0
        self.leases: dict[int, Lease] = {}

    @property
    def revision(self) -> int:
        return len(self.keys) - 1

    # -- requests: the result, or Refused

    def put(self, request: PutRequest) -> PutResult:
        (result,) = self._run(TxnRequest(success=(request,))).results
        assert isinstance(result, PutResult)
        return result

    def range(self, request: RangeRequest) -> RangeResult:
        (result,) = self._run(TxnRequest(success=(request,))).results
        assert isinstance(result, RangeResult)
        return result

    def delete_range(self, request: DeleteRangeRequest) -> DeleteRangeResult:
        (result,) = self._run(TxnRequest(success=(request,))).results
        assert isinstance(result, DeleteRangeResult)
        return result

    def txn(self, request: TxnRequest) -> TxnResult:
        return self._run(request)

    def compact(self, revision: int) -> int:
        if revision <= self.compacted:
            raise Refused(RevisionCompacted)
        if revision > self.revision:
            raise Refused(RevisionInFuture)
        self.compacted = revision
        return self.revision

    def watched(self, request: WatchRequest, start: int) -> list[Event]:
        """All that a watch from this revision on has been told by now."""
        return [
            event if request.prev_kv else event._replace(previous=None)
            for events in self.events[start:]
            for event in events
            if is_within(event.kv.key, request.key, request.range_end)
            and not (request.no_delete if event.is_delete else request.no_put)
        ]

    # -- leases; time is the caller's

    def grant(self, ttl_s: int, lease_id: int, now_s: float) -> int:
        if ttl_s > TTL_S_MAX:
            raise Refused(LeaseTtlTooLarge)
        if lease_id in self.leases:
            raise Refused(KvLeaseExists)
        granted_s = max(ttl_s, 1)
        self.leases[lease_id] = Lease(granted_s, now_s + granted_s)
        return granted_s

    def keep_alive(self, lease_id: int, now_s: float) -> int:
        lease = self.leases.get(lease_id)
        if lease is None:
            return 0
        lease.end_s = now_s + lease.granted_ttl_s
        return lease.granted_ttl_s

    def revoke(self, lease_id: int) -> int:
        if lease_id not in self.leases:
            raise Refused(KvLeaseNotFound)
        self.end_leases([lease_id])
        return self.revision

    def end_leases(self, lease_ids: Sequence[int]) -> None:
        """In one revision, or in none if they have no keys."""
        step = Step(self)
        for lease_id in lease_ids:
            del self.leases[lease_id]
            for key in self.keys_of(lease_id):
                step.delete(key)
        self._commit(step)

    def keys_of(self, lease_id: int) -> list[bytes]:
        return sorted(key for key, kv in self.keys[-1].items() if kv.lease == lease_id)

    # -- inside

    def _run(self, request: TxnRequest) -> TxnResult:
        problems = [*problems_of(request)]
        if problems:
            raise Refused(*problems)
        path = _path(request, self.keys[-1])
        problems = [*self._problems_now(path)]
        if problems:
            raise Refused(*problems)
        step = Step(self)
        result = step.run(path)
        self._commit(step)
        return result._replace(revision=self.revision)

    def _problems_now(self, path: "Path") -> Iterator[Problem]:
        """Of the operations that would run, judged by what there is before the first of them."""
        for operation in path.operations:
            if isinstance(operation, Path):
                yield from self._problems_now(operation)
            elif isinstance(operation, PutRequest):
                if operation.lease and operation.lease not in self.leases:
                    yield KvLeaseNotFound
                if (operation.ignore_value or operation.ignore_lease) and operation.key not in self.keys[-1]:
                    yield KeyNotFound
            elif isinstance(operation, RangeRequest):
                if operation.revision > self.revision:
                    yield RevisionInFuture
                if 0 < operation.revision < self.compacted:
                    yield RevisionCompacted

    def _commit(self, step: "Step") -> None:
        if step.events:
            self.keys.append(step.keys)
            self.events.append(step.events)


# -- a transaction


@dataclass
class Path:
    """What runs of a transaction: which branch was decided before its first operation."""

    succeeded: bool
    operations: "list[PutRequest | RangeRequest | DeleteRangeRequest | Path]"


def _path(request: TxnRequest, keys: Keys) -> Path:
    succeeded = all(_holds(compare, keys) for compare in request.compare)
    branch = request.success if succeeded else request.failure
    return Path(succeeded, [_path(one, keys) if isinstance(one, TxnRequest) else one for one in branch])


class Step:
    """Operations one after the other on a copy of all keys; what they change is one revision."""

    def __init__(self, model: KvModel) -> None:
        self._model = model
        self.keys = dict(model.keys[-1])
        self.events: list[Event] = []

    @property
    def revision(self) -> int:
        return self._model.revision + bool(self.events)

    def run(self, path: Path) -> TxnResult:
        return TxnResult(NESTED, path.succeeded, [self._result(one) for one in path.operations])

    def _result(self, operation: Operation | Path) -> Result:
        if isinstance(operation, Path):
            return self.run(operation)
        if isinstance(operation, PutRequest):
            return self._put(operation)
        if isinstance(operation, RangeRequest):
            return self._range(operation)
        assert isinstance(operation, DeleteRangeRequest)
        keys = sorted(key for key in self.keys if is_within(key, operation.key, operation.range_end))
        previous = [self.delete(key) for key in keys]
        return DeleteRangeResult(self.revision, len(previous), previous if operation.prev_kv else [])

    def delete(self, key: bytes) -> KeyValue:
        previous = self.keys.pop(key)
        gone = KeyValue(key, b"", 0, self._model.revision + 1, 0)
        self.events.append(Event(gone, previous))
        return previous

    def _put(self, request: PutRequest) -> PutResult:
        now = self._model.revision + 1
        previous = self.keys.get(request.key)
        kv = KeyValue(request.key, request.value, now, now, 1, request.lease)
        if previous is not None:
            kv = kv._replace(create_revision=previous.create_revision, version=previous.version + 1)
            if request.ignore_value:
                kv = kv._replace(value=previous.value)
            if request.ignore_lease:
                kv = kv._replace(lease=previous.lease)
        self.keys[request.key] = kv
        self.events.append(Event(kv, previous))
        return PutResult(self.revision, previous if request.prev_kv else None)

    def _range(self, request: RangeRequest) -> RangeResult:
        keys = self._model.keys[request.revision] if request.revision > 0 else self.keys
        within = sorted(kv for key, kv in keys.items() if is_within(key, request.key, request.range_end))
        if request.count_only:
            return RangeResult(self.revision, [], False, len(within))
        found = [kv for kv in within if _is_wanted(kv, request)]
        if request.sort_target != SortTarget.KEY or request.sort_order != SortOrder.NONE:
            found.sort(key=SORTED_BY[request.sort_target], reverse=request.sort_order == SortOrder.DESCEND)
        told = found[: request.limit] if request.limit > 0 else found
        if request.keys_only:
            told = [kv._replace(value=b"") for kv in told]
        return RangeResult(self.revision, told, len(told) < len(found), len(within))


SORTED_BY: Final[dict[SortTarget, Callable[[KeyValue], int | bytes]]] = {
    SortTarget.KEY: lambda kv: kv.key,
    SortTarget.VERSION: lambda kv: kv.version,
    SortTarget.CREATE: lambda kv: kv.create_revision,
    SortTarget.MOD: lambda kv: kv.mod_revision,
    SortTarget.VALUE: lambda kv: kv.value,
}


def _is_wanted(kv: KeyValue, request: RangeRequest) -> bool:
    bounds = (
        (kv.mod_revision, request.min_mod_revision, request.max_mod_revision),
        (kv.create_revision, request.min_create_revision, request.max_create_revision),
    )
    return all(value >= low and (not high or value <= high) for value, low, high in bounds)


def _holds(compare: Compare, keys: Keys) -> bool:
    """Of a range for every key that is in it. What is not there, a key or all of a range, has zeros and no value at all."""
    found = [kv for key, kv in keys.items() if is_within(key, compare.key, compare.range_end)]
    if not found:
        if compare.target == CompareTarget.VALUE:
            return False
        found = [KeyValue(compare.key, b"", 0, 0, 0)]
    return all(_is(_compared(kv, compare.target), compare.result, compare.operand) for kv in found)


def _compared(kv: KeyValue, target: CompareTarget) -> int | bytes:
    if target == CompareTarget.VALUE:
        return kv.value
    values = {
        CompareTarget.VERSION: kv.version,
        CompareTarget.CREATE: kv.create_revision,
        CompareTarget.MOD: kv.mod_revision,
        CompareTarget.LEASE: kv.lease,
    }
    return values[target]


def _is(value: int | bytes, result: CompareResult, operand: int | bytes) -> bool:
    order = (value > operand) - (value < operand)  # type: ignore[operator]
    expected = {CompareResult.EQUAL: (0,), CompareResult.GREATER: (1,), CompareResult.LESS: (-1,)}
    return order in expected.get(result, (-1, 1))
