"""The port every backend implements: ordered keys, revisions, atomic commits, watches, blobs.

Revisions are etcd's: one counter per store that grows by one for each committed batch with a write in it. A
record carries the revision that created it, the one that changed it last, and its version, which starts at 1
and starts again at 1 after a delete.

Two views exist. `get`, `get_many`, `range`, watches and snapshots show only what is durable. A transaction may
read ahead of durability (what an earlier commit of this process has written but not yet synced), because its
own result is held back until everything it read is durable.

The past can be read as far back as the history is kept, with etcd's bounds: compacting at revision N drops the changes up to
N, after which the oldest revision that can be read is N itself, and a watch may start after N.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, Self, TypeVar

from holdfast.storage.store_clock import StoreClock

KEY_BYTES_MAX = 2048  # PostgreSQL's btree takes at most about 2700 bytes in one entry.
VALUE_BYTES_MAX = 1 << 20  # Layers put more than 64 KiB into a blob; this is the hard stop.
BATCH_BYTES_MAX = 8 << 20
BATCH_KEYS_MAX = 10_000
RANGE_LIMIT_MAX = 2_000  # A local store reads a page in one go; this keeps that to a few milliseconds.

NO_STAMP = -1
ABSENT = 0  # As an expected mod_revision: the key must not exist.
EMPTY = -1  # As the revision of an expected range: no key may exist in it.

T = TypeVar("T")


Bounds = tuple[bytes, bytes | None]
"""The first key of a range, and the first one behind it; None: there is none."""


class Record(NamedTuple):
    """One key as of one revision."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int

    @classmethod
    def after(cls, before: "Record | None", key: bytes, value: bytes, revision: int) -> "Record":
        """What a put at `revision` makes of the record before it; None: there was none."""
        if before is None:
            return cls(key, value, revision, revision, 1)
        return cls(key, value, before.create_revision, revision, before.version + 1)


record_of: Callable[[tuple[bytes, bytes, int, int, int]], Record] = partial(tuple.__new__, Record)
"""As `Record(*fields)`, in a third of its time: for what is done for every key that is read or written."""


class Event(NamedTuple):
    """One key changed at one revision. `record` is None for a delete, `previous` None for a create.

    `previous` is only filled for a watch that asked for it.
    """

    revision: int
    key: bytes
    record: Record | None
    previous: Record | None = None


class HistoryPage(NamedTuple):
    """All events after the asked revision up to and including `revision`, in order, whole revisions."""

    events: list[Event]
    revision: int


class RangeExpectation(NamedTuple):
    """No key in [start, end) was put or deleted after `revision`; with EMPTY, none exists."""

    start: bytes
    end: bytes | None
    revision: int


@dataclass(slots=True)
class Batch:
    """What must hold, and what is then written, all of it or nothing.

    `expects` maps a key to the mod_revision it must have (ABSENT: none). `blobs` names, for a key in `puts`, the
    blobs that its record refers to; they live at least as long as a record refers to them. `fresh` are keys of `puts` that
    do not exist, which the writer knows for sure: a store need not look them up; `bare` are those of them without a value that
    are found by ranges and hardly ever read by their names. `read_stamp` is the store's own: with it a store
    may know that nothing changed since the expectations were read.
    """

    expects: dict[bytes, int] = field(default_factory=dict)
    expect_ranges: list[RangeExpectation] = field(default_factory=list)
    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: set[bytes] = field(default_factory=set)
    blobs: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    fresh: set[bytes] = field(default_factory=set)
    bare: set[bytes] = field(default_factory=set)
    read_stamp: int = NO_STAMP


@dataclass(frozen=True, slots=True)
class BlobRef:
    """What a record keeps of a blob. `sha256` is over the plain content; `descriptor` is the codec's, opaque here."""

    id: str
    size_bytes: int
    sha256: bytes
    descriptor: bytes = b""


class BlobInfo(NamedTuple):
    """A stored blob as the sweeper and a backup see it: bytes as they were written to this blob store, time of
    writing in Unix seconds."""

    id: str
    stored_bytes: int
    created_at_s: float


class BlobWriter(Protocol):
    """One blob on its way in. Leaving the `async with` without `finish` throws it away."""

    async def write(self, chunk: bytes) -> None: ...

    async def finish(self) -> BlobRef:
        """Make it durable. Only now may a batch refer to it."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


class BlobStore(Protocol):
    """Streams of any size beside the records. `context` binds encrypted content to its use; plain stores ignore it."""

    def create(self, *, context: str = "", blob_id: str | None = None) -> BlobWriter:
        """A new blob, under an id of its own or, for a restore, under the one it had; InvalidBatch if that is taken."""
        ...

    def read(
        self, ref: BlobRef, *, context: str = "", start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Chunks of the bytes [start, end). Raises BlobNotFound, or StoreCorrupt before a damaged chunk."""
        ...

    async def info(self, blob_id: str) -> BlobInfo | None: ...

    def list(self) -> AsyncIterator[BlobInfo]: ...

    async def remove(self, blob_id: str) -> bool:
        """Remove one blob now; False if a record refers to it or it does not exist."""
        ...

    async def free(self, *, grace_s: float) -> int:
        """Remove blobs whose last record let go of them at least `grace_s` ago, but not under a reader of any process,
        and not while a snapshot is read; returns how many."""
        ...

    async def sweep(self, *, grace_s: float) -> int:
        """Look at all blobs, and remove those that no record refers to, under the same conditions, if they were neither
        written nor let go of within `grace_s`; returns how many. It finds what `free` can't know of: what was
        never referred to, or let go of by a process that is gone."""
        ...

    async def touch(self) -> None:
        """Tell other processes which blobs are read and written by this one. The store does so by itself."""
        ...


class SnapshotRecord(NamedTuple):
    """A record with the blobs it refers to, as a backup carries it."""

    record: Record
    blobs: tuple[str, ...]


class Snapshot(Protocol):
    """Every record, and the kept history, as of one revision."""

    @property
    def revision(self) -> int: ...

    @property
    def compacted_revision(self) -> int:
        """History up to here is gone."""
        ...

    @property
    def record_count(self) -> int:
        """For progress only; may be an estimate."""
        ...

    def records(self) -> AsyncIterator[Sequence[SnapshotRecord]]:
        """Pages in key order."""
        ...

    def changes(self) -> AsyncIterator[Sequence[Event]]:
        """Pages of the history after `compacted_revision`, oldest first, with previous records."""
        ...


class Demand:
    """Whether callers wait for what a watch tells. A shared store tells at once while they do, and within its poll interval
    while they do not: telling every process of every commit costs more than the commits."""

    __slots__ = ("_is_active", "_listeners")

    def __init__(self) -> None:
        self._is_active = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_active(self) -> bool:
        return self._is_active

    def set(self, is_active: bool) -> None:
        if is_active == self._is_active:
            return
        self._is_active = is_active
        if is_active:
            for listener in self._listeners:
                listener()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Called whenever there is demand after there was none."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)


class Watch(Protocol):
    """Events in revision order without gaps; each list holds whole revisions.

    Iterating raises WatcherTooSlow or Compacted when the watcher can't be served further.
    """

    @property
    def revision(self) -> int:
        """Everything up to here was delivered."""
        ...

    def __aiter__(self) -> AsyncIterator[list[Event]]: ...

    async def __anext__(self) -> list[Event]: ...

    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


class View(Protocol):
    """What a plain function reads through: on a local store at once, on a remote one from what was fetched for it."""

    def get(self, key: bytes) -> Record | None: ...

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]: ...

    def range(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False, expected: bool = False
    ) -> list[Record]:
        """With `expected`, a key that enters, leaves or changes in what was read makes the commit a Conflict."""
        ...

    def prefetch(
        self, keys: Callable[[], Sequence[bytes]], ranges: Callable[[], Sequence[Bounds]] | None = None
    ) -> None:
        """These keys are read next, and these ranges, each from its first key on with RANGE_LIMIT_MAX and `expected`: a remote
        store fetches all that was named with the first read of what it does not know. A local one does not ask."""
        ...


class Transaction(View, Protocol):
    """What the function given to `transact` works with: remembered reads, buffered writes, its own writes visible.

    The value of `get` may be this transaction's own write; then revisions and version are 0.
    """

    def put(self, key: bytes, value: bytes, *, blobs: tuple[str, ...] = ()) -> None: ...

    def put_fresh(self, key: bytes, value: bytes) -> None:
        """The same, of a key that does not exist: it holds an id that was minted for it, or follows from what was read."""
        ...

    def put_new(self, key: bytes, value: bytes) -> None:
        """The same as `put_fresh`, of a key that is read soon: what a store caches has it then."""
        ...

    def put_all_fresh(self, keys: Sequence[bytes]) -> None:
        """Records without a value under keys that do not exist, such as the entries of an index: `fresh` and `bare`."""
        ...

    def delete(self, key: bytes) -> None: ...

    def after_commit(self, follower: Callable[[int], None]) -> None:
        """Called once with the revision if this attempt is the one that commits, also when its caller went away."""
        ...


class Derived(Protocol):
    """What is kept in memory of durable records, each by the key of the record that it was made of; `kept` has those keys."""

    kept: Container[bytes]

    def forget(self, keys: Iterable[bytes]) -> None: ...

    def forget_all(self) -> None: ...


class Store(Protocol):
    """One store. Opened with `open_store`; every method raises only errors of `holdfast.storage.errors`."""

    @property
    def url(self) -> str:
        """Where this store is, without secrets."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write to it as well."""
        ...

    @property
    def blobs(self) -> BlobStore: ...

    @property
    def clock(self) -> StoreClock:
        """The time of this store: everything over it is granted, judged and told by it."""
        ...

    @property
    def revision(self) -> int:
        """The newest durable revision that this process has seen."""
        ...

    @property
    def compacted_revision(self) -> int:
        """The oldest revision that can be read, and that a watch may start after; 0 if all history is kept.

        As far as this process has seen: another process that shares the store may have compacted further.
        """
        ...

    @property
    def problem(self) -> str | None:
        """Why the store takes no writes now, or None. Readiness shows it."""
        ...

    def figures(self) -> Mapping[str, float]:
        """What the metrics show of this store, by name: counts since it was opened, and levels; `figures.py` names all."""
        ...

    async def get(self, key: bytes, *, at_revision: int | None = None) -> Record | None:
        """The record now, or with `at_revision` exactly as it was then: value, revisions and version.

        As in etcd, every revision from `compacted_revision` to `revision`, both included, can be read. Raises Compacted below
        that and FutureRevision above, also if a compaction overtakes the read. Blobs are not part of the past: those that
        only an earlier record referred to may be gone.

        A key that has not changed since costs as much as a read of now. Otherwise PostgreSQL finds the first change after the
        revision by an index. A local store writes no index, so that commits pay nothing: it follows the versions of the key
        back, and searches the history only for a key that changed very often, or was created or deleted since. The first
        search walks over every revision in question (2 to 5 µs each, in pages of one to a few milliseconds); later ones skip
        blocks of revisions by filters that it leaves in memory.
        """
        ...

    async def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        """Those that exist, all as of one revision."""
        ...

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
        """Up to `limit` records of [start, end) in key order, as of one revision; `end` None is no bound.

        With `keys_only` values are empty. `limit` is at most RANGE_LIMIT_MAX. `at_revision` is that of `get`; on every backend
        it costs a walk over all changes since that revision, and then the range itself.
        """
        ...

    async def commit(self, batch: Batch) -> int:
        """The new revision, once the batch is durable. A batch without writes only checks and returns the current one.

        Raises Conflict naming the key (for a range, its start).
        """
        ...

    async def transact(
        self, fn: Callable[[Transaction], T], *, attempts_max: int = 16, in_commit_order: bool = False
    ) -> T:
        """Run the plain function `fn` and commit what it buffered; on Conflict run it again, with jitter, up to
        `attempts_max` times.

        `fn` must have no other side effect: it also runs again when it reads what a remote store has not fetched yet.
        Raises TransactionContended at the end of the attempts.

        `in_commit_order`: the result is true behind every commit that this process has begun, also one whose caller went
        away and that is still on its way; without it that holds only for a function that writes.
        """
        ...

    async def view(self, fn: Callable[[View], T], *, attempts_max: int = 16) -> T:
        """Run a plain function that only reads, over what is durable at one moment. It waits for no writer."""
        ...

    def keep_current(self, derived: Derived) -> bool:
        """From now on have `derived` forget what a commit changes, before anything can read the change: what a function of
        `view` makes of a record and leaves there is then of the durable record for as long as it is there.

        False: other processes write to this store as well, so nothing that is kept can be relied on.
        """
        ...

    def watch(
        self,
        start: bytes,
        end: bytes | None,
        *,
        after: int | None = None,
        with_previous: bool = False,
        demand: Demand | None = None,
        foreign_only: bool = False,
    ) -> Watch:
        """Events of [start, end) with a revision above `after` (None: from now on).

        Without a `demand`, there always is one. With `foreign_only` a shared store may leave out what this process itself
        committed: the caller knows of that.
        """
        ...

    async def history(self, start: bytes, end: bytes | None, *, after: int) -> HistoryPage:
        """One page of what was committed to [start, end) after this revision, with previous records. It may have no event;
        at the revision of the store the past is over.

        It costs a walk over all changes of the page, as a watch does that starts in the past. Raises Compacted below
        `compacted_revision`, and FutureRevision above what the store has reached.
        """
        ...

    async def compact(self, revision: int | None = None) -> int:
        """Drop history now: up to `revision`, or what is beyond the configured bounds. Returns `compacted_revision`.

        With a revision that stays so after a crash, and as in etcd the revision itself can still be read. Raises Compacted
        if history was compacted up to it before, and FutureRevision if the store has not reached it.
        """
        ...

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]: ...

    async def restore(self, revision: int, pages: AsyncIterable[Sequence[SnapshotRecord]]) -> None:
        """Fill an empty store with a snapshot, revisions and versions kept. InvalidBatch if it is not empty."""
        ...

    async def check(self) -> None:
        """One real round trip to the backend; raises what is wrong. For readiness and `verify`."""
        ...
