"""Watches of the key space: history from the log, then what is committed, without a gap between the two.

    CATCHING UP  --reads the log page by page until it meets the hub's revision-->  LIVE
    LIVE         --does not take what its buffer holds-->                           CATCHING UP, from the log again

The hub follows the log of the store while anybody watches, decodes each revision once and hands it to every live watch.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextvars import Context
from typing import Final, NamedTuple

from holdfast.common.backoff import Backoff
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.state.layer.kv.errors import RevisionCompacted
from holdfast.state.layer.kv.operation import Event, KeyValue, WatchRequest
from holdfast.state.layer.kv.records import (
    LOG,
    content_in,
    content_keys,
    event_of,
    is_within,
    key_value,
    log_bounds,
    read_progress,
    record_of,
    revision_of,
)
from holdfast.state.layer.records_pb2 import KvEvent, KvProgress, KvRecord
from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.keys import next_key
from holdfast.storage.port import Record, Store

LOG_RECORDS_PAGE: Final = 64
"""Each is one event, with at most half a megabyte."""
BUFFER_BYTES_MAX: Final = 16 << 20
"""Of changes that a watch has not told; all watches share what they have of them."""
BUFFER_REVISIONS_MAX: Final = 4096
FOLLOWING_S_MAX: Final = 10.0

_log = get_logger("state.kv.watch")


class WatchCompacted(RevisionCompacted):
    """What the watch would have to tell next is gone; it may start again from `compact_revision`."""

    def __init__(self, compact_revision: int) -> None:
        super().__init__()
        self.compact_revision = compact_revision


class WatchEnded(Exception):
    """The watch was told to end; what it has not told yet is in the log."""


class Change(NamedTuple):
    """One revision, decoded once for all who watch."""

    revision: int
    events: list[Event]
    size_bytes: int
    has_previous: bool
    """Its events have what was there before; else no watch wanted that when they were decoded."""


class WatchBatch(NamedTuple):
    """What a watch tells next: a whole revision, or several of the past. `revision` is one that the key space has reached."""

    revision: int
    events: list[Event]


class KvWatch:
    """One watch; it is registered from the moment it is made."""

    def __init__(self, hub: "KvHub", request: WatchRequest, revision: int) -> None:
        self.created_revision = revision
        self.request = request
        self.next_revision = request.start_revision if request.start_revision > 0 else revision + 1
        self._hub = hub
        self._buffer: deque[Change] = deque()
        self._buffered_bytes = 0
        self._is_live = False
        self._is_closed = False
        self._is_ended = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def told_revision(self) -> int:
        """What was committed up to here, and is wanted, has been told."""
        if self._is_live and not self._buffer:
            return self._hub.revision
        return min(self.next_revision - 1, self._hub.revision)

    async def next(self) -> WatchBatch:
        """Wait for what comes next that the request wants to hear of."""
        while not self._is_ended:
            if self._buffer:
                change = self._take()
                events = self._wanted(change.events)
                if events:
                    return WatchBatch(change.revision, events)
            elif self._is_live:
                await self._sleep()
            else:
                batch = await self._catch_up()
                if batch is not None:
                    return batch
        raise WatchEnded

    def end(self) -> None:
        """Wake who waits for what comes next: nothing does."""
        self._is_ended = True
        self._wake()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._buffer.clear()
            self._hub.remove(self)

    def deliver(self, change: Change) -> None:
        """Called by the hub with each revision, while this is live."""
        if not self._is_live or change.revision < self.next_revision:
            return
        if not self._covers_any(change.events):
            if not self._buffer:
                self.next_revision = change.revision + 1
            return
        if self.request.prev_kv and not change.has_previous:
            self.fall_back()
            return
        self._buffer.append(change)
        self._buffered_bytes += change.size_bytes
        if len(self._buffer) > BUFFER_REVISIONS_MAX or self._buffered_bytes > BUFFER_BYTES_MAX:
            self.fall_back()
        self._wake()

    def fall_back(self) -> None:
        """Go on from the log: the buffer is full, or the hub missed something."""
        self._is_live = False
        self._buffer.clear()
        self._buffered_bytes = 0
        self._wake()

    def _take(self) -> Change:
        change = self._buffer.popleft()
        self._buffered_bytes -= change.size_bytes
        self.next_revision = change.revision + 1
        return change

    async def _catch_up(self) -> WatchBatch | None:
        if self.join():
            return None
        changes, progress = await self._hub.history(self.next_revision, with_previous=self.request.prev_kv)
        if self.next_revision < progress.compacted:
            raise WatchCompacted(progress.compacted)
        if changes:
            self.next_revision = changes[-1].revision + 1
        else:
            self.next_revision = max(self.next_revision, progress.revision + 1)
        if not self.join() and not changes and not self._hub.is_following:
            await self._sleep()  # The hub wakes everybody when it follows the store.
        events = self._wanted(event for change in changes for event in change.events)
        return WatchBatch(max(progress.revision, changes[-1].revision), events) if events else None

    def join(self) -> bool:
        """Be live if the hub has told nothing yet of what this one waits for."""
        if self._hub.is_following and self.next_revision > self._hub.revision:
            self._is_live = True
        return self._is_live

    def _covers_any(self, events: list[Event]) -> bool:
        key, range_end = self.request.key, self.request.range_end
        return any(is_within(event.kv.key, key, range_end) for event in events)

    def _wanted(self, events: Iterable[Event]) -> list[Event]:
        request = self.request
        key, range_end = request.key, request.range_end
        return [
            event
            for event in events
            if is_within(event.kv.key, key, range_end)
            and not (request.no_delete if event.is_delete else request.no_put)
        ]

    async def _sleep(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class KvHub:
    """Tells every watch of this process what is committed, whoever commits it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watches: set[KvWatch] = set()
        self._task: asyncio.Task[None] | None = None
        self._asked = 0
        self._following = asyncio.Event()
        self.revision = 0

    def __len__(self) -> int:
        return len(self._watches)

    @property
    def is_following(self) -> bool:
        return self._following.is_set()

    async def watch(self, request: WatchRequest) -> KvWatch:
        """Live from now on, if it starts now: what is committed next is told one revision after the other."""
        self._asked += 1
        try:
            await self._followed()
            progress = await self._store.view(read_progress)
            watch = KvWatch(self, request, progress.revision)
            self._watches.add(watch)
        finally:
            self._asked -= 1
            self._stop_if_idle()
        watch.join()
        return watch

    def remove(self, watch: KvWatch) -> None:
        self._watches.discard(watch)
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        """Nobody pays for what nobody watches."""
        if not self._watches and not self._asked and self._task is not None:
            self._task.cancel()
            self._task = None
            self._following.clear()

    async def close(self) -> None:
        """Every watch ends, and nothing follows the store any more."""
        task = self._task
        for watch in list(self._watches):
            watch.end()
            watch.close()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def history(self, first: int, *, with_previous: bool) -> tuple[list[Change], KvProgress]:
        """Whole revisions from this one on, and how far the key space is at least.

        What was compacted meanwhile is looked at last: a compaction is noted before it removes anything. One view of all that
        would lose to writers again and again if the store is a remote one.
        """
        progress = await self._store.view(read_progress)
        start, end = log_bounds(first)
        records: list[Record] = []
        while True:
            page = await self._store.range(start, end, limit=LOG_RECORDS_PAGE)
            records += page
            if len(page) < LOG_RECORDS_PAGE or _has_whole_revision(records):
                break
            start = next_key(page[-1].key)
        progress.compacted = (await self._store.view(read_progress)).compacted
        return await self._decoded(records, with_previous), progress

    async def _followed(self) -> None:
        if self._task is None:
            # In a context of its own: it works for all watches, not for the request that came first.
            self._task = asyncio.create_task(self._follow(), name="kv.watch", context=Context())
        try:
            async with asyncio.timeout(FOLLOWING_S_MAX):
                await self._following.wait()
        except TimeoutError:
            raise StoreUnavailable("the changes of the store can't be followed now; try again") from None

    async def _follow(self) -> None:
        backoff = Backoff(None)
        while True:
            try:
                async with self._store.watch(*LOG.bounds()) as watch:
                    progress = await self._store.view(read_progress)
                    self.revision = progress.revision
                    self._following.set()
                    self._fall_back()
                    async for events in watch:
                        await self._told([event.record for event in events if event.record is not None])
                        backoff = Backoff(None)
            except HoldfastError as error:
                _log.warn("kv.watch.interrupted", reason=error.detail)
            except Exception as error:  # noqa: BLE001 - the edge of this task, which must go on
                _log.error("kv.watch.failed", exception=error)
            self._following.clear()
            self._fall_back()
            await backoff.pause()

    def _fall_back(self) -> None:
        for watch in list(self._watches):
            watch.fall_back()

    async def _told(self, records: list[Record]) -> None:
        with_previous = any(watch.request.prev_kv for watch in self._watches)
        for change in await self._decoded(records, with_previous):
            if change.revision <= self.revision:
                continue
            self.revision = change.revision
            for watch in self._watches:
                watch.deliver(change)

    async def _decoded(self, records: list[Record], with_previous: bool) -> list[Change]:
        """Whole revisions; one whose last event is not among the records is left out."""
        changes: list[Change] = []
        events: list[Event] = []
        missing = size = 0
        for record in records:
            event = event_of(record.value)
            revision = revision_of(record.key)
            if event.count:
                events, missing, size = [], event.count, 0
            events.append(await self._event(event, revision, with_previous))
            missing -= 1
            size += len(record.value)
            if not missing:
                changes.append(Change(revision, events, size, with_previous))
        return changes

    async def _event(self, event: KvEvent, revision: int, with_previous: bool) -> Event:
        previous = None
        if event.previous and with_previous:
            record = record_of(event.previous)
            previous = key_value(event.key, record, await self._value(record))
        if not event.record:
            return Event(KeyValue(event.key, b"", 0, revision, 0), previous)
        record = record_of(event.record)
        value = event.value or await self._value(record)
        return Event(key_value(event.key, record, value), previous)

    async def _value(self, record: KvRecord) -> bytes:
        if not record.value_bytes:
            return record.value
        keys = content_keys(record)
        found = await self._store.get_many(keys)
        if len(found) < len(keys):
            progress = await self._store.view(read_progress)
            raise WatchCompacted(progress.compacted)
        return content_in(found, record)


def _has_whole_revision(records: list[Record]) -> bool:
    """Whether the first one is complete."""
    return event_of(records[0].value).count <= len(records)
