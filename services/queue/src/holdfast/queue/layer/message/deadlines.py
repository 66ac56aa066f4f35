"""The end of messages with a TTL: each has an entry in the order of deadlines, and one timer waits for the first.

Every process of a shared store knows of all of them, and each is late by a time of its own: mostly one of them ends
what is over, and the others find that done.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.queue.layer.delivery.endings import Endings
from holdfast.queue.layer.message.records import deadline_bounds, deadline_of
from holdfast.storage.errors import StorageError
from holdfast.storage.following import Follower
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.port import Demand, Event, Record, Store

PAGE_ENTRIES = 128
RETRY_S = 1.0
LAG_MS_MAX = 1000  # Of one process behind another one of the same store.

_log = get_logger("queue.dispatcher")


class Deadlines:
    """Costs by what ends, not by what exists."""

    def __init__(self, store: Store, clock: SteadyClock, endings: Endings) -> None:
        self._store = store
        self._clock = clock
        self._endings = endings
        self._next_ms: int | None = None
        self._earlier = asyncio.Event()
        self._lag_ms = random.randint(0, LAG_MS_MAX) if store.is_shared else 0

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Know of the messages that other processes take in, for the length of the block."""
        follower = Follower(
            self._store,
            deadline_bounds(),
            on_events=self._followed,
            resync=self._resync,
            name="queue.deadlines",
            demand=Demand(),  # No caller waits for them.
        )
        async with follower:
            yield

    def _followed(self, events: list[Event]) -> None:
        for event in events:
            if event.record is not None:
                self.told(deadline_of(event.key)[0])

    async def _resync(self) -> None:
        self._look_at(self._clock.now_ms())

    def told(self, deadline_ms: int) -> None:
        """There is a message that ends then."""
        self._look_at(deadline_ms + self._lag_ms)

    def _look_at(self, at_ms: int) -> None:
        if self._next_ms is None or at_ms < self._next_ms:
            self._next_ms = at_ms
            self._earlier.set()

    def look_again(self) -> None:
        """The clock made a step: what was due later may be over."""
        self._earlier.set()

    async def run(self) -> None:
        while True:
            try:
                await self._end_due()
            except StorageError as error:
                warn_unless_told(_log, "queue.deadlines.failed", error)
                self._next_ms = self._clock.now_ms() + int(RETRY_S * 1000)
            await self._sleep()

    async def _end_due(self) -> None:
        """All that are over by now; what follows is remembered as the next one."""
        start, end = deadline_bounds()
        self._next_ms = None
        while True:
            records = await self._store.range(start, end, limit=PAGE_ENTRIES)
            due = [record for record in records if self._is_due(record)]
            for record in due:
                if (later_ms := await self._end(record)) is not None:
                    self.told(later_ms)
            if len(due) < PAGE_ENTRIES:
                return
            start = due[-1].key + b"\x00"

    async def _end(self, record: Record) -> int | None:
        """Returns when to look at it again. One that another process has to decide on first holds up no other."""
        try:
            return await self._endings.end_by_deadline(record)
        except StorageError:
            raise
        except HoldfastError as error:
            _log.warn("queue.deadline.undecided", reason=error.detail)
            return self._clock.now_ms() + int(RETRY_S * 1000)

    def _is_due(self, record: Record) -> bool:
        deadline_ms, _, _ = deadline_of(record.key)
        if deadline_ms + self._lag_ms <= self._clock.now_ms():
            return True
        self.told(deadline_ms)
        return False

    async def _sleep(self) -> None:
        rest_s = None if self._next_ms is None else max(0, self._next_ms - self._clock.now_ms()) / 1000
        self._earlier.clear()
        try:
            async with asyncio.timeout(rest_s):
                await self._earlier.wait()
        except TimeoutError:
            return
