"""A store whose values and blobs are sealed on their way into another store and opened on their way out.

Keys, revisions and versions pass through as they are; no value, no blob and no previous value in a watch leaves the
codec unopened. A value is bound to its key: moved to another one it does not open.

Two views of a backup follow. A snapshot of this store is logical: plaintext, for an export to any other store. A
snapshot of the inner store is what is stored: a backup takes that one, so that it stays encrypted and needs the
same root keys when it is restored.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol, Self

from holdfast.storage.codec.blobs import EncodedBlobStore
from holdfast.storage.codec.compression import Compression
from holdfast.storage.codec.hf1 import Codec
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.errors import DecryptionError
from holdfast.storage.fetched import Fetched, Missing, RangeRead
from holdfast.storage.keys import pack
from holdfast.storage.port import (
    VALUE_BYTES_MAX,
    Batch,
    Bounds,
    Demand,
    Derived,
    Event,
    HistoryPage,
    Record,
    Snapshot,
    SnapshotRecord,
    Store,
    View,
    Watch,
    record_of,
)
from holdfast.storage.store_clock import StoreClock
from holdfast.storage.transact import Source, TransactMixin, check_batch

STEP_RECORDS = (
    64  # Sealed or opened between two looks of the event loop: about a millisecond of small values.
)

_CLASS_BY_TABLE = {
    pack((table,)): key_class
    for key_class, tables in (("meta", ("lease", "doc", "stage")), ("queue-meta", ("msg", "ready", "dlq")))
    for table in tables
}

# The keys of these records say all there is: their values are empty and stay so.
_BARE_TABLE = pack(("index",))


class Backend(Store, Protocol):
    """A store with the hooks that transactions read through (`TransactMixin`)."""

    _local_source: Source | None

    async def _fetch(self, missing: Missing, fetched: Fetched) -> None: ...

    def _begin(self) -> Fetched: ...

    def _source(self, fetched: Fetched) -> Source: ...

    def _durable_view(self) -> View | None: ...

    async def _wait_durable(self, revision: int) -> None: ...


OPENED_GENERATION_BYTES = 8 << 20
OPENED_ENTRY_BYTES = 300  # What an entry takes beside its key and its values.
OPENED_BYTES_MAX = 16 << 10  # A larger one would push out many that are asked for more often.


def is_bare(key: bytes, value: bytes) -> bool:
    """Whether a record is stored without a sealed value, because it has none."""
    return not value and key.startswith(_BARE_TABLE)


def value_context(key: bytes) -> str:
    """What a value is bound to: the class of the table that its key begins with, and the key."""
    key_class = _CLASS_BY_TABLE.get(key[: key.find(0) + 1], "object")
    return f"{key_class}:{key.hex()}"


class OpenedValues:
    """What the values that were sealed or opened lately hold: a rule reads what another one wrote a moment ago, and opening
    it again costs more than the rule. Two generations, as of the records that a local store keeps (`LatestRecords`).

    A value is found by its key and by all of its sealed bytes, so it is what opening them would give.
    """

    def __init__(self) -> None:
        self._young: dict[bytes, tuple[bytes, bytes]] = {}
        self._old: dict[bytes, tuple[bytes, bytes]] = {}
        self._young_bytes = 0

    def find(self, key: bytes, sealed: bytes) -> bytes | None:
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None or found[0] != sealed:
                return None
            self.add(key, *found)
            return found[1]
        return found[1] if found[0] == sealed else None

    def add(self, key: bytes, sealed: bytes, value: bytes) -> None:
        if len(sealed) > OPENED_BYTES_MAX:
            return
        self._young[key] = sealed, value
        self._young_bytes += OPENED_ENTRY_BYTES + len(key) + len(sealed) + len(value)
        if self._young_bytes > OPENED_GENERATION_BYTES:
            self._old, self._young = self._young, {}
            self._young_bytes = 0


class ValueCodec:
    """Records and batches through an HF1 codec."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._opened = OpenedValues()

    def seal(self, key: bytes, value: bytes) -> bytes:
        if is_bare(key, value):
            return value
        sealed = self._codec.seal_inline(value, value_context(key))
        self._opened.add(key, sealed, value)
        return sealed

    def open(self, record: Record) -> Record:
        key, stored, create_revision, mod_revision, version = record
        if is_bare(key, stored):
            return record
        value = self._opened.find(key, stored)
        if value is None:
            try:
                value = self._codec.open_inline(stored, value_context(key), size_bytes_max=VALUE_BYTES_MAX)
            except DecryptionError as error:
                raise DecryptionError(f"record {key!r}: {error.detail}") from error
            self._opened.add(key, stored, value)
        return record_of((key, value, create_revision, mod_revision, version))

    async def open_all(self, records: Iterable[Record]) -> list[Record]:
        opened: list[Record] = []
        for record in records:
            opened.append(self.open(record))
            if len(opened) % STEP_RECORDS == 0:
                await asyncio.sleep(0)
        return opened

    async def seal_batch(self, batch: Batch) -> Batch:
        sealed: dict[bytes, bytes] = {}
        for key, value in batch.puts.items():
            sealed[key] = self.seal(key, value)
            if len(sealed) % STEP_RECORDS == 0:
                await asyncio.sleep(0)
        # What is bare has no value, sealed or not.
        bare = {key for key in batch.bare if not sealed[key]} if batch.bare else batch.bare
        return replace(batch, puts=sealed, bare=bare)

    def open_event(self, event: Event) -> Event:
        return Event(
            event.revision,
            event.key,
            None if event.record is None else self.open(event.record),
            None if event.previous is None else self.open(event.previous),
        )


class EncodedStore(TransactMixin):
    """The `Store` of the port over another one. The opener of the inner store closes it."""

    def __init__(self, inner: Backend, keyring: Keyring, compression: Compression = Compression.NONE) -> None:
        codec = Codec(keyring, compression=compression)
        self.term_secret = keyring.derived(b"index terms")
        self._inner = inner
        self._values = ValueCodec(codec)
        self._sealing = asyncio.Lock()
        if inner._local_source is not None:
            self._local_source = EncodedSource(inner._local_source, self._values)
        self._blobs = EncodedBlobStore(inner.blobs, codec)

    @property
    def inner(self) -> Backend:
        """The store as stored: what a backup reads."""
        return self._inner

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def is_shared(self) -> bool:
        return self._inner.is_shared

    @property
    def blobs(self) -> EncodedBlobStore:
        return self._blobs

    @property
    def clock(self) -> StoreClock:
        return self._inner.clock

    @property
    def revision(self) -> int:
        return self._inner.revision

    @property
    def compacted_revision(self) -> int:
        return self._inner.compacted_revision

    def figures(self) -> Mapping[str, float]:
        return self._inner.figures()

    @property
    def problem(self) -> str | None:
        return self._inner.problem

    async def get(self, key: bytes, *, at_revision: int | None = None) -> Record | None:
        """The past is stored as it was written: what was sealed under a root key that is retired since does not open."""
        record = await self._inner.get(key, at_revision=at_revision)
        return None if record is None else self._values.open(record)

    async def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        found = await self._inner.get_many(keys)
        return {record.key: record for record in await self._values.open_all(found.values())}

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
        records = await self._inner.range(
            start, end, limit=limit, reverse=reverse, keys_only=keys_only, at_revision=at_revision
        )
        return records if keys_only else await self._values.open_all(records)

    async def commit(self, batch: Batch) -> int:
        # Before sealing: the limits of the port are on plain values, and a reader takes no larger ones back.
        check_batch(batch)
        async with self._sealing:  # A batch that is sealed at once must not overtake one that takes a while.
            sealed = await self._values.seal_batch(batch) if batch.puts else batch
        return await self._inner.commit(sealed)

    def keep_current(self, derived: Derived) -> bool:
        return self._inner.keep_current(derived)

    def watch(
        self,
        start: bytes,
        end: bytes | None,
        *,
        after: int | None = None,
        with_previous: bool = False,
        demand: Demand | None = None,
        foreign_only: bool = False,
    ) -> "EncodedWatch":
        inner = self._inner.watch(
            start, end, after=after, with_previous=with_previous, demand=demand, foreign_only=foreign_only
        )
        return EncodedWatch(inner, self._values)

    async def history(self, start: bytes, end: bytes | None, *, after: int) -> HistoryPage:
        page = await self._inner.history(start, end, after=after)
        return HistoryPage([self._values.open_event(event) for event in page.events], page.revision)

    async def compact(self, revision: int | None = None) -> int:
        return await self._inner.compact(revision)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        """Plaintext; for what is stored, take the snapshot of `inner`."""
        async with self._inner.snapshot() as inner:
            yield EncodedSnapshot(inner, self._values)

    async def restore(self, revision: int, pages: AsyncIterable[Sequence[SnapshotRecord]]) -> None:
        """Takes plaintext; what was read from `inner` is restored into `inner`."""
        await self._inner.restore(revision, self._seal_pages(pages))

    async def check(self) -> None:
        await self._inner.check()

    async def _seal_pages(
        self, pages: AsyncIterable[Sequence[SnapshotRecord]]
    ) -> AsyncIterator[Sequence[SnapshotRecord]]:
        async for page in pages:
            yield [
                SnapshotRecord(record._replace(value=self._values.seal(record.key, record.value)), blobs)
                for record, blobs in page
            ]

    async def _fetch(self, missing: Missing, fetched: Fetched) -> None:
        await self._inner._fetch(missing, fetched)

    def _begin(self) -> Fetched:
        return self._inner._begin()  # What it caches is sealed, as stored, and opened by each read.

    def _source(self, fetched: Fetched) -> Source:
        return EncodedSource(self._inner._source(fetched), self._values)

    def _durable_view(self) -> View | None:
        inner = self._inner._durable_view()
        return None if inner is None else EncodedView(inner, self._values)

    async def _wait_durable(self, revision: int) -> None:
        await self._inner._wait_durable(revision)


def term_secret(store: Store) -> bytes | None:
    """What the terms of an index are hashed with before they stand in keys, which are not encrypted; None: as they are."""
    return store.term_secret if isinstance(store, EncodedStore) else None


class EncodedSource:
    """What a transaction reads from the inner store, with opened values."""

    def __init__(self, inner: Source, values: ValueCodec) -> None:
        self._inner = inner
        self._values = values
        self.prefetch = inner.prefetch
        self.undurable = inner.undurable

    @property
    def stamp(self) -> int:
        return self._inner.stamp

    def get(self, key: bytes) -> Record | None:
        record = self._inner.get(key)
        return None if record is None else self._values.open(record)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        return {key: self._values.open(record) for key, record in self._inner.get_many(keys).items()}

    def range(self, read: RangeRead) -> tuple[list[Record], int]:
        records, revision = self._inner.range(read)
        return [self._values.open(record) for record in records], revision


class EncodedView:
    """The inner view with opened values."""

    def __init__(self, inner: View, values: ValueCodec) -> None:
        self._inner = inner
        self._values = values

    def get(self, key: bytes) -> Record | None:
        record = self._inner.get(key)
        return None if record is None else self._values.open(record)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        return {key: self._values.open(record) for key, record in self._inner.get_many(keys).items()}

    def range(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False, expected: bool = False
    ) -> list[Record]:
        records = self._inner.range(start, end, limit=limit, reverse=reverse, expected=expected)
        return [self._values.open(record) for record in records]

    def prefetch(
        self, keys: Callable[[], Sequence[bytes]], ranges: Callable[[], Sequence[Bounds]] | None = None
    ) -> None:
        self._inner.prefetch(keys, ranges)


class EncodedWatch:
    """The inner watch with opened events."""

    def __init__(self, inner: Watch, values: ValueCodec) -> None:
        self._inner = inner
        self._values = values

    @property
    def revision(self) -> int:
        return self._inner.revision

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        return [self._values.open_event(event) for event in await self._inner.__anext__()]

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class EncodedSnapshot:
    """The inner snapshot with opened records."""

    def __init__(self, inner: Snapshot, values: ValueCodec) -> None:
        self._inner = inner
        self._values = values

    @property
    def revision(self) -> int:
        return self._inner.revision

    @property
    def compacted_revision(self) -> int:
        return self._inner.compacted_revision

    @property
    def record_count(self) -> int:
        return self._inner.record_count

    async def records(self) -> AsyncIterator[Sequence[SnapshotRecord]]:
        async for page in self._inner.records():
            yield [SnapshotRecord(self._values.open(record), blobs) for record, blobs in page]

    async def changes(self) -> AsyncIterator[Sequence[Event]]:
        async for page in self._inner.changes():
            yield [self._values.open_event(event) for event in page]
