"""Deliveries that are not acknowledged in the time of their queue are taken back."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from holdfast.common.background import background
from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.leases.layer.expiry import Expiries
from holdfast.queue.layer.keys.dispatch import return_message
from holdfast.queue.layer.keys.records import DUE
from holdfast.state.layer.kv.service import KvService
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.storage.following import Follower
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.keys import next_key, unpack
from holdfast.storage.port import RANGE_LIMIT_MAX, Event, Record, Store

RETRY_MS: Final = 1000
Place = tuple[bytes, int]
"""A queue and the idx of a message in it."""

_log = get_logger("queue.keys.overdue")


class Overdue:
    """Knows when each delivery with a time is due; `follow` looks at its queue again in the same commit."""

    def __init__(
        self,
        store: Store,
        clock: SteadyClock,
        kv: KvService,
        follow: Callable[[SpaceChange, bytes], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._kv = kv
        self._follow = follow
        self._expiries = Expiries[Place](clock, self._take_back)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        follower = Follower(
            self._store, DUE.bounds(), on_events=self._told, resync=self._load, name="queue.keys.overdue"
        )
        async with follower, background(self._expiries.run(), name="queue.keys.overdue"):
            with self._clock.stepping(self._expiries.look_again):
                yield

    def set(self, queue: bytes, idx: int, due_at_ms: int) -> None:
        self._expiries.set((queue, idx), due_at_ms)

    def _told(self, events: list[Event]) -> None:
        for event in events:
            self._heard(event.key, event.record)

    async def _load(self) -> None:
        start, end = DUE.bounds()
        while True:
            page = await self._store.range(start, end, limit=RANGE_LIMIT_MAX)
            for record in page:
                self._heard(record.key, record)
            if len(page) < RANGE_LIMIT_MAX:
                return
            start = next_key(page[-1].key)

    def _heard(self, key: bytes, record: Record | None) -> None:
        place = _place_of(key)
        if record is None:
            self._expiries.forget(place)
        else:
            self._expiries.set(place, DUE.decode(record).due_at_ms)

    async def _take_back(self, place: Place) -> None:
        ending = _Ending(place, self._clock.now_ms(), self._follow)
        try:
            await self._kv.run_with(ending, ending.run)
        except HoldfastError as error:
            warn_unless_told(_log, "queue.overdue.failed", error)
            self._expiries.set(place, self._clock.now_ms() + RETRY_MS)


class _Ending:
    """Takes back one delivery; the revision after that gives the message to somebody."""

    def __init__(self, place: Place, now_ms: int, follow: Callable[[SpaceChange, bytes], None]) -> None:
        self._queue, self._idx = place
        self._now_ms = now_ms
        self._follow = follow

    def run(self, change: SpaceChange) -> None:
        due = DUE.get(change.tx, self._queue, self._idx)
        if due is not None and due.due_at_ms <= self._now_ms:
            return_message(change, self._queue, self._idx, due)

    def complete(self, change: SpaceChange) -> Callable[[SpaceChange], None]:
        return lambda following: self._follow(following, self._queue)


def _place_of(key: bytes) -> Place:
    _, queue, idx = unpack(key)
    assert isinstance(queue, bytes) and isinstance(idx, int)
    return queue, idx
