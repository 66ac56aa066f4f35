"""Transactions over any store: remembered reads become expectations, writes wait in a batch, a conflict runs again.

What a function decided, its result as well as its error, is handed out only when (1) everything it read is durable
and (2) what it read was true at one moment: by the commit itself, or by a batch of expectations alone.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from holdfast.storage.errors import Conflict, InvalidBatch, TransactionContended
from holdfast.storage.keys import next_key
from holdfast.storage.port import ABSENT, NO_STAMP, Batch, RangeExpectation, Record

BACKOFF_S_BASE = 0.001
BACKOFF_S_MAX = 0.1

T = TypeVar("T")


class Elsewhere(Exception):
    """Raised inside of a transaction: another process has to act first. The transaction ends without a write, `settle`
    is awaited while none is open, and the function runs again and finds what was done."""

    async def settle(self) -> None:
        raise NotImplementedError


class TransactMixin:
    """Gives a store `transact`. The hooks below are what a transaction reads through."""

    async def _tx_get(self, key: bytes) -> Record | None:
        raise NotImplementedError

    async def _tx_get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        raise NotImplementedError

    async def _tx_range(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool
    ) -> tuple[list[Record], int]:
        """The records and the revision they were read at."""
        raise NotImplementedError

    async def commit(self, batch: Batch) -> int:
        raise NotImplementedError

    def _unsettled_revision(self, key: bytes) -> int:
        """The revision of what `_tx_get` shows of this key if it is not durable yet, else 0."""
        return 0

    def _read_stamp(self) -> int:
        """The same as long as nothing was committed; NO_STAMP if the store can't tell."""
        return NO_STAMP

    async def _settle(self, revision: int) -> None:
        """Return once `revision` is durable; raise if it never will be."""

    async def transact(
        self, fn: Callable[["BufferedTransaction"], Awaitable[T]], *, attempts_max: int = 16
    ) -> T:
        """See `Store.transact`."""
        lost: Conflict | None = None
        for attempt in range(attempts_max):
            if attempt:
                await asyncio.sleep(random.uniform(0, min(BACKOFF_S_MAX, BACKOFF_S_BASE * 2**attempt)))
            tx = BufferedTransaction(self)
            try:
                result = await fn(tx)
            except Conflict as conflict:
                lost = conflict
                continue
            except Elsewhere as elsewhere:
                if await self._reads_hold(tx):
                    await elsewhere.settle()
                continue
            except Exception:
                if await self._reads_hold(tx):
                    raise
                continue
            try:
                await self._finish(tx)
            except Conflict as conflict:
                lost = conflict
                continue
            return result
        raise TransactionContended(lost.key if lost else b"", attempts_max) from lost

    async def _finish(self, tx: "BufferedTransaction") -> None:
        if tx.followers:
            # The commit happens without its caller too, and whoever follows it must be told of it then.
            await asyncio.shield(asyncio.ensure_future(self._commit_and_tell(tx)))
        elif tx.has_writes or tx.needs_check:
            await self.commit(tx.batch)
        if tx.unsettled_revision:
            await self._settle(tx.unsettled_revision)

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
        if tx.unsettled_revision:
            await self._settle(tx.unsettled_revision)
        return True


class BufferedTransaction:
    """One attempt of a transaction; the `Transaction` of the port."""

    __slots__ = ("_seen", "_store", "batch", "followers", "unsettled_revision")

    def __init__(self, store: TransactMixin) -> None:
        self._store = store
        self._seen: dict[bytes, Record | None] = {}  # What was read, and over it what was written.
        self.batch = Batch(read_stamp=store._read_stamp())
        self.followers: list[Callable[[int], None]] = []
        self.unsettled_revision = 0

    @property
    def has_writes(self) -> bool:
        return bool(self.batch.puts or self.batch.deletes)

    @property
    def needs_check(self) -> bool:
        """One point read is true at one moment by itself; two reads may not be."""
        return len(self.batch.expects) > 1 or bool(self.batch.expect_ranges)

    async def get(self, key: bytes) -> Record | None:
        if key in self._seen:
            return self._seen[key]
        record = await self._store._tx_get(key)
        self._remember(key, record)
        return record

    async def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        unread = [key for key in keys if key not in self._seen]
        if unread:
            found = await self._store._tx_get_many(unread)
            for key in unread:
                self._remember(key, found.get(key))
        records = {key: self._seen[key] for key in keys}
        return {key: record for key, record in records.items() if record is not None}

    async def range(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False, expected: bool = False
    ) -> list[Record]:
        batch = self.batch
        hidden = sum(1 for key in batch.deletes if _within(key, start, end))
        records, revision = await self._store._tx_range(start, end, limit=limit + hidden, reverse=reverse)
        self.unsettled_revision = max(self.unsettled_revision, revision)
        if expected:
            self._expect_range(start, end, records, revision, limit + hidden, reverse=reverse)
        merged = {record.key: record for record in records if record.key not in batch.deletes}
        for key in batch.puts:
            if _within(key, start, end) and (own := self._seen[key]) is not None:
                merged[key] = own
        return [merged[key] for key in sorted(merged, reverse=reverse)[:limit]]

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
        unsettled = self._store._unsettled_revision(key)
        self.unsettled_revision = max(self.unsettled_revision, unsettled)

    def _expect_range(
        self,
        start: bytes,
        end: bytes | None,
        records: list[Record],
        revision: int,
        limit: int,
        *,
        reverse: bool,
    ) -> None:
        """Only what was seen is expected: a full page says nothing about the keys behind its last one."""
        if len(records) >= limit:
            if reverse:
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
