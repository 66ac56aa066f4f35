"""What a queue has to do later without a client: take back deliveries that are not acknowledged in its time, and go on with what
one commit could not do."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from holdfast.common.background import background
from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.leases.layer.expiry import Expiries
from holdfast.queue.layer.keys.records import DUE
from holdfast.queue.layer.keys.rules import QUEUE_ITSELF, UNRULED, QueueCommit
from holdfast.state.layer.kv.service import KvService
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.storage.following import Follower
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.keys import next_key, unpack
from holdfast.storage.port import RANGE_LIMIT_MAX, Event, Record, Store

RETRY_MS: Final = 1000
Place = tuple[bytes, int]
"""A queue and the idx of a message in it, or of the queue itself."""

_log = get_logger("queue.keys.overdue")


class Overdue:
    """Knows when each delivery with a time is due, and what queue is unfinished since when."""

    def __init__(
        self, store: Store, clock: SteadyClock, kv: KvService, begin: Callable[[], QueueCommit]
    ) -> None:
        """`begin` makes the commit that one of them is seen to in."""
        self._store = store
        self._clock = clock
        self._kv = kv
        self._begin = begin
        self._expiries = Expiries[Place](clock, self._see_to)

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

    async def _see_to(self, place: Place) -> None:
        self._clock.now_ms()
        queue, idx = place
        commit = self._begin()
        try:
            if idx == QUEUE_ITSELF:
                await self._kv.run_with(UNRULED, partial(commit.go_on, name=queue))
            else:
                given = _GivenAgain(commit, queue)
                await self._kv.run_with(given, partial(commit.take_back, name=queue, idx=idx))
        except HoldfastError as error:
            warn_unless_told(_log, "queue.overdue.failed", error)
            self._expiries.set(place, self._clock.now_ms() + RETRY_MS)


class _GivenAgain:
    """What was taken back is given to a consumer by the revision after that."""

    def __init__(self, commit: QueueCommit, queue: bytes) -> None:
        self._commit = commit
        self._queue = queue

    def complete(self, change: SpaceChange) -> Callable[[SpaceChange], None]:
        return partial(self._commit.go_on, name=self._queue)


def _place_of(key: bytes) -> Place:
    _, queue, idx = unpack(key)
    assert isinstance(queue, bytes) and isinstance(idx, int)
    return queue, idx
