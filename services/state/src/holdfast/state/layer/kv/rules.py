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
from holdfast.state.layer.records_pb2 import KvRecord
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


def put(change: SpaceChange, request: PutRequest, *, is_new: bool = False) -> PutResult:
    """`is_new`: the key cannot be there."""
    key, value, lease = request.key, request.value, request.lease
    before = None if is_new else change.get(key)
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
    if is_filtered(request):
        found = [entry for entry in found if passes(entry.record, request)]
    if is_in_key_order(request):
        cut = found[: request.limit] if request.limit > 0 else found
        kvs = [_shown(space, entry, request.keys_only) for entry in cut]
        return RangeResult(space.revision, kvs, len(cut) < len(found), count)
    kvs = [_shown(space, entry, request.keys_only and not is_by_value(request)) for entry in found]
    kvs, is_cut = ordered(kvs, request)
    return RangeResult(space.revision, kvs, is_cut, count)


def is_filtered(request: RangeRequest) -> bool:
    return bool(
        request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    )


def passes(record: KvRecord, request: RangeRequest) -> bool:
    return (
        (not request.min_mod_revision or record.mod_revision >= request.min_mod_revision)
        and (not request.max_mod_revision or record.mod_revision <= request.max_mod_revision)
        and (not request.min_create_revision or record.create_revision >= request.min_create_revision)
        and (not request.max_create_revision or record.create_revision <= request.max_create_revision)
    )


def is_in_key_order(request: RangeRequest) -> bool:
    """Whether the order of the keys is the one that is asked for."""
    return request.sort_target is SortTarget.KEY and request.sort_order is not SortOrder.DESCEND


def is_by_value(request: RangeRequest) -> bool:
    return request.sort_target is SortTarget.VALUE


def ordered(kvs: list[KeyValue], request: RangeRequest) -> tuple[list[KeyValue], bool]:
    """In the order that is asked for and cut to the limit; whether any were cut off."""
    kvs = sorted(kvs, key=_SORTED_BY[request.sort_target], reverse=request.sort_order is SortOrder.DESCEND)
    cut = kvs[: request.limit] if request.limit > 0 else kvs
    if request.keys_only:
        cut = [kv._replace(value=b"") for kv in cut]
    return cut, len(cut) < len(kvs)


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
    if revision < 0 or (revision <= progress.compacted and progress.compacted):
        raise RevisionCompacted
    if revision > progress.compacted:
        progress.compacted = revision
        tx.put(PROGRESS, progress.SerializeToString())
    return progress.revision
