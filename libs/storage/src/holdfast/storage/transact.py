"""Transactions over any store: a plain function reads, decides and buffers writes; the commit checks what it read.

A local store answers every read of the function at once. A remote one answers what is in its cache or was fetched for this
transaction; for anything else the read raises `Missing`, all that is missing is fetched in one round trip, and the function
runs again. Reads become expectations of the batch, so a conflict runs the function again, on fresh data and without the
cache. What the function decides without a commit is believed after its reads were fetched again, if any came from the cache.

What a function decided, its result as well as its error, is handed out only when (1) everything it read is durable
and (2) what it read was true at one moment: by the commit itself, or by a batch of expectations alone.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from holdfast.storage.errors import Conflict, InvalidBatch, TransactionContended
from holdfast.storage.fetched import Fetched, Missing, RangeRead
from holdfast.storage.keys import next_key
from holdfast.storage.port import (
    ABSENT,
    BATCH_BYTES_MAX,
    BATCH_KEYS_MAX,
    KEY_BYTES_MAX,
    RANGE_LIMIT_MAX,
    VALUE_BYTES_MAX,
    Batch,
    Bounds,
    RangeExpectation,
    Record,
    View,
)

BACKOFF_S_BASE = 0.001
BACKOFF_S_MAX = 0.1
FETCHES_MAX = 10_000  # More than the keys of any batch: a function that reads without end is a defect.

BLOBS_PER_RECORD_MAX = 255
BLOB_ID_CHARS = 36
SEALED_VALUE_BYTES = 4096  # A codec's envelope around the largest value takes less.
SEALED_BATCH_BYTES = 4 << 20  # And around the values of the largest batch.

T = TypeVar("T")


class NeedsCoordinator(Exception):
    """Raised inside of a transaction: another process has to act first. The transaction ends without a write, `resolve`
    is awaited while none is open, and the function runs again and finds what was done."""

    async def resolve(self) -> None:
        raise NotImplementedError


class Source(Protocol):
    """What the function of a transaction reads from."""

    @property
    def stamp(self) -> int:
        """The same as long as nothing was committed; NO_STAMP if the store can't tell."""
        ...

    def get(self, key: bytes) -> Record | None: ...

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]: ...

    def range(self, read: RangeRead) -> tuple[list[Record], int]:
        """The records and the revision they were read at."""
        ...

    def prefetch(
        self, keys: Callable[[], Sequence[bytes]], ranges: Callable[[], Sequence[Bounds]] | None = None
    ) -> None:
        """A remote store fetches them with the first read of what it does not know; a local one has nothing to do."""
        ...

    @property
    def undurable(self) -> Mapping[bytes, tuple[int, bytes | None]]:
        """The keys of which `get` shows what is not durable yet, each with its revision first."""
        ...


class TransactMixin:
    """Gives a store `transact` and `view`. A local store has its source at hand; a remote one begins every transaction with
    what is cached, and fetches what is missing."""

    _local_source: Source | None = None

    def _begin(self) -> Fetched:
        """What a new transaction of a remote store may read before anything is fetched for it."""
        raise NotImplementedError

    def _source(self, fetched: Fetched) -> Source:
        """How a transaction of a remote store reads what was fetched for it."""
        return fetched

    async def _fetch(self, missing: Missing, fetched: Fetched) -> None:
        """Bring what is missing; remote stores only."""
        raise NotImplementedError

    async def commit(self, batch: Batch) -> int:
        raise NotImplementedError

    def _durable_view(self) -> View | None:
        """What is durable, to read from at once; None if that takes a round trip."""
        return None

    async def _wait_durable(self, revision: int) -> None:
        """Return once `revision` is durable; raise if it never will be."""

    async def view(self, fn: Callable[[View], T], *, attempts_max: int = 16) -> T:
        """See `Store.view`."""
        view = self._durable_view()
        if view is not None:
            return fn(view)
        fetched = Fetched()
        return await self._run(fn, self._source(fetched), fetched, attempts_max)

    async def transact(
        self,
        fn: Callable[["BufferedTransaction"], T],
        *,
        attempts_max: int = 16,
        in_commit_order: bool = False,
    ) -> T:
        """See `Store.transact`."""
        source = self._local_source
        if source is not None:
            return await self._run(fn, source, None, attempts_max, in_commit_order)
        fetched = self._begin()
        return await self._run(fn, self._source(fetched), fetched, attempts_max, in_commit_order)

    async def _run(
        self,
        fn: Callable[["BufferedTransaction"], T],
        source: Source,
        fetched: Fetched | None,
        attempts_max: int,
        in_commit_order: bool = False,
    ) -> T:
        lost: Conflict | None = None
        attempt = fetches = 0
        while attempt < attempts_max:
            if fetched is not None:
                fetched.begin()
            tx = BufferedTransaction(source)
            try:
                result = fn(tx)
            except Missing as missing:
                fetches += 1
                assert fetches <= FETCHES_MAX, "a function of transact reads without end"
                assert fetched is not None, "a local store has everything at hand"
                await self._fetch(missing, fetched)
                continue
            except Conflict as conflict:
                lost = conflict
            except NeedsCoordinator as needed:
                lost = await self._disproof(tx, fetched)
                if lost is None:
                    await needed.resolve()
            except Exception:
                lost = await self._disproof(tx, fetched)
                if lost is None:
                    raise
            else:
                lost = await self._finish(tx, fetched, in_commit_order)
                if lost is None:
                    return result
            if fetched is not None and fetched.start_over(lost):
                continue
            attempt += 1
            if attempt < attempts_max:
                await asyncio.sleep(random.uniform(0, min(BACKOFF_S_MAX, BACKOFF_S_BASE * 2**attempt)))
        raise TransactionContended(lost.key if lost else b"", attempts_max) from lost

    async def _finish(
        self, tx: "BufferedTransaction", fetched: Fetched | None, in_commit_order: bool
    ) -> Conflict | None:
        """Commit; the conflict if what was read is no longer so. A commit without a write only checks."""
        if not tx.followers and not tx.has_writes and not in_commit_order:
            return await self._disproof(tx, fetched)
        try:
            if tx.followers:
                # The commit happens without its caller too, and its followers must be told of it then.
                await asyncio.shield(asyncio.ensure_future(self._commit_and_tell(tx)))
            else:
                await self.commit(tx.batch)
        except Conflict as conflict:
            return conflict
        if tx.undurable_revision:
            await self._wait_durable(tx.undurable_revision)
        return None

    async def _commit_and_tell(self, tx: "BufferedTransaction") -> None:
        revision = await self.commit(tx.batch)
        for follower in tx.followers:
            follower(revision)

    async def _disproof(self, tx: "BufferedTransaction", fetched: Fetched | None) -> Conflict | None:
        """Why what the function decided without a write may not be believed: it was made from a torn, an outdated or an
        undurable view. None: it was not."""
        if _needs_check(tx.batch, fetched):
            conflict = await self._check(tx.batch, fetched)
            if conflict is not None:
                return conflict
        if tx.undurable_revision:
            await self._wait_durable(tx.undurable_revision)
        return None

    async def _check(self, batch: Batch, fetched: Fetched | None) -> Conflict | None:
        if fetched is not None and fetched.is_unverified and not batch.expect_ranges:
            # A read waits for no writer, and brings what the next attempt needs.
            fetched.clear()
            await self._fetch(Missing(list(batch.expects)), fetched)
            return fetched.verified(batch.expects)
        try:
            await self.commit(Batch(batch.expects, batch.expect_ranges, read_stamp=batch.read_stamp))
        except Conflict as conflict:
            return conflict
        return None


def _needs_check(batch: Batch, fetched: Fetched | None) -> bool:
    """What one statement has shown, or one point read, is true at one moment by itself; two reads may not be."""
    if fetched is not None and fetched.is_unverified:
        return True
    if fetched is not None and fetched.is_of_one_moment:
        return False
    return len(batch.expects) > 1 or bool(batch.expect_ranges)


class BufferedTransaction:
    """One attempt of a transaction; the `Transaction` of the port."""

    __slots__ = ("_seen", "_source", "batch", "followers", "undurable_revision")

    def __init__(self, source: Source) -> None:
        self._source = source
        # What was read, and over it what was written and read again.
        self._seen: dict[bytes, Record | None] = {}
        self.batch = Batch(read_stamp=source.stamp)
        self.followers: list[Callable[[int], None]] = []
        self.undurable_revision = 0

    @property
    def has_writes(self) -> bool:
        return bool(self.batch.puts or self.batch.deletes)

    def get(self, key: bytes) -> Record | None:
        seen = self._seen
        if key in seen:
            return seen[key]
        value = self.batch.puts.get(key)
        if value is not None:
            seen[key] = own = _own(key, value)
            return own
        source = self._source
        # As `_remember` does, without the call: this is the read of every rule.
        seen[key] = record = source.get(key)
        self.batch.expects[key] = ABSENT if record is None else record.mod_revision
        if source.undurable:
            self._wait_for(key)
        return record

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        seen, puts = self._seen, self.batch.puts
        unread = [key for key in keys if key not in seen and key not in puts]
        if unread:
            found = self._source.get_many(unread)
            for key in unread:
                self._remember(key, found.get(key))
        records = {key: seen[key] if key in seen else self.get(key) for key in keys}
        return {key: record for key, record in records.items() if record is not None}

    def range(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False, expected: bool = False
    ) -> list[Record]:
        check_range_limit(limit)
        batch = self.batch
        hidden = sum(1 for key in batch.deletes if _within(key, start, end))
        read = RangeRead(start, end, limit + hidden, reverse, expected)
        records, revision = self._source.range(read)
        self.undurable_revision = max(self.undurable_revision, revision)
        if expected:
            self._expect_range(read, records, revision)
        merged = {record.key: record for record in records if record.key not in batch.deletes}
        for key, value in batch.puts.items():
            if _within(key, start, end):
                merged[key] = _own(key, value)
        return [merged[key] for key in sorted(merged, reverse=reverse)[:limit]]

    def prefetch(
        self, keys: Callable[[], Sequence[bytes]], ranges: Callable[[], Sequence[Bounds]] | None = None
    ) -> None:
        self._source.prefetch(keys, ranges)

    def put(self, key: bytes, value: bytes, *, blobs: tuple[str, ...] = ()) -> None:
        batch = self.batch
        batch.deletes.discard(key)
        if batch.bare:
            batch.bare.discard(key)
        batch.puts[key] = value
        if blobs:
            batch.blobs[key] = blobs
        elif batch.blobs:
            batch.blobs.pop(key, None)
        self._seen.pop(key, None)

    def put_fresh(self, key: bytes, value: bytes) -> None:
        batch = self.batch
        if key not in batch.expects and key not in batch.puts and key not in batch.deletes:
            batch.fresh.add(key)
        self.put(key, value)

    def put_new(self, key: bytes, value: bytes) -> None:
        batch = self.batch
        if key not in batch.expects and key not in batch.puts and key not in batch.deletes:
            batch.expects[key] = ABSENT
        self.put(key, value)

    def put_all_fresh(self, keys: Sequence[bytes]) -> None:
        batch = self.batch
        entries = dict.fromkeys(keys, b"")
        names = entries.keys()
        if (
            names.isdisjoint(batch.expects)
            and names.isdisjoint(batch.puts)
            and (not batch.deletes or names.isdisjoint(batch.deletes))
        ):
            batch.fresh.update(entries)
            batch.bare.update(entries)
            batch.puts.update(entries)
        else:
            for key in entries:
                self.put_fresh(key, b"")

    def delete(self, key: bytes) -> None:
        batch = self.batch
        batch.fresh.discard(key)
        batch.bare.discard(key)
        batch.puts.pop(key, None)
        batch.blobs.pop(key, None)
        batch.deletes.add(key)
        self._seen[key] = None

    def after_commit(self, follower: Callable[[int], None]) -> None:
        self.followers.append(follower)

    def _remember(self, key: bytes, record: Record | None) -> None:
        self._seen[key] = record
        self.batch.expects[key] = ABSENT if record is None else record.mod_revision
        if self._source.undurable:
            self._wait_for(key)

    def _wait_for(self, key: bytes) -> None:
        """What is decided may be told when what was read of the key is durable."""
        undurable = self._source.undurable.get(key)
        if undurable is not None and undurable[0] > self.undurable_revision:
            self.undurable_revision = undurable[0]

    def _expect_range(self, read: RangeRead, records: list[Record], revision: int) -> None:
        """Only what was seen is expected: a full page says nothing about the keys behind its last one."""
        start, end = read.start, read.end
        if len(records) >= read.limit:
            if read.reverse:
                start = records[-1].key
            else:
                end = next_key(records[-1].key)
        self.batch.expect_ranges.append(RangeExpectation(start, end, revision))


def _own(key: bytes, value: bytes) -> Record:
    """A record as its own transaction sees it: it has no revision yet."""
    return Record(key, value, 0, 0, 0)


def _within(key: bytes, start: bytes, end: bytes | None) -> bool:
    return start <= key and (end is None or key < end)


def check_range_limit(limit: int) -> None:
    """Refuse a limit that the port does not allow."""
    if not 0 < limit <= RANGE_LIMIT_MAX:
        raise InvalidBatch(f"range limit {limit} is not within 1…{RANGE_LIMIT_MAX}")


def check_batch(batch: Batch, *, is_sealed: bool = False) -> None:
    """Raise InvalidBatch, saying which rule is broken. Sealed values carry an envelope that the rules do not count."""
    value_bytes_max = VALUE_BYTES_MAX + SEALED_VALUE_BYTES * is_sealed
    batch_bytes_max = BATCH_BYTES_MAX + SEALED_BATCH_BYTES * is_sealed
    puts, deletes = batch.puts, batch.deletes
    if len(puts) + len(deletes) + len(batch.expects) > BATCH_KEYS_MAX:
        raise InvalidBatch(f"a batch names at most {BATCH_KEYS_MAX} keys; split it")
    if puts:
        values = puts.values()
        if max(map(len, puts)) > KEY_BYTES_MAX or max(map(len, values)) > value_bytes_max:
            raise InvalidBatch(
                f"a key has at most {KEY_BYTES_MAX} bytes and a value {VALUE_BYTES_MAX}; put more into a blob"
            )
        if sum(map(len, puts)) + sum(map(len, values)) > batch_bytes_max:
            raise InvalidBatch(f"a batch carries at most {BATCH_BYTES_MAX} bytes; split it or use blobs")
    if deletes and not deletes.isdisjoint(puts):
        raise InvalidBatch(f"key {next(iter(deletes & puts.keys()))!r} is both put and deleted")
    if batch.blobs:
        _check_blobs(batch)


def _check_blobs(batch: Batch) -> None:
    for key, blob_ids in batch.blobs.items():
        if key not in batch.puts:
            raise InvalidBatch(f"key {key!r} names blobs but is not put")
        if len(blob_ids) > BLOBS_PER_RECORD_MAX or any(len(blob_id) != BLOB_ID_CHARS for blob_id in blob_ids):
            raise InvalidBatch(
                f"key {key!r} names more than {BLOBS_PER_RECORD_MAX} blobs or something else than one"
            )
