"""What is committed but not durable yet: numbers given out, the latest state of each key, and what became of it.

Bookkeeping on the loop: of I/O there is only the engine's, which answers at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from holdfast.storage.errors import StorageError, StoreUnavailable
from holdfast.storage.fetched import RangeRead
from holdfast.storage.known_ranges import RangeCache
from holdfast.storage.local import layout
from holdfast.storage.local.engine import ClosedEngine, Engine, Prepared, Write
from holdfast.storage.local.layout import (
    BLOBS_AT,
    CHANGE,
    LENGTHS2_BYTES,
    NONE_BYTES,
    RECORD,
    STORED_FORMAT,
    RecordChange,
)
from holdfast.storage.port import EMPTY, Batch, Bounds, RangeExpectation, Record, record_of

RECENT_REVISIONS_MAX = 4096  # How far back a range expectation can be judged …
RECENT_CHANGES_MAX = 1 << 16  # … and how many changes may be kept for it: a batch may have thousands.
LOST_SPANS_MAX = 64
GENERATION_BYTES = 8 << 20
RANGES_BYTES = 4 << 20
ENTRY_BYTES = 400  # What an entry takes beside its value: two objects, the key, its place in the dict.
VALUE_BYTES_MAX = 16 << 10  # A larger one would push out many that are asked for more often.

_pack_head = layout.HEAD.pack
_pack_number = layout.REVISION.pack
_pack_entry = layout.ENTRY.pack
_pack_lengths = layout.LENGTHS3.pack


class Kept(NamedTuple):
    """A record, and the same as it is stored."""

    record: Record
    stored: bytes


# As `record_of`: for each key of each commit.
_kept: Callable[[tuple[Record, bytes]], Kept] = partial(tuple.__new__, Kept)


class Unknown:
    """The key was not touched lately; whether it exists is known to the engine."""


UNKNOWN = Unknown()


class LatestRecords:
    """The newest state of the keys that were touched lately, so that a hot key is not read from the engine again: what a
    transaction reads, durable or not; None for a key that does not exist.

    Two generations: what is used moves into the young one; when that is full it becomes the old one, and what
    was not used since then is forgotten. So a look-up costs a dictionary access, and no order has to be kept.
    """

    def __init__(self) -> None:
        self.young: dict[bytes, Kept | None] = {}
        self._old: dict[bytes, Kept | None] = {}
        self._young_bytes = 0

    def get(self, key: bytes) -> Kept | Unknown | None:
        kept = self.young.get(key, UNKNOWN)
        if kept is UNKNOWN:
            kept = self._old.get(key, UNKNOWN)
            if not isinstance(kept, Unknown):
                self.set(key, kept)
        return kept

    def set(self, key: bytes, kept: Kept | None) -> None:
        if kept is None:
            self._young_bytes += ENTRY_BYTES
        elif len(kept.stored) <= VALUE_BYTES_MAX:
            self._young_bytes += ENTRY_BYTES + 2 * len(kept.stored)
        else:
            self.young.pop(key, None)
            self._old.pop(key, None)
            return
        self.young[key] = kept
        if self._young_bytes > GENERATION_BYTES:
            self._old, self.young = self.young, {}
            self._young_bytes = 0

    def set_all(self, newest: Mapping[bytes, Kept | None], stored_bytes: int) -> None:
        """The same for the keys of a batch, which take so much together as they are stored."""
        if stored_bytes > VALUE_BYTES_MAX:
            for key, kept in newest.items():
                self.set(key, kept)
            return
        self.young.update(newest)
        self._young_bytes += ENTRY_BYTES * len(newest) + 2 * stored_bytes
        if self._young_bytes > GENERATION_BYTES:
            self._old, self.young = self.young, {}
            self._young_bytes = 0

    def forget(self, keys: Collection[bytes]) -> None:
        """What was remembered of these, such as that they do not exist, is no longer so."""
        for known in (self.young, self._old):
            if not known.keys().isdisjoint(keys):
                for key in keys:
                    known.pop(key, None)

    def clear(self) -> None:
        """Nothing that was remembered is certain any more."""
        self.young.clear()
        self._old.clear()
        self._young_bytes = 0


class PendingBatch:
    """A batch on its way, as the journal and the engine get it. `answer` is its own commit's, `durable` is for its readers;
    made on demand."""

    __slots__ = (
        "after_revision",
        "answer",
        "at_ms",
        "bare",
        "changes",
        "durable",
        "entry",
        "has_blobs",
        "newest",
        "prepared",
        "released_blobs",
        "revision",
        "stored_bytes",
        "writes",
    )

    def __init__(
        self,
        revision: int,
        after_revision: int,
        at_ms: int,
        changes: list[RecordChange],
        newest: Mapping[bytes, Kept | None] | None = None,
        bare: Collection[bytes] = (),
    ) -> None:
        self.revision = revision
        self.after_revision = after_revision
        self.at_ms = at_ms
        self.changes = changes
        self.newest = newest or {}  # What each key is after it …
        self.bare = bare  # … but for these: new ones without a value.
        self.prepared: Prepared | None = None  # What it changes on the engine, ready to be written alone.
        self.released_blobs: Sequence[str] = ()  # Each loses a reference by this batch.
        self.answer: asyncio.Future[int] | None = None
        self.durable: asyncio.Future[int] | None = None
        entry = [_pack_entry(revision, after_revision, at_ms)]
        history = [_pack_number(at_ms)]
        writes: list[Write] = []
        stored_bytes = 0
        has_blobs = False
        for key, stored, previous in changes:
            previous_bytes = NONE_BYTES
            if previous is not None:
                previous_bytes = len(previous)
                has_blobs = has_blobs or previous[BLOBS_AT] != 0
            if stored is None:
                lengths = _pack_lengths(len(key), NONE_BYTES, previous_bytes)
                entry += (lengths[:LENGTHS2_BYTES], key)
                history += (lengths, key, previous or b"")
            else:
                size = len(stored)
                stored_bytes += size
                has_blobs = has_blobs or stored[BLOBS_AT] != 0
                lengths = _pack_lengths(len(key), size, previous_bytes)
                entry += (lengths[:LENGTHS2_BYTES], key, stored)
                history += (lengths, key, stored, previous or b"")
            writes.append((RECORD + key, stored))
        writes.append((CHANGE + _pack_number(revision), b"".join(history)))
        self.entry = b"".join(entry)
        self.writes = writes  # All that the batch changes on the engine, but references of blobs.
        self.stored_bytes = stored_bytes
        self.has_blobs = has_blobs  # A record of the batch refers to a blob, or did so before it.

    def succeed(self) -> None:
        for waiter in (self.answer, self.durable):
            if waiter is not None and not waiter.done():
                waiter.set_result(self.revision)

    def fail(self, error: StorageError) -> None:
        for waiter in (self.answer, self.durable):
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # Retrieved here, since the caller may be gone.


class PendingBatches:
    """All batches on their way, oldest first."""

    def __init__(self, revision: int, engine: Engine) -> None:
        self.engine = engine
        self._records = LatestRecords()
        self._ranges = RangeCache(RANGES_BYTES)
        self._batches: dict[int, PendingBatch] = {}
        self.undurable: dict[bytes, tuple[int, bytes | None]] = {}
        self._recent: deque[tuple[int, list[bytes]]] = deque()
        self._lost: deque[tuple[int, int]] = deque(maxlen=LOST_SPANS_MAX)
        self.stamp = 0  # Another one whenever what transactions see may have changed.
        self.start_at(revision)

    def start_at(self, revision: int) -> None:
        """Everything up to `revision` is durable, and nothing else is known."""
        self.revision = revision  # The last number given out.
        self.revision_kept = revision  # The last one given out to a batch that was not lost.
        self.stamp += 1
        self._records.clear()
        self._ranges.clear()
        self._recent.clear()
        self._recent_changes = 0
        self._recent_after = revision

    @property
    def is_empty(self) -> bool:
        return not self._batches

    def stage(self, batch: Batch, at_ms: int) -> PendingBatch:
        """Number a batch whose expectations hold: from now on it is what transactions see."""
        revision = self.revision + 1
        changes: list[RecordChange] = []
        newest: dict[bytes, Kept | None] = {}
        fresh, bare, blobs_of = batch.fresh, batch.bare, batch.blobs
        young = self._records.young
        for key, value in batch.puts.items():
            if bare and key in bare:
                continue
            previous = None if key in fresh else young.get(key, UNKNOWN)
            if isinstance(previous, Unknown):
                previous = self.kept(key)
            if previous is None:
                before = None
                created, version = revision, 1
            else:
                (_, _, created, _, version), before = previous
                version += 1
            if blobs_of and key in blobs_of:
                blobs = blobs_of[key]
                head = _pack_head(STORED_FORMAT, created, revision, version, len(blobs))
                stored = b"".join([head, *[blob_id.encode() for blob_id in blobs], value])
            else:
                stored = _pack_head(STORED_FORMAT, created, revision, version, 0) + value
            changes.append((key, stored, before))
            newest[key] = _kept((record_of((key, value, created, revision, version)), stored))
        for key in batch.deletes:
            previous = self.kept(key)
            if previous is not None:
                changes.append((key, None, previous.stored))
                newest[key] = None
        if bare:  # All are stored alike, and seldom read by their names.
            stored = _pack_head(STORED_FORMAT, revision, revision, 1, 0)
            changes += [(key, stored, None) for key in bare]
        staged = PendingBatch(revision, self.revision_kept, at_ms, changes, newest, bare)
        self.add(staged)
        return staged

    def add(self, staged: PendingBatch) -> None:
        revision = staged.revision
        self.revision = self.revision_kept = revision
        self.stamp += 1
        self._batches[revision] = staged
        latest = {key: (revision, stored) for key, stored, _ in staged.changes}
        self.undurable.update(latest)
        keys = list(latest)
        self._records.set_all(staged.newest, staged.stored_bytes)
        if staged.bare:
            self._records.forget(staged.bare)
        if self._ranges.starts:
            self._ranges.staged(_newest_records(staged), revision)
        recent = self._recent
        recent.append((revision, keys))
        self._recent_changes += len(staged.changes)
        while len(recent) > RECENT_REVISIONS_MAX or self._recent_changes > RECENT_CHANGES_MAX:
            self._recent_after, dropped = recent.popleft()
            self._recent_changes -= len(dropped)

    def unprepare(self) -> None:
        """What was prepared says something that is no longer true."""
        for staged in self._batches.values():
            staged.prepared = None

    def remove(self, group: Sequence[PendingBatch]) -> None:
        """They are durable and applied now."""
        batches, latest = self._batches, self.undurable
        if len(group) == len(batches):
            batches.clear()
            latest.clear()
            return
        for staged in group:
            revision = staged.revision
            del batches[revision]
            for key, _, _ in staged.changes:
                if latest[key][0] == revision:
                    del latest[key]

    def lose(self, durable_revision: int, error: StorageError) -> None:
        """Nothing here will become durable. The numbers given out are burnt, and one more: a transaction that read
        a lost batch must never meet its revision again."""
        lost = list(self._batches.values())
        self._batches.clear()
        self.undurable.clear()
        self._lost.append((durable_revision, self.revision))
        self.start_at(self.revision + 1)
        self.revision_kept = durable_revision
        for staged in lost:
            staged.fail(error)

    def resume(self, durable_revision: int) -> None:
        """Go on after a recovery that found everything up to `durable_revision`: what counted as lost may be there
        after all, and the numbers given out before stay burnt."""
        still_lost = [
            (max(after, durable_revision), last) for after, last in self._lost if last > durable_revision
        ]
        self._lost = deque(still_lost, maxlen=LOST_SPANS_MAX)
        self.start_at(max(self.revision, durable_revision))
        self.revision_kept = durable_revision

    def close(self, error: StorageError) -> None:
        """No transaction reads any more."""
        self._records.clear()
        self.engine = ClosedEngine(error)

    # -- what transactions see: the `Source` of `transact`

    def get(self, key: bytes) -> Record | None:
        kept = self._records.young.get(key, UNKNOWN)
        if isinstance(kept, Unknown):
            kept = self.kept(key)
        return None if kept is None else kept.record

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        found = {key: self.kept(key) for key in keys}
        return {key: kept.record for key, kept in found.items() if kept is not None}

    def range(self, read: RangeRead) -> tuple[list[Record], int]:
        start, end, limit, reverse, is_expected = read
        known = self._ranges.find(start, end) if is_expected else None
        if known is None:
            records = self._scanned(read)
            if is_expected and len(records) < limit:
                self._ranges.fetched(start, end, records, self.revision)
        else:
            records = known[0][-limit:] if reverse else known[0][:limit]
            if reverse:
                records.reverse()
        return records, self.revision

    def _scanned(self, read: RangeRead) -> list[Record]:
        start, end, limit, reverse, _ = read
        staged = self.latest_within(start, end)
        gone = sum(1 for stored in staged.values() if stored is None)
        records = {r.key: r for r in self.durable_range(start, end, limit + gone, reverse=reverse)}
        for key, stored in staged.items():
            if stored is None:
                records.pop(key, None)
            else:
                records[key] = layout.decode_stored(key, stored)
        ordered = sorted(records, reverse=reverse)[:limit] if staged else list(records)
        return [records[key] for key in ordered]

    def prefetch(
        self, keys: Callable[[], Sequence[bytes]], ranges: Callable[[], Sequence[Bounds]] | None = None
    ) -> None:
        """Everything is at hand."""

    def durable_range(
        self, start: bytes, end: bytes | None, limit: int, *, reverse: bool, keys_only: bool = False
    ) -> list[Record]:
        """What readers see."""
        engine_end = layout.after_prefix(layout.RECORD) if end is None else layout.RECORD + end
        rows = islice(self.engine.scan(layout.RECORD + start, engine_end, reverse=reverse), limit)
        decode = layout.decode_stored
        return [decode(key[1:], stored, keys_only=keys_only) for key, stored in rows]

    def kept(self, key: bytes) -> Kept | None:
        """The latest state of a key, durable or not."""
        kept = self._records.young.get(key, UNKNOWN)
        if kept is UNKNOWN:
            kept = self._records.get(key)
        if isinstance(kept, Unknown):
            latest = self.undurable.get(key)
            stored = self.engine.get(layout.RECORD + key) if latest is None else latest[1]
            kept = None if stored is None else Kept(layout.decode_stored(key, stored), stored)
            self._records.set(key, kept)
        return kept

    def latest(self, key: bytes) -> tuple[int, bytes | None] | None:
        """Revision and stored record (None: deleted) of a staged key; None if the key is not staged."""
        return self.undurable.get(key)

    def latest_within(self, start: bytes, end: bytes | None) -> dict[bytes, bytes | None]:
        return {
            key: stored
            for key, (_, stored) in self.undurable.items()
            if start <= key and (end is None or key < end)
        }

    def has_changed(self, expectation: RangeExpectation) -> bool:
        """Whether a key of the range was written after the expectation's revision, or exists if it was to be empty."""
        start, end, revision = expectation
        if revision == EMPTY:
            return bool(self.range(RangeRead(start, end, limit=1, reverse=False, is_expected=True))[0])
        if revision < self._recent_after:
            return True  # Too long ago to tell; reading again costs less than being wrong.
        for changed_revision, keys in reversed(self._recent):
            if changed_revision <= revision:
                return False
            if any(start <= key and (end is None or key < end) for key in keys):
                return True
        return False

    async def wait_durable(self, revision: int) -> None:
        """Return when this batch, and so all before it, is durable."""
        staged = self._batches.get(revision)
        if staged is None:
            if any(after < revision <= last for after, last in self._lost):
                raise StoreUnavailable("what this transaction read was never written; run it again")
            return
        if staged.durable is None:
            staged.durable = asyncio.get_running_loop().create_future()
        await asyncio.shield(staged.durable)

    def writes(self) -> Iterator[Write]:
        return (write for staged in self._batches.values() for write in staged.writes)


def _newest_records(staged: PendingBatch) -> Iterator[tuple[bytes, Record | None]]:
    """Each key of a batch and what it is after it."""
    for key, kept in staged.newest.items():
        yield key, None if kept is None else kept.record
    for key in staged.bare:
        yield key, record_of((key, b"", staged.revision, staged.revision, 1))
