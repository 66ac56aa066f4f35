"""A range of many keys, or far back in the past, read page by page while everybody else goes on.

What pages show is of several moments. The log says what changed since the first one: where a key changed, what was there before the
first of its changes is what it was. Nothing here needs two reads of one moment, so writers never hold it up: a compaction is
noted before it removes anything, so what was read before the note was looked at is whole.
"""

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Final

from holdfast.state.layer.kv import rules
from holdfast.state.layer.kv.errors import RevisionCompacted, RevisionInFuture
from holdfast.state.layer.kv.operation import KeyValue, RangeRequest, RangeResult
from holdfast.state.layer.kv.records import (
    HISTORY_PAGE,
    bounds_of,
    content_in,
    content_keys,
    event_of,
    key_of,
    key_value,
    log_bounds,
    note_earlier,
    plain_key,
    read_progress,
    record_of,
)
from holdfast.storage.keys import next_key
from holdfast.storage.port import Record, Store

PAGE: Final = 1000
ATTEMPTS_MAX: Final = 3
"""A compaction may overtake the read."""

Stored = tuple[bytes, bytes]
"""A key and its record, as it is stored."""


async def read_large(store: Store, request: RangeRequest) -> RangeResult:
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await _read(store, request)
        except _Overtaken:
            continue
    return await _read(store, request)


class _Overtaken(RevisionCompacted):
    """The revision could be read when the read began."""


async def _read(store: Store, request: RangeRequest) -> RangeResult:
    progress = await store.view(read_progress)
    revision = request.revision if request.revision > 0 else progress.revision
    if revision > progress.revision:
        raise RevisionInFuture
    if revision < progress.compacted:
        raise RevisionCompacted
    found = await _found(store, request)
    earlier = await _changed_since(store, request, revision)
    if earlier:
        found.update(earlier)
        found = {key: found[key] for key in sorted(found) if found[key]}
    total = len(found)
    if request.count_only:
        return RangeResult(progress.revision, [], False, total)
    if rules.is_filtered(request):
        found = {key: raw for key, raw in found.items() if rules.passes(record_of(raw), request)}
    if not rules.is_in_key_order(request):
        kvs, is_cut = rules.ordered(await _key_values(store, request, found.items(), revision), request)
        return RangeResult(progress.revision, kvs, is_cut, total)
    shown = islice(found.items(), request.limit) if request.limit > 0 else found.items()
    kvs = await _key_values(store, request, shown, revision)
    return RangeResult(progress.revision, kvs, len(kvs) < len(found), total)


async def _found(store: Store, request: RangeRequest) -> dict[bytes, bytes]:
    """The stored record of each key, in the order of the keys."""
    found: dict[bytes, bytes] = {}
    if request.range_end:
        start, end = bounds_of(request.key, request.range_end)
    else:
        start = key_of(request.key)
        end = next_key(start)
    while end is None or start < end:
        page = await store.range(start, end, limit=PAGE)
        found.update([(plain_key(record.key), record.value) for record in page])
        if len(page) < PAGE:
            break
        start = next_key(page[-1].key)
        await asyncio.sleep(0)
    return found


async def _changed_since(store: Store, request: RangeRequest, revision: int) -> dict[bytes, bytes]:
    """The record that each key had then which was changed since; empty: it was not there."""
    start, end = log_bounds(revision + 1)
    earlier: dict[bytes, bytes] = {}
    while True:
        records = await store.range(start, end, limit=HISTORY_PAGE)
        changes = (event_of(record.value) for record in records)
        note_earlier(earlier, changes, request.key, request.range_end)
        if len(records) < HISTORY_PAGE:
            break
        start = next_key(records[-1].key)
        await asyncio.sleep(0)
    await _check_kept(store, revision)
    return earlier


async def _check_kept(store: Store, revision: int) -> None:
    """What was read until now was there."""
    if (await store.view(read_progress)).compacted > revision:
        raise _Overtaken


async def _key_values(
    store: Store, request: RangeRequest, found: Iterable[Stored], revision: int
) -> list[KeyValue]:
    kvs: list[KeyValue] = []
    rest = iter(found)
    has_values = not request.keys_only or rules.is_by_value(request)
    while page := list(islice(rest, HISTORY_PAGE if has_values else PAGE)):
        records = [(key, record_of(raw)) for key, raw in page]
        contents: dict[bytes, Record] = {}
        if has_values:
            contents = await store.get_many([at for _, record in records for at in content_keys(record)])
            await _check_kept(store, revision)
        kvs += [
            key_value(key, record, content_in(contents, record) if has_values else b"")
            for key, record in records
        ]
        await asyncio.sleep(0)
    return kvs
