"""Watches: committed events fan out to watchers, each in one of two states.

    CATCHING UP  --reads the backend's history page by page until it meets the hub's revision-->  LIVE
    LIVE         --its buffer is full-->  CUT OFF: what is buffered is still delivered, then WatcherTooSlow

The step from CATCHING UP to LIVE happens between two awaits, so no event falls between history and hub.
Publishing only appends to bounded buffers: a watcher never holds up a commit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import Self

from holdfast.storage.errors import FutureRevision, StorageError, StoreClosed, WatcherTooSlow
from holdfast.storage.keys import next_key
from holdfast.storage.port import KEY_BYTES_MAX, Demand, Event, HistoryPage

HISTORY_EVENTS_PAGE = 1000
_END = b"\xff" * (KEY_BYTES_MAX + 1)  # Behind every key.


History = Callable[[int, int], Awaitable[HistoryPage]]


class WatchHub:
    """Where a store publishes what became durable, one revision after the other."""

    def __init__(
        self,
        history: History,
        *,
        buffer_events_max: int,
        revision: int = 0,
        on_awaited: Callable[[], None] | None = None,
    ) -> None:
        self._on_awaited = on_awaited
        self.revision = revision
        self.history = history
        self.buffer_events_max = buffer_events_max
        self.by_key: dict[bytes, list[HubWatch]] = {}
        self._by_range: list[HubWatch] = []
        self._own_by_range: list[HubWatch] = []  # Those that are told of this process's own commits.
        self.first_watched: bytes = b""
        """No range watch begins before this key, and none covers `last_watched` or a key after it."""
        self.last_watched: bytes = b""
        self._with_previous = 0  # Live watches that ask for previous records.
        self._open: set[HubWatch] = set()
        self._ended: StorageError | None = None

    @property
    def is_watched(self) -> bool:
        """Whether events are worth making."""
        return bool(self.by_key or self._by_range)

    @property
    def wants_previous(self) -> bool:
        """Whether a live watch asks for the records before the changes."""
        return self._with_previous > 0

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for what a live watch tells."""
        watches = chain(self._by_range, *self.by_key.values())
        return any(watch.demand is None or watch.demand.is_active for watch in watches)

    def wants(self, key: bytes) -> bool:
        """Whether a live watch is told of this key: an event of any other need not be made."""
        return key in self.by_key or any(watch.covers(key) for watch in self._by_range)

    def wants_own(self, key: bytes) -> bool:
        """The same of a commit of this process."""
        return key in self.by_key or any(watch.covers(key) for watch in self._own_by_range)

    def watched_ranges(self) -> tuple[tuple[bytes, bytes], ...]:
        """What live watches cover."""
        keys = ((key, next_key(key)) for key in self.by_key)
        return (*keys, *((watch.start, _END if watch.end is None else watch.end) for watch in self._by_range))

    @property
    def watches(self) -> int:
        """How many are open."""
        return len(self._open)

    def watch(
        self,
        start: bytes,
        end: bytes | None,
        *,
        after: int | None = None,
        with_previous: bool = False,
        floor: int | None = None,
        demand: Demand | None = None,
        foreign_only: bool = False,
    ) -> "HubWatch":
        """`floor`: what counts as now when the hub itself may lag behind commits already answered."""
        if after is None:
            after = self.revision if floor is None else max(self.revision, floor)
        watch = HubWatch(self, start, end, after, with_previous, demand, foreign_only)
        self._open.add(watch)
        if self._ended is not None:
            watch.fail(self._ended)
        elif after >= self.revision:
            self.attach(watch)
        return watch

    async def past(self, start: bytes, end: bytes | None, after: int) -> HistoryPage:
        """A page of the history, narrowed to a range."""
        page = await self.history(after, HISTORY_EVENTS_PAGE)
        if page.revision < after:
            raise FutureRevision(after, page.revision)
        events = [event for event in page.events if start <= event.key and (end is None or event.key < end)]
        return HistoryPage(events, page.revision)

    def publish(self, revision: int, events: list[Event]) -> None:
        """Hand over the next revision. Every revision comes exactly once, in order, also one without events; those that no
        live watch wants may be left out."""
        self._publish(revision, events, self._by_range)

    def publish_own(self, revision: int, events: list[Event]) -> None:
        """The same of a commit of this process: watches of what others do are left out."""
        self._publish(revision, events, self._own_by_range)

    def _publish(self, revision: int, events: list[Event], by_range: "list[HubWatch]") -> None:
        assert revision == self.revision + 1, f"revision {revision} published after {self.revision}"
        self.revision = revision
        if not events:
            return
        if self.by_key:
            for event in events:
                for watch in self.by_key.get(event.key, ()):
                    watch.deliver([event])
        for watch in by_range:  # Replaced, never changed, while this walks over it.
            matching = [event for event in events if watch.covers(event.key)]
            if matching:
                watch.deliver(matching)

    def skip_to(self, revision: int) -> None:
        """Move on without events: the store was filled from a snapshot."""
        self.revision = revision

    def attach(self, watch: "HubWatch") -> None:
        watch.is_live = True
        if watch.end is not None and watch.end <= watch.start:
            return  # Of nothing: no event is made for it, it only hears of interruptions.
        self._with_previous += watch.with_previous
        if watch.end == next_key(watch.start):
            # Replaced, never changed: publish may be walking over the old list.
            self.by_key[watch.start] = [*self.by_key.get(watch.start, ()), watch]
        else:
            self._set_ranges([*self._by_range, watch])
        if self._on_awaited is None:
            return
        if watch.demand is not None:
            watch.demand.add_listener(self._on_awaited)
        if watch.demand is None or watch.demand.is_active:
            self._on_awaited()

    def detach(self, watch: "HubWatch") -> None:
        self._open.discard(watch)
        if not watch.is_live:
            return
        watch.is_live = False
        if watch.end is not None and watch.end <= watch.start:
            return
        self._with_previous -= watch.with_previous
        if self._on_awaited is not None and watch.demand is not None:
            watch.demand.remove_listener(self._on_awaited)
        if watch.end == next_key(watch.start):
            left = [other for other in self.by_key[watch.start] if other is not watch]
            if left:
                self.by_key[watch.start] = left
            else:
                del self.by_key[watch.start]
        else:
            self._set_ranges([other for other in self._by_range if other is not watch])

    def _set_ranges(self, watches: "list[HubWatch]") -> None:
        self._by_range = watches
        self._own_by_range = [watch for watch in watches if not watch.foreign_only]
        self.first_watched = min((watch.start for watch in watches), default=b"")
        self.last_watched = max((_END if watch.end is None else watch.end for watch in watches), default=b"")

    def interrupt(self, error: StorageError) -> None:
        """End every open watch with this error; new ones are welcome."""
        for watch in list(self._open):
            watch.fail(error)

    def fail(self, error: StorageError) -> None:
        """End every watch, now and later, with this error."""
        self._ended = error
        self.interrupt(error)

    def close(self) -> None:
        self.fail(StoreClosed("the store is closed; open it again and watch after the last revision seen"))


class HubWatch:
    """One watcher; the `Watch` of the port."""

    def __init__(
        self,
        hub: WatchHub,
        start: bytes,
        end: bytes | None,
        after: int,
        with_previous: bool,
        demand: Demand | None,
        foreign_only: bool,
    ) -> None:
        self.start = start
        self.end = end
        self.is_live = False
        self._hub = hub
        self.with_previous = with_previous
        self.demand = demand
        self.foreign_only = foreign_only
        self._delivered_revision = after
        self._buffer: list[Event] = []
        self._error: StorageError | None = None
        self._is_closed = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def revision(self) -> int:
        if self.is_live and not self._buffer:
            return max(self._delivered_revision, self._hub.revision)
        return self._delivered_revision

    def covers(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)

    def deliver(self, events: list[Event]) -> None:
        """Called by the hub, live only. A revision is buffered whole or not at all."""
        if events[0].revision <= self._delivered_revision:
            return  # Asked for a revision that was still in the future.
        if len(self._buffer) + len(events) > self._hub.buffer_events_max:
            resume = self._buffer[-1].revision if self._buffer else self._delivered_revision
            self.fail(WatcherTooSlow(resume))
            return
        self._buffer.extend(events)
        self._wake()

    def fail(self, error: StorageError) -> None:
        self._hub.detach(self)
        self._error = error
        self._wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        while True:
            if self._buffer:
                return self._take_buffer()
            if self._is_closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            if self.is_live:
                await self._sleep()
            elif events := await self._catch_up():
                return events

    async def aclose(self) -> None:
        self._is_closed = True
        self._buffer.clear()
        self._hub.detach(self)
        self._wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def _catch_up(self) -> list[Event]:
        page = await self._hub.history(self._delivered_revision, HISTORY_EVENTS_PAGE)
        self._delivered_revision = max(self._delivered_revision, page.revision)
        if page.revision >= self._hub.revision and self._error is None and not self._is_closed:
            self._hub.attach(self)
        return self._strip(event for event in page.events if self.covers(event.key))

    def _take_buffer(self) -> list[Event]:
        events = self._strip(self._buffer)
        self._buffer = []
        self._delivered_revision = events[-1].revision
        return events

    def _strip(self, events: Iterable[Event]) -> list[Event]:
        if self.with_previous:
            return list(events)
        return [event if event.previous is None else event._replace(previous=None) for event in events]

    async def _sleep(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
