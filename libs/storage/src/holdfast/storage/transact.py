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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from holdfast.storage.errors import Conflict, InvalidBatch, TransactionContended
from holdfast.storage.keys import next_key
from holdfast.storage.port import ABSENT, NO_STAMP, Batch, RangeExpectation, Record, View

BACKOFF_S_BASE = 0.001
BACKOFF_S_MAX = 0.1
FETCHES_MAX = 10_000  # More than the keys of any batch: a function that reads without end is a defect.
_CACHED = 0  # In the place of a statement's number: nothing was fetched.

T = TypeVar("T")


class NeedsCoordinator(Exception):
    """Raised inside of a transaction: another process has to act first. The transaction ends without a write, `resolve`
    is awaited while none is open, and the function runs again and finds what was done."""

    async def resolve(self) -> None:
        raise NotImplementedError


class RangeRead(NamedTuple):
    """The arguments of one read of a range."""

    start: bytes
    end: bytes | None
    limit: int
    reverse: bool


class Missing(Exception):
    """Raised by a read of a remote store: these have to be fetched before the function can go on."""

    def __init__(self, keys: Sequence[bytes] = (), ranges: Sequence[RangeRead] = ()) -> None:
        super().__init__(f"{len(keys)} keys and {len(ranges)} ranges are not fetched yet")
        self.keys = keys
        self.ranges = ranges


class CachedRecord(Protocol):
    """What a cache knows of a key; `record` None: it does not exist."""

    @property
    def record(self) -> Record | None: ...


class ReadCache(Protocol):
    """What a remote store knows without asking; it may be out of date."""

    verified: int

    @property
    def is_readable(self) -> bool: ...

    def find(self, key: bytes) -> CachedRecord | None: ...

    def guesses_absent(self, keys: Sequence[bytes]) -> bool: ...

    def doubt(self, keys: Iterable[bytes]) -> None: ...


class Fetched:
    """What one transaction may read of a remote store: what was fetched for it, and before the first conflict also what the
    cache has. Remembers which statement each read of an attempt came from."""

    __slots__ = ("_cache", "_is_renewed", "_sources", "_statements", "_used", "is_kept", "ranges", "records")

    def __init__(self, cache: ReadCache | None = None) -> None:
        self.is_kept = cache is not None  # What is fetched may be read by later transactions.
        self.records: dict[bytes, Record | None] = {}
        self.ranges: dict[RangeRead, tuple[list[Record], int, int]] = {}
        self._cache = cache if cache is not None and cache.is_readable else None
        self._sources: dict[bytes, int] = {}
        self._statements = 0
        self._used: set[int] = set()
        self._is_renewed = False

    def begin(self) -> None:
        """The function is about to run."""
        self._used.clear()
        self._is_renewed = False

    @property
    def is_unverified(self) -> bool:
        """Whether the function read something that no statement has shown."""
        return _CACHED in self._used

    @property
    def is_of_one_moment(self) -> bool:
        """Whether one statement has shown all that the function read."""
        return len(self._used) == 1 and _CACHED not in self._used

    def take(self, records: Mapping[bytes, Record | None]) -> None:
        """The answer to one statement."""
        self._statements += 1
        self.records.update(records)
        self._sources.update(dict.fromkeys(records, self._statements))

    def take_range(self, read: RangeRead, records: list[Record], revision: int) -> None:
        self._statements += 1
        self.ranges[read] = (records, revision, self._statements)

    def get(self, key: bytes) -> Record | None:
        if key not in self.records and not self._recall(key):
            raise Missing([key])
        self._used.add(self._sources[key])
        return self.records[key]

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        if missing := self._unknown(keys):
            raise Missing(missing)
        self._used.update([self._sources[key] for key in keys])
        found = ((key, self.records[key]) for key in keys)
        return {key: record for key, record in found if record is not None}

    def range(self, read: RangeRead) -> tuple[list[Record], int]:
        if read not in self.ranges:
            raise Missing(ranges=[read])
        records, revision, source = self.ranges[read]
        self._used.add(source)
        return records, revision

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Keys that are likely to be new are not asked for: if one is there, the commit will say so."""
        missing = self._unknown(keys)
        if not missing:
            return
        if self._cache is None or not self._cache.guesses_absent(missing):
            raise Missing(missing)
        for key in missing:
            self.records[key] = None
            self._sources[key] = _CACHED

    def verified(self, expects: Mapping[bytes, int]) -> Conflict | None:
        """One statement has shown all of these again; the first that is not what the function read, if there is one."""
        assert self._cache is not None, "only what came from a cache is verified"
        self._cache.verified += 1
        self._is_renewed = True
        for key, expected in expects.items():
            record = self.records[key]
            if expected != (ABSENT if record is None else record.mod_revision):
                return Conflict(key)
        return None

    def start_over(self, lost: Conflict | None) -> bool:
        """Forget what an attempt read; whether that failed because of the cache, which is not read from now on."""
        cache, self._cache = self._cache, None
        is_cached = cache is not None and self.is_unverified
        if cache is not None and is_cached and lost is not None:
            recalled = [key for key, source in self._sources.items() if source == _CACHED]
            cache.doubt([lost.key] if lost.key in recalled else recalled)
        if not self._is_renewed:
            self.clear()
        return is_cached

    def clear(self) -> None:
        self.records.clear()
        self.ranges.clear()
        self._sources.clear()

    def _unknown(self, keys: Sequence[bytes]) -> list[bytes]:
        return [key for key in keys if key not in self.records and not self._recall(key)]

    def _recall(self, key: bytes) -> bool:
        known = None if self._cache is None else self._cache.find(key)
        if known is None:
            return False
        self.records[key] = known.record
        self._sources[key] = _CACHED
        return True


_NOTHING_FETCHED = Fetched()  # Of every transaction on a local store.


class TransactMixin:
    """Gives a store `transact` and `view`. The hooks below are what a transaction reads through; those of a remote
    store read from `fetched` and raise Missing."""

    def _tx_get(self, key: bytes, fetched: Fetched) -> Record | None:
        raise NotImplementedError

    def _tx_get_many(self, keys: Sequence[bytes], fetched: Fetched) -> dict[bytes, Record]:
        raise NotImplementedError

    def _tx_range(self, read: RangeRead, fetched: Fetched) -> tuple[list[Record], int]:
        """The records and the revision they were read at."""
        raise NotImplementedError

    def _tx_prefetch(self, keys: Callable[[], Sequence[bytes]], fetched: Fetched) -> None:
        """A remote store raises Missing for those that are not fetched; a local one has nothing to do."""

    async def _fetch(self, missing: Missing, fetched: Fetched) -> None:
        """Bring what is missing; remote stores only."""
        raise NotImplementedError

    async def commit(self, batch: Batch) -> int:
        raise NotImplementedError

    def _durable_view(self) -> View | None:
        """What is durable, to read from at once; None if that takes a round trip."""
        return None

    def _undurable_revision(self, key: bytes) -> int:
        """The revision of what `_tx_get` shows of this key if it is not durable yet, else 0."""
        return 0

    def _read_stamp(self) -> int:
        """The same as long as nothing was committed; NO_STAMP if the store can't tell."""
        return NO_STAMP

    async def _wait_durable(self, revision: int) -> None:
        """Return once `revision` is durable; raise if it never will be."""

    def _begin(self) -> Fetched:
        """What a new transaction may read before anything is fetched for it."""
        return _NOTHING_FETCHED

    async def view(self, fn: Callable[[View], T], *, attempts_max: int = 16) -> T:
        """See `Store.view`."""
        view = self._durable_view()
        return await self._run(fn, Fetched(), attempts_max) if view is None else fn(view)

    async def transact(self, fn: Callable[["BufferedTransaction"], T], *, attempts_max: int = 16) -> T:
        """See `Store.transact`."""
        return await self._run(fn, self._begin(), attempts_max)

    async def _run(self, fn: Callable[["BufferedTransaction"], T], fetched: Fetched, attempts_max: int) -> T:
        lost: Conflict | None = None
        attempt = fetches = 0
        while attempt < attempts_max:
            fetched.begin()
            tx = BufferedTransaction(self, fetched)
            try:
                result = fn(tx)
            except Missing as missing:
                fetches += 1
                assert fetches <= FETCHES_MAX, "a function of transact reads without end"
                await self._fetch(missing, fetched)
                continue
            except Conflict as conflict:
                lost = conflict
            except NeedsCoordinator as needed:
                lost = await self._disproof(tx)
                if lost is None:
                    await needed.resolve()
            except Exception:
                lost = await self._disproof(tx)
                if lost is None:
                    raise
            else:
                lost = await self._finish(tx)
                if lost is None:
                    return result
            if fetched.start_over(lost):
                continue
            attempt += 1
            if attempt < attempts_max:
                await asyncio.sleep(random.uniform(0, min(BACKOFF_S_MAX, BACKOFF_S_BASE * 2**attempt)))
        raise TransactionContended(lost.key if lost else b"", attempts_max) from lost

    async def _finish(self, tx: "BufferedTransaction") -> Conflict | None:
        """Commit; the conflict if what was read is no longer so."""
        if not tx.followers and not tx.has_writes:
            return await self._disproof(tx)
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

    async def _disproof(self, tx: "BufferedTransaction") -> Conflict | None:
        """Why what the function decided without a write may not be believed: it was made from a torn, an outdated or an
        undurable view. None: it was not."""
        if tx.needs_check:
            conflict = await self._check(tx)
            if conflict is not None:
                return conflict
        if tx.undurable_revision:
            await self._wait_durable(tx.undurable_revision)
        return None

    async def _check(self, tx: "BufferedTransaction") -> Conflict | None:
        batch, fetched = tx.batch, tx.fetched
        if fetched.is_unverified and not batch.expect_ranges:
            # A read waits for no writer, and brings what the next attempt needs.
            fetched.clear()
            await self._fetch(Missing(list(batch.expects)), fetched)
            return fetched.verified(batch.expects)
        try:
            await self.commit(Batch(batch.expects, batch.expect_ranges, read_stamp=batch.read_stamp))
        except Conflict as conflict:
            return conflict
        return None


class BufferedTransaction:
    """One attempt of a transaction; the `Transaction` of the port."""

    __slots__ = ("_seen", "_store", "batch", "fetched", "followers", "undurable_revision")

    def __init__(self, store: TransactMixin, fetched: Fetched) -> None:
        self._store = store
        self.fetched = fetched
        self._seen: dict[bytes, Record | None] = {}  # What was read, and over it what was written.
        self.batch = Batch(read_stamp=store._read_stamp())
        self.followers: list[Callable[[int], None]] = []
        self.undurable_revision = 0

    @property
    def has_writes(self) -> bool:
        return bool(self.batch.puts or self.batch.deletes)

    @property
    def needs_check(self) -> bool:
        """What one statement has shown, or one point read, is true at one moment by itself; two reads may not be."""
        if self.fetched.is_unverified:
            return True
        if self.fetched.is_of_one_moment:
            return False
        return len(self.batch.expects) > 1 or bool(self.batch.expect_ranges)

    def get(self, key: bytes) -> Record | None:
        if key in self._seen:
            return self._seen[key]
        record = self._store._tx_get(key, self.fetched)
        self._remember(key, record)
        return record

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        unread = [key for key in keys if key not in self._seen]
        if unread:
            found = self._store._tx_get_many(unread, self.fetched)
            for key in unread:
                self._remember(key, found.get(key))
        records = {key: self._seen[key] for key in keys}
        return {key: record for key, record in records.items() if record is not None}

    def range(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False, expected: bool = False
    ) -> list[Record]:
        batch = self.batch
        hidden = sum(1 for key in batch.deletes if _within(key, start, end))
        read = RangeRead(start, end, limit + hidden, reverse)
        records, revision = self._store._tx_range(read, self.fetched)
        self.undurable_revision = max(self.undurable_revision, revision)
        if expected:
            self._expect_range(read, records, revision)
        merged = {record.key: record for record in records if record.key not in batch.deletes}
        for key in batch.puts:
            if _within(key, start, end) and (own := self._seen[key]) is not None:
                merged[key] = own
        return [merged[key] for key in sorted(merged, reverse=reverse)[:limit]]

    def prefetch(self, keys: Callable[[], Sequence[bytes]]) -> None:
        self._store._tx_prefetch(keys, self.fetched)

    def put(self, key: bytes, value: bytes, *, blobs: tuple[str, ...] = ()) -> None:
        batch = self.batch
        batch.deletes.discard(key)
        batch.puts[key] = value
        if blobs:
            batch.blobs[key] = blobs
        elif batch.blobs:
            batch.blobs.pop(key, None)
        self._seen[key] = Record(key, value, 0, 0, 0)

    def delete(self, key: bytes) -> None:
        batch = self.batch
        batch.puts.pop(key, None)
        batch.blobs.pop(key, None)
        batch.deletes.add(key)
        self._seen[key] = None

    def after_commit(self, follower: Callable[[int], None]) -> None:
        self.followers.append(follower)

    def _remember(self, key: bytes, record: Record | None) -> None:
        self._seen[key] = record
        self.batch.expects[key] = ABSENT if record is None else record.mod_revision
        undurable = self._store._undurable_revision(key)
        self.undurable_revision = max(self.undurable_revision, undurable)

    def _expect_range(self, read: RangeRead, records: list[Record], revision: int) -> None:
        """Only what was seen is expected: a full page says nothing about the keys behind its last one."""
        start, end = read.start, read.end
        if len(records) >= read.limit:
            if read.reverse:
                start = records[-1].key
            else:
                end = next_key(records[-1].key)
        self.batch.expect_ranges.append(RangeExpectation(start, end, revision))


def _within(key: bytes, start: bytes, end: bytes | None) -> bool:
    return start <= key and (end is None or key < end)


def check_range_limit(limit: int, limit_max: int) -> None:
    """Refuse a limit that the port does not allow."""
    if not 0 < limit <= limit_max:
        raise InvalidBatch(f"range limit {limit} is not within 1…{limit_max}")
