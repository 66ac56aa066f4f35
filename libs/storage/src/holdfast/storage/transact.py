"""Transactions over any store: a plain function reads, decides and buffers writes; the commit checks what it read.

A local store answers every read of the function at once. A remote one answers what was fetched for this transaction; for
anything else the read raises `Missing`, all that is missing is fetched in one round trip, and the function runs again.
Reads become expectations of the batch, so a conflict runs the function again on fresh data.

What a function decided, its result as well as its error, is handed out only when (1) everything it read is durable
and (2) what it read was true at one moment: by the commit itself, or by a batch of expectations alone.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from holdfast.storage.errors import Conflict, InvalidBatch, TransactionContended
from holdfast.storage.keys import next_key
from holdfast.storage.port import ABSENT, NO_STAMP, Batch, RangeExpectation, Record, View

BACKOFF_S_BASE = 0.001
BACKOFF_S_MAX = 0.1
FETCHES_MAX = 10_000  # More than the keys of any batch: a function that reads without end is a defect.

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


class Fetched:
    """What was fetched for one transaction; None for a key that does not exist. A range carries the revision it was
    read at."""

    __slots__ = ("ranges", "records")

    def __init__(self) -> None:
        self.records: dict[bytes, Record | None] = {}
        self.ranges: dict[RangeRead, tuple[list[Record], int]] = {}

    def clear(self) -> None:
        self.records.clear()
        self.ranges.clear()

    def get(self, key: bytes) -> Record | None:
        try:
            return self.records[key]
        except KeyError:
            raise Missing([key]) from None

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        self.require(keys)
        found = ((key, self.records[key]) for key in keys)
        return {key: record for key, record in found if record is not None}

    def range(self, read: RangeRead) -> tuple[list[Record], int]:
        try:
            return self.ranges[read]
        except KeyError:
            raise Missing(ranges=[read]) from None

    def require(self, keys: Sequence[bytes]) -> None:
        missing = [key for key in keys if key not in self.records]
        if missing:
            raise Missing(missing)


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

    async def view(self, fn: Callable[[View], T], *, attempts_max: int = 16) -> T:
        """See `Store.view`."""
        view = self._durable_view()
        return await self.transact(fn, attempts_max=attempts_max) if view is None else fn(view)

    async def transact(self, fn: Callable[["BufferedTransaction"], T], *, attempts_max: int = 16) -> T:
        """See `Store.transact`."""
        lost: Conflict | None = None
        fetched = Fetched()
        attempt = fetches = 0
        while attempt < attempts_max:
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
                if await self._reads_hold(tx):
                    await needed.resolve()
            except Exception:
                if await self._reads_hold(tx):
                    raise
            else:
                try:
                    await self._finish(tx)
                except Conflict as conflict:
                    lost = conflict
                else:
                    return result
            fetched.clear()
            attempt += 1
            if attempt < attempts_max:
                await asyncio.sleep(random.uniform(0, min(BACKOFF_S_MAX, BACKOFF_S_BASE * 2**attempt)))
        raise TransactionContended(lost.key if lost else b"", attempts_max) from lost

    async def _finish(self, tx: "BufferedTransaction") -> None:
        if tx.followers:
            # The commit happens without its caller too, and its followers must be told of it then.
            await asyncio.shield(asyncio.ensure_future(self._commit_and_tell(tx)))
        elif tx.has_writes or tx.needs_check:
            await self.commit(tx.batch)
        if tx.undurable_revision:
            await self._wait_durable(tx.undurable_revision)

    async def _commit_and_tell(self, tx: "BufferedTransaction") -> None:
        revision = await self.commit(tx.batch)
        for follower in tx.followers:
            follower(revision)

    async def _reads_hold(self, tx: "BufferedTransaction") -> bool:
        """Whether an error of the function may be believed: it was not made from a torn or an undurable view."""
        if tx.needs_check:
            try:
                await self.commit(
                    Batch(tx.batch.expects, tx.batch.expect_ranges, read_stamp=tx.batch.read_stamp)
                )
            except Conflict:
                return False
        if tx.undurable_revision:
            await self._wait_durable(tx.undurable_revision)
        return True


class BufferedTransaction:
    """One attempt of a transaction; the `Transaction` of the port."""

    __slots__ = ("_fetched", "_seen", "_store", "batch", "followers", "undurable_revision")

    def __init__(self, store: TransactMixin, fetched: Fetched) -> None:
        self._store = store
        self._fetched = fetched
        self._seen: dict[bytes, Record | None] = {}  # What was read, and over it what was written.
        self.batch = Batch(read_stamp=store._read_stamp())
        self.followers: list[Callable[[int], None]] = []
        self.undurable_revision = 0

    @property
    def has_writes(self) -> bool:
        return bool(self.batch.puts or self.batch.deletes)

    @property
    def needs_check(self) -> bool:
        """One point read is true at one moment by itself; two reads may not be."""
        return len(self.batch.expects) > 1 or bool(self.batch.expect_ranges)

    def get(self, key: bytes) -> Record | None:
        if key in self._seen:
            return self._seen[key]
        record = self._store._tx_get(key, self._fetched)
        self._remember(key, record)
        return record

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        unread = [key for key in keys if key not in self._seen]
        if unread:
            found = self._store._tx_get_many(unread, self._fetched)
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
        records, revision = self._store._tx_range(read, self._fetched)
        self.undurable_revision = max(self.undurable_revision, revision)
        if expected:
            self._expect_range(read, records, revision)
        merged = {record.key: record for record in records if record.key not in batch.deletes}
        for key in batch.puts:
            if _within(key, start, end) and (own := self._seen[key]) is not None:
                merged[key] = own
        return [merged[key] for key in sorted(merged, reverse=reverse)[:limit]]

    def prefetch(self, keys: Callable[[], Sequence[bytes]]) -> None:
        self._store._tx_prefetch(keys, self._fetched)

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
