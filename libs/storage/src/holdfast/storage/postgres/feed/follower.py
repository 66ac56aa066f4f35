"""Following the database: what any process committed is read from `changes`, told to the cache and published in order.

A NOTIFY is only a hint to look; it may be lost, doubled or made up. What is published comes from the table. Events are made
only of keys that are watched or cached; without any, the newest revision is all that is asked for.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from holdfast.storage.errors import Compacted, StorageError, StoreCorrupt
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import ABSENT, Batch, Demand, Event, HistoryPage, Record
from holdfast.storage.postgres.connection import Connections, Row
from holdfast.storage.postgres.fault import READ_RETRY_S, retried
from holdfast.storage.postgres.feed.cache import RecordCache
from holdfast.storage.postgres.feed.hedge import hedged_fetch
from holdfast.storage.postgres.group import Committed
from holdfast.storage.watch import HubWatch, WatchHub

PAGE_EVENTS = 1000
UNAWAITED_PAUSE_S = 0.05

_log = logging.getLogger(__name__)

_REVISION = "SELECT revision FROM store"
# Whole revisions only: the page ends with the revision of its last row, or where the store is.
_PAGE = """
WITH page AS (
    SELECT s.compacted_revision, s.revision AS newest, coalesce(
        (SELECT revision FROM changes WHERE revision > $1 ORDER BY revision, seq OFFSET $2 LIMIT 1), s.revision
    ) AS revision
    FROM store s
)
SELECT p.compacted_revision, p.newest, p.revision,
    c.revision, c.key, c.value, c.create_revision, c.version, {previous}
FROM page p LEFT JOIN changes c ON c.revision > $1 AND c.revision <= p.revision {wanted}
ORDER BY c.revision, c.seq
"""
_PREVIOUS = "c.prev_value, c.prev_create_revision, c.prev_mod_revision, c.prev_version"
_NO_PREVIOUS = "NULL, NULL, NULL, NULL"
_WITHIN = "AND EXISTS (SELECT FROM unnest($3::bytea[], $4::bytea[]) AS w(first, last) WHERE c.key >= w.first AND c.key < w.last)"
_HISTORY = _PAGE.format(previous=_PREVIOUS, wanted="")
_QUERIES = {
    (with_previous, is_narrow): _PAGE.format(
        previous=_PREVIOUS if with_previous else _NO_PREVIOUS, wanted=_WITHIN if is_narrow else ""
    )
    for with_previous in (False, True)
    for is_narrow in (False, True)
}


class _Page(NamedTuple):
    """Changes as rows of revision, key and what `change_event` takes besides."""

    changes: list[Row]
    revision: int
    newest: int
    """Where the store was."""


class _Wanted(NamedTuple):
    """What is asked of the changes."""

    with_previous: bool
    ranges: tuple[tuple[bytes, bytes], ...] | None
    """None: all of them."""


class Follower:
    """Keeps the hub and the cache at the database's newest revision."""

    def __init__(
        self,
        connections: Connections,
        cache: RecordCache,
        options: StoreOptions,
        *,
        revision: int,
        compacted_revision: int = 0,
    ) -> None:
        self._connections = connections
        self._cache = cache
        self._poll_interval_s = options.postgres_poll_interval_s
        self._hub = WatchHub(
            self.history,
            buffer_events_max=options.watch_buffer_events_max,
            revision=revision,
            on_awaited=self._awaited,
        )
        self.on_awaited: Callable[[], None] = lambda: None
        """Called when a caller begins to wait for what other processes do."""
        self._committed_revision = revision
        self.compacted_revision = compacted_revision  # The newest that this process has seen.
        self._has_news = asyncio.Event()
        self._is_hurried = asyncio.Event()
        self._looked_at_s = 0.0

    @property
    def revision(self) -> int:
        """The newest one known to be durable; the hub may be a moment behind."""
        return max(self._committed_revision, self._hub.revision)

    @property
    def is_awaited(self) -> bool:
        return self._hub.is_awaited

    def _awaited(self) -> None:
        self._has_news.set()
        self._is_hurried.set()
        self.on_awaited()

    @property
    def watches(self) -> int:
        return self._hub.watches

    def watch(
        self,
        start: bytes,
        end: bytes | None,
        after: int | None,
        *,
        with_previous: bool,
        demand: Demand | None,
        foreign_only: bool,
    ) -> HubWatch:
        return self._hub.watch(
            start,
            end,
            after=after,
            with_previous=with_previous,
            floor=self.revision,
            demand=demand,
            foreign_only=foreign_only,
        )

    def committed(self, revision: int, batches: Sequence[Committed]) -> None:
        """This process has committed up to here, and these batches with their revisions last."""
        for batch, at in batches:
            is_next = at == self._hub.revision + 1  # No other process has committed in between.
            is_told = is_next and bool(batch.puts or batch.deletes) and self._publish_own(batch, at)
            self._cache.committed(batch, at)
            if is_told:
                self._cache.told(at)
        if revision <= self._committed_revision:
            return
        self._committed_revision = revision
        if revision > self._hub.revision:
            if self._needs_events:
                self._has_news.set()
            else:
                self._skip_to(revision)

    def _publish_own(self, batch: Batch, revision: int) -> bool:
        """Without reading it back, if what it changed is known in full: by what it expected, and by the cache."""
        events: list[Event] = []
        for key, value in (*batch.puts.items(), *((key, None) for key in sorted(batch.deletes))):
            if not self._hub.wants_own(key):
                continue
            expected = batch.expects.get(key)
            previous = None if expected == ABSENT else self._cache.record_at(key, expected)
            if previous is None and expected != ABSENT:
                return False
            if value is not None:
                record = Record.after(previous, key, value, revision)
                events.append(Event(revision, key, record, previous))
            elif previous is not None:
                events.append(Event(revision, key, None, previous))
        self._hub.publish_own(revision, events)
        return True

    def restored(self, revision: int) -> None:
        """The store was filled from a snapshot."""
        self._cache.lost()
        self.committed(revision, ())

    def compacted(self, revision: int) -> None:
        """History up to here is gone, says the database."""
        self.compacted_revision = max(self.compacted_revision, revision)

    def noticed(self, notice: str) -> None:
        """A NOTIFY came, with a revision; most are the echo of this process's own commits."""
        if len(notice) > 19 or not notice.isdecimal() or int(notice) > self.revision:
            self._has_news.set()

    def close(self) -> None:
        self._hub.close()

    async def past(self, start: bytes, end: bytes | None, after: int) -> HistoryPage:
        return await self._hub.past(start, end, after)

    async def history(self, after: int, events_limit: int) -> HistoryPage:
        """See WatchHub."""
        page = await self._page(_HISTORY, after, events_limit)
        return HistoryPage([change_event(row) for row in page.changes], page.revision)

    async def _page(self, query: str, after: int, events_limit: int, *ranges: list[bytes]) -> _Page:
        async def attempt() -> list[Row]:
            return await hedged_fetch(self._connections, query, after, max(0, events_limit - 1), *ranges)

        rows = await retried(attempt, for_s=READ_RETRY_S)
        compacted_revision, newest, page_revision = rows[0][:3]
        self.compacted(compacted_revision)
        if after < compacted_revision:
            raise Compacted(after, compacted_revision)
        return _Page([row[3:] for row in rows if row[3] is not None], page_revision, newest)

    async def run(self) -> None:
        """Look at every hint, and now and then without one. Ends only by cancellation."""
        while True:
            with suppress(TimeoutError):
                # Not all processes at once.
                async with asyncio.timeout(self._poll_interval_s * random.uniform(0.8, 1.0)):
                    await self._has_news.wait()
            self._is_hurried.clear()
            if (pause_s := self._pause_s()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._is_hurried.wait()
            self._has_news.clear()
            await self._look()
            self._looked_at_s = time.monotonic()

    def _pause_s(self) -> float:
        """Until the next look. While no caller in this process waits for what others do, one look takes in what several hints
        told of: under load every commit of every process is one, and what is cached may be a moment old."""
        if self._hub.is_awaited:
            return 0.0
        return max(0.0, self._looked_at_s + UNAWAITED_PAUSE_S - time.monotonic())

    async def _look(self) -> None:
        try:
            await self._catch_up()
        except Compacted as error:
            self._start_over(error)
        except StorageError as error:
            self._cache.lost()
            _log.debug("watches wait for PostgreSQL: %s", error.detail)

    async def _catch_up(self) -> None:
        if not self._needs_events:
            await self._catch_up_unwatched()
            return
        while True:
            after, wanted = self._hub.revision, self._wanted()
            query = _QUERIES[wanted.with_previous, wanted.ranges is not None]
            bounds = () if wanted.ranges is None else _columns(wanted.ranges)
            page = await self._page(query, after, PAGE_EVENTS, *bounds)
            self._check_progress(after, page.revision)
            if self._wanted() != wanted:
                continue  # A watch or a cached record came meanwhile that is owed more.
            if wanted.ranges is not None:
                self._cache.skipped(page.revision)
            self._publish(page)
            if page.revision >= page.newest:
                self._cache.followed(self._hub.revision)
                return

    def _wanted(self) -> _Wanted:
        """What is cached may have any key; where nothing is, as in a process that serves other calls than those that write
        now, the database leaves out what is not watched."""
        return _Wanted(self._hub.wants_previous, None if self._cache else self._hub.watched_ranges())

    @property
    def _needs_events(self) -> bool:
        return self._hub.is_watched or bool(self._cache)

    async def _catch_up_unwatched(self) -> None:
        after = self._hub.revision
        [[revision]] = await hedged_fetch(self._connections, _REVISION)
        self._check_progress(after, revision)
        # A watch or a cached record that came meanwhile needs the events, and gets them at the next look.
        if self._needs_events:
            self._has_news.set()
            return
        if revision > self._hub.revision:
            self._skip_to(revision)
        self._cache.followed(self._hub.revision)

    def _skip_to(self, revision: int) -> None:
        self._cache.skipped(revision)
        self._hub.skip_to(revision)

    def _publish(self, page: _Page) -> None:
        events: dict[int, list[Event]] = {}
        for row in page.changes:
            if (event := self._told(row)) is not None:
                events.setdefault(event.revision, []).append(event)
        for revision in range(self._hub.revision + 1, page.revision + 1):
            self._hub.publish(revision, events.get(revision, []))
        self._cache.told(self._hub.revision)

    def _told(self, row: Row) -> Event | None:
        """Tell the cache; the event, if it is watched."""
        revision, key = row[0], row[1]
        is_wanted = self._hub.wants(key)
        if not is_wanted and key not in self._cache:
            self._cache.passed(key, revision)
            return None
        event = change_event(row)
        self._cache.changed(key, event.record, revision)
        return event if is_wanted else None

    def _check_progress(self, before: int, now: int) -> None:
        """What was durable stays: a smaller revision means another, older database answers under this address."""
        if now < before:
            error = StoreCorrupt(
                f"the database went back from revision {before} to {now}: it was restored or failed over to an "
                "old copy; restart this process"
            )
            self._hub.fail(error)
            raise error

    def _start_over(self, error: Compacted) -> None:
        """The hub fell behind the kept history: watches have missed events and must be told."""
        _log.warning("watches are ended: %s", error.detail)
        self._cache.lost()
        self._hub.interrupt(error)
        self._hub.skip_to(max(error.oldest_revision, self._hub.revision))


def _columns(ranges: Sequence[tuple[bytes, bytes]]) -> tuple[list[bytes], list[bytes]]:
    """As the query takes them, also when the last watch has ended meanwhile and there are none."""
    return [first for first, _ in ranges], [last for _, last in ranges]


def change_event(row: Row) -> Event:
    """From revision, key, value, create revision and version of a change, and the four of the record before it."""
    revision, key, value, create, version, prev_value, prev_create, prev_mod, prev_version = row
    return Event(
        revision,
        key,
        None if value is None else Record(key, value, create, revision, version),
        None if prev_mod is None else Record(key, prev_value, prev_create, prev_mod, prev_version),
    )
