"""The store of one process: checks and numbers batches on the loop, and shows them when the journal has them.

A batch goes through three states, and every read is defined by them:

    STAGED    checked against the latest state, numbered, offered to the journal; only transactions see it
    DURABLE   the journal has synced it (a whole group at once)
    APPLIED   on the engine: readers and watchers see it, and its commit is answered; in order, right after DURABLE

Because groups reach the journal in order, a transaction may build on what is only staged: if the earlier batch is
lost, so is the later one.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence

from holdfast.common import failpoint
from holdfast.storage.errors import (
    BlobNotFound,
    Conflict,
    InvalidBatch,
    OutcomeUnknown,
    StorageError,
    StoreClosed,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
    check_compactable,
)
from holdfast.storage.local import layout
from holdfast.storage.local.engine import Engine, Write
from holdfast.storage.local.layout import RecordChange
from holdfast.storage.local.pending import PendingBatch
from holdfast.storage.local.reader import LocalReader
from holdfast.storage.local.snapshot import restored_writes
from holdfast.storage.port import (
    ABSENT,
    Batch,
    Event,
    SnapshotRecord,
)
from holdfast.storage.transact import check_batch

SLICE_BATCHES = 8  # Applied and answered in one go: so long every other task on the loop waits.


class LocalStore(LocalReader):
    """The `Store` of the port over an engine and, unless it is in memory only, a journal."""

    # -- commit

    async def commit(self, batch: Batch) -> int:
        if self._is_closed:
            self._check_open()
        if self._problem is not None:
            raise self._problem
        check_batch(batch, is_sealed=self._options.keyring is not None)
        conflict = self._conflict(batch)
        if conflict is not None:
            self._conflicts += 1
            # A caller that is told of a conflict reads again, and must then see what it lost to.
            await self._pending.wait_durable(self._pending.revision)
            raise Conflict(conflict)
        if not batch.puts and not batch.deletes:
            await self._pending.wait_durable(self._newest_of(batch))
            return self._revision
        is_alone = self._pending.is_empty
        staged = self._stage(batch)
        if self._journal is not None:
            staged.answer = asyncio.get_running_loop().create_future()
            self._journal.offer(staged.entry, staged)
        # The journal's thread takes a while to wake up; what only the answer needs is done in that time.
        if staged.has_blobs:
            staged.writes += blob_writes(staged.changes)
            staged.released_blobs = released_blobs(staged.changes)
        if is_alone:
            staged.prepared = self._engine.prepare([*staged.writes, self._progress(staged.revision)])
        if staged.answer is None:
            self.became_durable([staged])
            return staged.revision
        if failpoint.ARMED and failpoint.hit("commit.answer_before_durable"):
            return staged.revision
        return await staged.answer

    def _conflict(self, batch: Batch) -> bytes | None:
        """The first key whose expectation does not hold."""
        if batch.read_stamp == self._pending.stamp:
            return None  # Nothing at all was committed since these expectations were read.
        for key, revision in batch.expects.items():
            kept = self._pending.kept(key)
            if (ABSENT if kept is None else kept.record.mod_revision) != revision:
                return key
        for expectation in batch.expect_ranges:
            if self._pending.has_changed(expectation):
                return expectation.start
        return None

    def _newest_of(self, batch: Batch) -> int:
        """The revision that must be durable for what the batch expects to be durable."""
        if batch.expect_ranges:
            return self._pending.revision
        undurable = self._pending.undurable
        return (
            max([undurable[key][0] for key in batch.expects if key in undurable], default=0)
            if undurable
            else 0
        )

    def _stage(self, batch: Batch) -> PendingBatch:
        if batch.blobs:
            self._check_blobs(batch.blobs.values())
        self._committed_at_ms = at_ms = self._clock.now_ms()
        return self._pending.stage(batch, at_ms)

    def _check_blobs(self, referred: Iterable[tuple[str, ...]]) -> None:
        for blobs in referred:
            for blob_id in blobs:
                if self._blobs is None or not self._blobs.exists(blob_id):
                    raise BlobNotFound(
                        f"blob {blob_id} does not exist; write it and finish it before the commit"
                    )

    # -- what the journal answers

    def became_durable(self, group: Sequence[PendingBatch]) -> None:
        """A group is durable: apply it, show it, answer it; a large one in slices, so that the loop breathes."""
        if self._problem is not None:
            return  # Given up by `failed` while it was on its way; opening again or `reload` brings it back.
        if self.trouble.error is not None:
            self.trouble.end()
        is_running = bool(self._unapplied)
        self._unapplied.extend(group)
        if not is_running:
            self._apply_slice()

    def _apply_slice(self) -> None:
        group = [self._unapplied.popleft() for _ in range(min(len(self._unapplied), SLICE_BATCHES))]
        if self._unapplied:
            asyncio.get_running_loop().call_soon(self._apply_slice)
        if group:
            self._apply(group)

    def _apply(self, group: Sequence[PendingBatch]) -> None:
        for derived in self._derived:  # Nothing else runs between this and the write that readers see.
            kept = derived.kept
            stale = [key for staged in group for key, _, _ in staged.changes if key in kept]
            if stale:
                derived.forget(stale)
        try:
            if len(group) == 1 and group[0].prepared is not None:
                self._engine.write_prepared(group[0].prepared)
            else:
                writes = [write for staged in group for write in staged.writes]
                self._engine.write([*writes, self._progress(group[-1].revision)])
        except StorageError as error:
            self.engine_failed(error)
            return
        self._pending.remove(group)
        for staged in group:
            self._show(staged)

    def _progress(self, applied_revision: int) -> Write:
        return (layout.META_PROGRESS, layout.PROGRESS.pack(applied_revision, self._compacted_revision))

    def engine_failed(self, error: StorageError) -> None:
        """The engine takes no more. What is on its way is in the journal or not: its writers can't be told until `reload`."""
        self._unapplied.clear()
        unknown = OutcomeUnknown(
            f"written to the journal, but not applied ({error.detail}); read before you retry"
        )
        if isinstance(error, StoreFull):
            problem: StorageError = error
        else:
            problem = StoreUnavailable(f"{error.detail}; the store is read-only until it recovers")
        self.failed(unknown, problem=problem)
        self._engine_is_broken = True

    @property
    def is_read_only(self) -> bool:
        """Whether nothing is written until the engine or the store is opened again."""
        return self._problem is not None

    @property
    def may_write_again(self) -> bool:
        """Whether writes fail for a reason that can pass while the store stays open: no room."""
        return self._problem is None and self.trouble.error is not None

    @property
    def engine_is_broken(self) -> bool:
        """Whether `reload` with a freshly opened engine would help."""
        return self._engine_is_broken

    def _show(self, staged: PendingBatch) -> None:
        revision = staged.revision
        if revision != self._revision + 1:
            self._hub.skip_to(revision - 1)
        self._revision = revision
        self._commits += 1
        if staged.released_blobs and self._blobs is not None:
            self._blobs.released(staged.released_blobs)
        self._publish(staged)
        staged.succeed()

    def _publish(self, staged: PendingBatch) -> None:
        """Events are made of what is watched alone."""
        hub = self._hub
        first, last = hub.first_watched, hub.last_watched
        if hub.by_key or (last and any(first <= key < last for key, _, _ in staged.changes)):
            hub.publish(staged.revision, events_of(staged, hub.wants))
        else:
            hub.revision = staged.revision

    def failed(self, error: StorageError, *, problem: StorageError | None) -> None:
        """Nothing staged will become durable. `problem` closes the store for writes until it is opened again."""
        while self._unapplied:
            self._apply_slice()  # These are durable already.
        self._problem = self._problem or problem
        self.trouble.began(problem or error)
        self._pending.lose(self._revision, error)

    # -- history

    async def compact(self, revision: int | None = None) -> int:
        self._check_open()
        if revision is None:
            return self._compact_to(self._bounds_floor())
        check_compactable(revision, newest=self._revision, compacted=self._compacted_revision)
        self._compact_to(revision)
        engine = self._engine
        try:
            # The journal knows nothing of compactions; without this a crash would bring the history back.
            await asyncio.to_thread(engine.flush)
        except StorageError as error:
            if engine is self._engine and not self._is_closed:
                self.engine_failed(error)
            raise
        return revision

    def _bounds_floor(self) -> int:
        """The newest revision that is beyond the configured bounds."""
        now_s = self._options.clock.monotonic_s()
        floor = max(self._compacted_revision, self._revision - self._options.history_revisions_max)
        while self._ages and self._ages[0][0] <= now_s - self._options.history_age_s_max:
            floor = max(floor, self._ages.popleft()[1])
        self._ages.append((now_s, self._revision))
        return floor

    def _compact_to(self, floor: int) -> int:
        if floor > self._compacted_revision:
            progress = (layout.META_PROGRESS, layout.encode_progress(self._revision, floor))
            # The time of the newest commit may go with the history; a later process must not begin before it.
            mark = (layout.META_CLOCK, layout.encode_clock(self._committed_at_ms))
            first = layout.change_key(self._compacted_revision)
            self._engine.delete_range(first, layout.change_key(floor + 1), [progress, mark])
            self._compacted_revision = floor
            self._pending.unprepare()
        return floor

    # -- restore

    async def restore(self, revision: int, pages: AsyncIterable[Sequence[SnapshotRecord]]) -> None:
        self._check_open()
        if self._pending.revision or self._pending.durable_range(b"", None, 1, reverse=False):
            raise InvalidBatch(f"{self._url} is not empty; restore into a new store")
        self._engine.write([(layout.META_RESTORING, b"1")])
        await asyncio.to_thread(self._engine.flush)
        async for page in pages:
            self._engine.write([write for item in page for write in restored_writes(item)])
        progress = layout.encode_progress(revision, revision)
        self._engine.write([(layout.META_PROGRESS, progress), (layout.META_RESTORING, None)])
        await asyncio.to_thread(self._engine.flush)
        self._compacted_revision = revision
        self._set_revision(revision)

    # -- end of life

    def reload(self, engine: Engine, entries: Iterable[bytes]) -> None:
        """Go on with an engine that was opened again, brought up to the journal's end. The watches have to start again."""
        self._forget_derived()
        self._engine = self._pending.engine = engine
        self._revision, self._compacted_revision = layout.decode_progress(engine.get(layout.META_PROGRESS))
        for entry in entries:
            self._bring_back(entry)
        self._pending.resume(self._revision)
        self._hub.skip_to(self._revision)
        self._hub.interrupt(StoreUnavailable("the store recovered from a failure; watch again"))
        self._engine_is_broken = False
        self._problem = None
        self.trouble.end()

    def replay(self, raw: bytes) -> None:
        """Apply one journal entry that the engine may not have yet. Only while opening."""
        self._bring_back(raw)
        self._set_revision(self._revision)

    def _bring_back(self, raw: bytes) -> None:
        entry = layout.decode_entry(raw)
        if entry.revision <= self._revision:
            return
        if entry.after_revision != self._revision:
            raise StoreCorrupt(
                f"{self._url}: the journal goes on after revision {entry.after_revision}, "
                f"the store ends at {self._revision}"
            )
        changes = [(key, stored, self._engine.get(layout.RECORD + key)) for key, stored in entry.puts]
        writes = PendingBatch(entry.revision, entry.after_revision, entry.at_ms, changes).writes
        progress = layout.encode_progress(entry.revision, self._compacted_revision)
        self._engine.write([*writes, *blob_writes(changes), (layout.META_PROGRESS, progress)])
        self._committed_at_ms = max(self._committed_at_ms, entry.at_ms)
        self._clock.raise_to(entry.at_ms / 1000)
        self._revision = entry.revision

    def _set_revision(self, revision: int) -> None:
        self._forget_derived()
        self._revision = revision
        self._pending.start_at(revision)
        self._hub.skip_to(revision)

    async def close(self) -> None:
        """Take no more commits, wait for those under way, end the watches."""
        if self._is_closed:
            return
        self._is_closed = True
        self._forget_derived()
        with contextlib.suppress(StorageError):  # Who committed what is lost now has been told.
            await self._pending.wait_durable(self._pending.revision)
        self._pending.close(StoreClosed(f"{self._url} is closed"))
        self._hub.close()


def blob_writes(changes: Sequence[RecordChange]) -> Iterator[Write]:
    """Which blobs the records of a batch refer to from now on, and which no longer."""
    for key, stored, previous in changes:
        old, new = layout.stored_blobs(previous), layout.stored_blobs(stored)
        yield from ((layout.blob_reference_key(blob_id, key), None) for blob_id in old if blob_id not in new)
        yield from ((layout.blob_reference_key(blob_id, key), b"") for blob_id in new)


def released_blobs(changes: list[RecordChange]) -> list[str]:
    """The blobs that a record of the batch referred to before, and not after it."""
    return [
        blob_id
        for _, stored, previous in changes
        for blob_id in layout.stored_blobs(previous)
        if blob_id not in layout.stored_blobs(stored)
    ]


def events_of(staged: PendingBatch, wants: Callable[[bytes], bool]) -> list[Event]:
    """Of the wanted keys alone: no other record is decoded."""
    return [
        Event(
            staged.revision,
            key,
            None if stored is None else layout.decode_stored(key, stored),
            None if previous is None else layout.decode_stored(key, previous),
        )
        for key, stored, previous in staged.changes
        if wants(key)
    ]
