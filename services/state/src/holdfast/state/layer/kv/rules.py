"""What put, range, delete and compact do, as plain functions over the key space."""

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from holdfast.state.layer.kv.errors import (
    KeyMissing,
    KeyNotFound,
    LeaseGiven,
    RevisionCompacted,
    RevisionInFuture,
    ValueGiven,
)
from holdfast.state.layer.kv.operation import (
    DeleteRangeRequest,
    DeleteRangeResult,
    KeyValue,
    PutRequest,
    PutResult,
    RangeRequest,
    RangeResult,
    SortOrder,
    SortTarget,
)
from holdfast.state.layer.kv.records import PROGRESS, Entry, read_progress
from holdfast.state.layer.kv.space import Space, SpaceChange
from holdfast.storage.port import Transaction

_SORTED_BY: Final[dict[SortTarget, Callable[[KeyValue], int | bytes]]] = {
    SortTarget.KEY: attrgetter("key"),
    SortTarget.VERSION: attrgetter("version"),
    SortTarget.CREATE: attrgetter("create_revision"),
    SortTarget.MOD: attrgetter("mod_revision"),
    SortTarget.VALUE: attrgetter("value"),
}


def check_put(request: PutRequest) -> None:
    if not request.key:
        raise KeyMissing
    if request.ignore_value and request.value:
        raise ValueGiven
    if request.ignore_lease and request.lease:
        raise LeaseGiven


def put(change: SpaceChange, request: PutRequest) -> PutResult:
    key, value, lease = request.key, request.value, request.lease
    before = change.get(key)
    if before is None and (request.ignore_value or request.ignore_lease):
        raise KeyNotFound
    # Read before it is written: what is written may lie where a large value lay.
    previous = change.key_value(before) if before is not None and request.prev_kv else None
    if before is not None:
        if request.ignore_value:
            value = change.value(before)
        if request.ignore_lease:
            lease = before.record.lease
    change.put(key, value, lease, before)
    return PutResult(change.revision, previous)


def delete_range(change: SpaceChange, request: DeleteRangeRequest) -> DeleteRangeResult:
    found = change.find(request.key, request.range_end)
    previous = [change.key_value(entry) for entry in found] if request.prev_kv else []
    for entry in found:
        change.delete(entry)
    return DeleteRangeResult(change.revision, len(found), previous)


def range_of(space: Space, request: RangeRequest) -> RangeResult:
    key, range_end, revision = request.key, request.range_end, request.revision
    found = space.find_at(key, range_end, revision) if revision > 0 else space.find(key, range_end)
    count = len(found)
    if request.count_only:
        return RangeResult(space.revision, [], False, count)
    found = [entry for entry in found if _passes(entry, request)]
    by_key = request.sort_target is SortTarget.KEY
    if by_key and request.sort_order is not SortOrder.DESCEND:
        cut = found[: request.limit] if request.limit > 0 else found
        kvs = [_shown(space, entry, request.keys_only) for entry in cut]
        return RangeResult(space.revision, kvs, len(cut) < len(found), count)
    return _sorted(space, request, found, count)


def _passes(entry: Entry, request: RangeRequest) -> bool:
    record = entry.record
    return (
        (not request.min_mod_revision or record.mod_revision >= request.min_mod_revision)
        and (not request.max_mod_revision or record.mod_revision <= request.max_mod_revision)
        and (not request.min_create_revision or record.create_revision >= request.min_create_revision)
        and (not request.max_create_revision or record.create_revision <= request.max_create_revision)
    )


def _sorted(space: Space, request: RangeRequest, found: list[Entry], count: int) -> RangeResult:
    by_value = request.sort_target is SortTarget.VALUE
    kvs = [_shown(space, entry, request.keys_only and not by_value) for entry in found]
    kvs.sort(key=_SORTED_BY[request.sort_target], reverse=request.sort_order is SortOrder.DESCEND)
    cut = kvs[: request.limit] if request.limit > 0 else kvs
    if request.keys_only:
        cut = [kv._replace(value=b"") for kv in cut]
    return RangeResult(space.revision, cut, len(cut) < len(kvs), count)


def _shown(space: Space, entry: Entry, keys_only: bool) -> KeyValue:
    if not keys_only:
        return space.key_value(entry)
    record = entry.record
    return KeyValue(entry.key, b"", record.create_revision, record.mod_revision, record.version, record.lease)


def compact(tx: Transaction, revision: int) -> int:
    """From now on nothing before this revision is read. Returns the revision of the key space."""
    progress = read_progress(tx)
    if revision > progress.revision:
        raise RevisionInFuture
    if revision < 0 or 0 < revision <= progress.compacted:
        raise RevisionCompacted
    if revision > progress.compacted:
        progress.compacted = revision
        tx.put(PROGRESS, progress.SerializeToString())
    return progress.revision
