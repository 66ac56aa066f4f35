"""Tells every watch of this process what happens to documents and leases, whoever commits it.

While anybody watches, the store is followed once: each record is decoded once, and a change goes to those who watch its key,
found by namespace and prefix. Others are not looked at. While nobody watches there is nothing.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context
from itertools import groupby
from typing import Final

from holdfast.common.backoff import Backoff
from holdfast.common.logging import get_logger
from holdfast.leases.layer.records import member_of
from holdfast.state.layer.watch.event import RANGES, KeyEvent, is_told, key_events
from holdfast.state.layer.watch.follower import MergedWatch
from holdfast.state.layer.watch.watcher import Change, KeyWatch
from holdfast.storage.errors import StorageError, StoreUnavailable
from holdfast.storage.port import Event, Store

WOKEN_AT_ONCE_MAX: Final = 64
"""Then others have their turn: a change that a crowd watches must not hold up the requests of everybody else."""
PAGES_AT_ONCE_MAX: Final = 4
"""Pages of history that are read at a time, when many come back at once."""
FOLLOWING_S_MAX: Final = 10.0

Topic = tuple[str, str]
"""A namespace and a prefix."""

_log = get_logger("state.watch")


class EventHub:
    """The watches of one store in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._topics: dict[Topic, set[KeyWatch]] = {}
        self._lengths: dict[str, Counter[int]] = {}  # Of the prefixes in each namespace.
        self._watches = 0
        self._asked = 0
        self._task: asyncio.Task[None] | None = None
        self._merged: MergedWatch | None = None
        self._following = asyncio.Event()
        self._revision = 0
        self._pages = asyncio.Semaphore(PAGES_AT_ONCE_MAX)
        self.fallbacks = 0
        """How often a watcher was too slow for its buffer."""

    def __len__(self) -> int:
        return self._watches

    @property
    def is_following(self) -> bool:
        return self._following.is_set()

    @property
    def revision(self) -> int:
        """Everything up to here was told to those who are live."""
        if self._merged is not None:
            self._revision = max(self._revision, self._merged.revision)
        return self._revision

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """No watch is told anything after the block."""
        try:
            yield
        finally:
            task = self._task
            for watch in self._all():
                watch.close()
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def watch(self, namespace: str, prefix: str, after: int | None = None) -> KeyWatch:
        """What happens to the keys that begin with `prefix` after a revision, or from now on; registered when this returns.

        Raises Compacted, or FutureRevision for a revision that the store has not reached.
        """
        self._asked += 1
        try:
            await self._followed()
            created = self.revision
            watch = KeyWatch(self, namespace, prefix, created if after is None else after, created)
            self._add(watch)
        finally:
            self._asked -= 1
            self._stop_if_idle()
        try:
            await watch.begin()
        except BaseException:
            watch.close()
            raise
        return watch

    def remove(self, watch: KeyWatch) -> None:
        topic = watch.namespace, watch.prefix
        self._topics[topic].discard(watch)
        self._watches -= 1
        if not self._topics[topic]:
            del self._topics[topic]
            lengths = self._lengths[watch.namespace]
            lengths[len(watch.prefix)] -= 1
            self._lengths[watch.namespace] = +lengths  # Without those that no prefix has any more.
            if not self._lengths[watch.namespace]:
                del self._lengths[watch.namespace]
        self._stop_if_idle()

    async def history(self, watch: KeyWatch, after: int) -> tuple[list[Change], int]:
        async with self._pages:
            page = await self._store.history(RANGES[0][0], RANGES[-1][1], after=after)
            await asyncio.sleep(0)  # A local store answers at once: others have their turn between two pages.
        return list(_changes(page.events, watch)), page.revision

    # -- who watches what

    def _add(self, watch: KeyWatch) -> None:
        topic = watch.namespace, watch.prefix
        if topic not in self._topics:
            self._topics[topic] = set()
            self._lengths.setdefault(watch.namespace, Counter())[len(watch.prefix)] += 1
        self._topics[topic].add(watch)
        self._watches += 1

    def _all(self) -> list[KeyWatch]:
        return [watch for watches in self._topics.values() for watch in watches]

    def _stop_if_idle(self) -> None:
        if not self._watches and not self._asked and self._task is not None:
            self._task.cancel()
            self._task = None
            self._merged = None
            self._following.clear()

    # -- following the store

    async def _followed(self) -> None:
        if self._task is None:
            # In a context of its own: it works for all watches, not for the request that came first.
            self._task = asyncio.create_task(self._follow(), name="state.watch", context=Context())
        try:
            async with asyncio.timeout(FOLLOWING_S_MAX):
                await self._following.wait()
        except TimeoutError:
            raise StoreUnavailable("the changes of the store can't be followed now; try again") from None

    async def _follow(self) -> None:
        backoff = Backoff(None)
        while True:
            try:
                await self._follow_once()
            except ExceptionGroup as group:
                _tell_of(group)
            except StorageError as error:
                _tell_of(ExceptionGroup("", [error]))
            self._revision = self.revision  # Look once more, while there is something to look at.
            self._merged = None
            self._following.clear()
            self._fall_back()
            await backoff.pause()

    async def _follow_once(self) -> None:
        async with AsyncExitStack() as stack:
            watches = [self._store.watch(*bounds, with_previous=True) for bounds in RANGES]
            for watch in watches:
                stack.push_async_callback(watch.aclose)
            self._merged = MergedWatch(watches, self._tell)
            self._revision = self._merged.revision
            self._following.set()
            self._fall_back()
            await self._merged.run()

    def _fall_back(self) -> None:
        for watch in self._all():
            watch.fall_back()
            watch.wake()

    async def _tell(self, events: list[Event]) -> None:
        told: dict[KeyWatch, None] = {}
        for revision, changed in groupby(events, key=_revision_of):
            by_topic: dict[Topic, list[KeyEvent]] = {}
            for event in changed:
                self._sort_in(event, by_topic)
            for topic, found in by_topic.items():
                change = Change(revision, found)
                for watch in self._topics[topic]:
                    self.fallbacks += not watch.deliver(change)
                    told[watch] = None
        await _wake(told)

    def _sort_in(self, event: Event, by_topic: dict[Topic, list[KeyEvent]]) -> None:
        member = member_of(event.key)
        topics = [
            topic
            for length in self._lengths.get(member.namespace, ())
            if length <= len(member.key)
            and (topic := (member.namespace, member.key[:length])) in self._topics
        ]
        if not topics:
            return
        if found := key_events(event, member):
            for topic in topics:
                by_topic.setdefault(topic, []).extend(found)


def _tell_of(group: ExceptionGroup[Exception]) -> None:
    _, defects = group.split(StorageError)
    if defects is not None:  # Logged at the edge of a task that must go on.
        _log.error("state.watch.failed", exception=defects)
    else:
        _log.warn("state.watch.interrupted", reason="; ".join(map(str, group.exceptions)))


async def _wake(watches: Collection[KeyWatch]) -> None:
    for number, watch in enumerate(watches, start=1):
        watch.wake()
        if number % WOKEN_AT_ONCE_MAX == 0:
            await asyncio.sleep(0)


def _changes(events: Iterable[Event], watch: KeyWatch) -> Iterator[Change]:
    for revision, changed in groupby(events, key=_revision_of):
        found: list[KeyEvent] = []
        for event in sorted(changed, key=_key_of):
            if not is_told(event.key):
                continue
            member = member_of(event.key)
            if member.namespace == watch.namespace and member.key.startswith(watch.prefix):
                found += key_events(event, member)
        if found:
            yield Change(revision, found)


def _revision_of(event: Event) -> int:
    return event.revision


def _key_of(event: Event) -> bytes:
    return event.key
