"""A slow walk over all records of one kind, page by page, again and again: for what is only found by looking.

One process of a store walks at a time. How far it came is a record, so that a restart goes on there, and another process
takes over from one that is silent. That is economy, not a lock: what is done with a page must be safe from any number
of processes at once.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from holdfast.common.background import background
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.keys import next_key
from holdfast.storage.port import Record, Store, Transaction
from holdfast.storage.records_pb2 import JanitorProgress
from holdfast.storage.tables import Table

PAGE_RECORDS: Final = 250  # Looking at them takes a millisecond or two of the loop …
STEP_RECORDS: Final = 50  # … and so does doing away with these.
SAY_S: Final = 10.0  # How often a walk under way says how far it came …
SILENT_S: Final = 60.0  # … and how long it may say nothing before another process goes on with it.
RETRY_S: Final = 30.0

_PROGRESS = Table("sys", JanitorProgress)
_log = get_logger("storage.janitor")


class JanitorPace(NamedTuple):
    """A pass begins every `interval_s`; `pause_s` lies between two of its pages."""

    interval_s: float
    pause_s: float


class Janitor:
    """`visit` gets each page of [start, end) and returns how many records it did away with."""

    def __init__(
        self,
        store: Store,
        name: str,
        bounds: tuple[bytes, bytes],
        visit: Callable[[Sequence[Record]], Awaitable[int]],
        *,
        pace: JanitorPace,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._name = name
        self._start, self._end = bounds
        self._visit = visit
        self._pace = pace
        self._now_ms = now_ms

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with background(self._run(), name=f"janitor.{self._name}"):
            yield

    async def _run(self) -> None:
        # Servers that restart all the time would do nothing else if each began with a walk.
        await asyncio.sleep(min(self._pace.interval_s, SILENT_S))
        while True:
            try:
                await self.walk()
                wait_s = await self._until_due_s()
            except HoldfastError as error:
                warn_unless_told(_log, "janitor.failed", error, name=self._name)
                wait_s = RETRY_S * random.uniform(0.5, 1.5)  # Other processes met the same.
            await asyncio.sleep(wait_s)

    async def walk(self) -> int:
        """One pass, or the rest of one, if it is time for it; how many records are gone by it."""
        position = await self._store.transact(self._claim)
        if position is None:
            return 0
        removed = looked_at = 0
        said_at_ms = self._now_ms()
        while records := await self._store.range(position, self._end, limit=PAGE_RECORDS):
            removed += await self._visit(records)
            looked_at += len(records)
            position = next_key(records[-1].key)
            if self._now_ms() - said_at_ms >= SAY_S * 1000:
                said_at_ms = self._now_ms()
                await self._say(position)
            await asyncio.sleep(self._pace.pause_s)
        await self._say(b"")
        if removed:
            _log.info("janitor.pass.done", name=self._name, looked_at=looked_at, removed=removed)
        return removed

    def _claim(self, tx: Transaction) -> bytes | None:
        """Where to go on; None: it is not time, or another process is at it."""
        progress = _PROGRESS.get(tx, "janitor", self._name) or JanitorProgress()
        if self._due_in_s(progress) > 0:
            return None
        if not progress.after_key:
            progress.started_at_ms = self._now_ms()
            progress.after_key = self._start
        progress.seen_at_ms = self._now_ms()
        _PROGRESS.put(tx, progress, "janitor", self._name)
        return progress.after_key

    def _due_in_s(self, progress: JanitorProgress) -> float:
        since_ms, every_s = progress.started_at_ms, self._pace.interval_s
        if progress.after_key:
            since_ms, every_s = progress.seen_at_ms, SILENT_S
        passed_s = (self._now_ms() - since_ms) / 1000
        # A time to come was written by a clock that was wrong; waiting for it could take years.
        return every_s - passed_s if passed_s >= 0 else 0.0

    async def _until_due_s(self) -> float:
        progress = await _PROGRESS.fetch(self._store, "janitor", self._name) or JanitorProgress()
        return max(0.01, self._due_in_s(progress))

    async def _say(self, after_key: bytes) -> None:
        def say(tx: Transaction) -> None:
            progress = _PROGRESS.get(tx, "janitor", self._name) or JanitorProgress()
            progress.seen_at_ms = self._now_ms()
            progress.after_key = after_key
            _PROGRESS.put(tx, progress, "janitor", self._name)

        await self._store.transact(say)
