"""What a local store shows: the latest durable state to readers, staged batches to transactions, the past to watches."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from holdfast.storage.blob import Removals
from holdfast.storage.errors import Compacted, StorageError, StoreClosed, StoreCorrupt, check_readable
from holdfast.storage.hosting.trouble import WriteTrouble
from holdfast.storage.local import layout
from holdfast.storage.local.engine import Engine
from holdfast.storage.local.past import LocalPast
from holdfast.storage.local.pending import PendingBatch, PendingBatches
from holdfast.storage.local.snapshot import LocalSnapshot
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import (
    BlobStore,
    Bounds,
    Demand,
    Derived,
    Event,
    HistoryPage,
    Record,
    Snapshot,
    View,
)
from holdfast.storage.store_clock import StoreClock
from holdfast.storage.transact import Source, TransactMixin, check_range_limit
from holdfast.storage.watch import HubWatch, WatchHub


class LocalBlobStore(BlobStore, Protocol):
    """Blobs of a local store: whether one exists is known without waiting."""

    removals: Removals

    def exists(self, blob_id: str) -> bool: ...

    def released(self, blob_ids: Sequence[str]) -> None:
        """A durable batch took a reference to each of these away; others may be left."""
        ...


class Journal(Protocol):
    """Where staged batches become durable. It answers by calling `became_durable` or `failed` of the store, on the loop."""

    syncs: int

    def offer(self, entry: bytes, staged: "PendingBatch") -> None:
        """Queue a staged batch for the next group."""
        ...

    def room_problem(self) -> StorageError | None:
        """Why the next batch would be refused, as far as free space tells."""
        ...


class LocalReader(TransactMixin):
    """The reading half of the store of one process; `LocalStore` adds what changes it."""

    def __init__(self, *, url: str, engine: Engine, options: StoreOptions) -> None:
        self._url = url
        self._engine = engine
        self._options = options
        self._clock = StoreClock(options.clock)
        self._journal: Journal | None = None
        self._blobs: LocalBlobStore | None = None
        self._problem: StorageError | None = None
        self.trouble = WriteTrouble(url)
        self._commits = 0
        self._conflicts = 0
        self._engine_is_broken = False
        self._snapshots = 0
        self._is_closed = False
        self._revision, self._compacted_revision = layout.decode_progress(engine.get(layout.META_PROGRESS))
        self._committed_at_ms = max(
            layout.change_at_ms(engine.get(layout.META_CLOCK)),
            layout.change_at_ms(engine.get(layout.change_key(self._revision))),
        )
        self._clock.raise_to(self._committed_at_ms / 1000)
        self._pending = PendingBatches(self._revision, engine)
        self._local_source: Source | None = self._pending
        self._view = DurableView(self)
        self._past = LocalPast(self)
        self._derived: tuple[Derived, ...] = ()
        self._unapplied: deque[PendingBatch] = deque()  # Durable, not applied yet.
        self._ages: deque[tuple[float, int]] = deque([(options.clock.monotonic_s(), self._revision)])
        self._hub = WatchHub(
            self._history, buffer_events_max=options.watch_buffer_events_max, revision=self._revision
        )
        if engine.get(layout.META_RESTORING) is not None:
            raise StoreCorrupt(f"a restore into {url} did not finish; remove the store and restore again")

    def attach(self, blobs: LocalBlobStore, journal: Journal | None = None) -> None:
        """Complete the wiring: both need the store to exist first."""
        self._blobs = blobs
        self._journal = journal

    # -- what it is

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_shared(self) -> bool:
        return False

    @property
    def blobs(self) -> BlobStore:
        assert self._blobs is not None, "attach was not called"
        return self._blobs

    @property
    def clock(self) -> StoreClock:
        return self._clock

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def compacted_revision(self) -> int:
        return self._compacted_revision

    @property
    def problem(self) -> str | None:
        error = self._problem or self.trouble.error
        return None if error is None else error.detail

    def figures(self) -> dict[str, float]:
        return {
            "revision": self._revision,
            "compacted_revision": self._compacted_revision,
            "commits": self._commits,
            "conflicts": self._conflicts,
            "syncs": 0 if self._journal is None else self._journal.syncs,
            "watches": self._hub.watches,
            **({} if self._blobs is None else self._blobs.removals.figures()),
        }

    async def check(self) -> None:
        self._check_open()
        if self._problem is None and self._journal is not None:
            room_problem = self._journal.room_problem()
            if room_problem is not None:
                self.trouble.began(room_problem)
        error = self._problem or self.trouble.error
        if error is not None:
            raise error
        self._engine.get(layout.META_PROGRESS)

    # -- reads of what is durable

    async def get(self, key: bytes, *, at_revision: int | None = None) -> Record | None:
        if at_revision is not None:
            return await self._past.get(key, at_revision)
        self._check_open()
        return self._durable(key)

    async def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        self._check_open()
        return self._view.get_many(keys)

    def _durable(self, key: bytes) -> Record | None:
        if self._pending.latest(key) is None:
            kept = self._pending.kept(key)
            return None if kept is None else kept.record
        stored = self._engine.get(layout.RECORD + key)  # What is kept of this key is ahead of the disk.
        return None if stored is None else layout.decode_stored(key, stored)

    async def range(
        self,
        start: bytes,
        end: bytes | None,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        at_revision: int | None = None,
    ) -> list[Record]:
        self._check_open()
        check_range_limit(limit)
        if at_revision is not None:
            return await self._past.range(
                start, end, limit=limit, reverse=reverse, keys_only=keys_only, at_revision=at_revision
            )
        return self._pending.durable_range(start, end, limit, reverse=reverse, keys_only=keys_only)

    def _durable_view(self) -> View:
        self._check_open()
        return self._view

    async def _wait_durable(self, revision: int) -> None:
        await self._pending.wait_durable(revision)

    # -- what is kept of them elsewhere

    def keep_current(self, derived: Derived) -> bool:
        self._derived = (*self._derived, derived)
        return True

    def _forget_derived(self) -> None:
        for derived in self._derived:
            derived.forget_all()

    # -- watches and history

    def engine_at(self, revision: int) -> Engine:
        """The engine, if it has what a read of this revision needs: every change after it."""
        self._check_open()
        check_readable(revision, newest=self._revision, compacted=self._compacted_revision)
        return self._engine

    def watch(
        self,
        start: bytes,
        end: bytes | None,
        *,
        after: int | None = None,
        with_previous: bool = False,
        demand: Demand | None = None,
        foreign_only: bool = False,
    ) -> HubWatch:
        self._check_open()
        # A store of one process notifies at once, so `demand` has no effect.
        return self._hub.watch(start, end, after=after, with_previous=with_previous)

    async def history(self, start: bytes, end: bytes | None, *, after: int) -> HistoryPage:
        return await self._hub.past(start, end, after)

    async def _history(self, after: int, events_limit: int) -> HistoryPage:
        self._check_open()
        if after < self._compacted_revision:
            raise Compacted(after, self._compacted_revision)
        events: list[Event] = []
        rows = self._engine.scan(layout.change_key(after + 1), layout.change_key(self._revision + 1))
        for key, raw in rows:
            revision = layout.change_revision(key)
            events.extend(layout.decode_change(revision, raw))
            if len(events) >= events_limit:
                return HistoryPage(events, revision)
        return HistoryPage(events, self._revision)

    # -- blobs' side of the records

    def is_blob_referenced(self, blob_id: str) -> bool:
        """By a record on the engine, or by one that is on its way there."""
        prefix = layout.blob_reference_key(blob_id, b"")
        if any(True for _ in self._engine.scan(prefix, prefix + b"\xff" * 4)):
            return True
        return any(value is not None and key.startswith(prefix) for key, value in self._pending.writes())

    @property
    def has_snapshots(self) -> bool:
        """Whether one is being read, and with it perhaps blobs that no record refers to any more."""
        return self._snapshots > 0

    # -- snapshot

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        self._check_open()
        view = self._engine.view()
        self._snapshots += 1
        try:
            yield LocalSnapshot(
                self._revision,
                self._compacted_revision,
                record_count=self._engine.keys_estimate(),
                view=view,
            )
        finally:
            self._snapshots -= 1
            view.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosed(f"{self._url} is closed")


class DurableView:
    """The `View` of the port on what is durable now: for a function that does not wait, one moment."""

    __slots__ = ("_reader",)

    def __init__(self, reader: LocalReader) -> None:
        self._reader = reader

    def get(self, key: bytes) -> Record | None:
        return self._reader._durable(key)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        found = {key: self._reader._durable(key) for key in keys}
        return {key: record for key, record in found.items() if record is not None}

    def range(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False, expected: bool = False
    ) -> list[Record]:
        check_range_limit(limit)
        return self._reader._pending.durable_range(start, end, limit, reverse=reverse)

    def prefetch(
        self, keys: Callable[[], Sequence[bytes]], ranges: Callable[[], Sequence[Bounds]] | None = None
    ) -> None:
        """Everything is at hand."""
