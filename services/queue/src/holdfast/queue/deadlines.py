"""The end of messages with a TTL: each has an entry in the order of deadlines, and one timer waits for the first."""

import asyncio

from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.queue.ending import Endings
from holdfast.queue.feed import is_shared
from holdfast.queue.records import deadline_bounds, deadline_of
from holdfast.storage.errors import StorageError
from holdfast.storage.port import Record, Store

PAGE_ENTRIES = 128
RETRY_S = 1.0
LOOK_AGAIN_S = 60.0  # What another process of a shared store enqueues is not told here.

_log = get_logger("queue.dispatcher")


class Deadlines:
    """Costs by what ends, not by what exists."""

    def __init__(self, store: Store, clock: SteadyClock, endings: Endings) -> None:
        self._store = store
        self._clock = clock
        self._endings = endings
        self._next_ms: int | None = None
        self._earlier = asyncio.Event()

    def told(self, deadline_ms: int) -> None:
        """There is a message that ends then."""
        if self._next_ms is None or deadline_ms < self._next_ms:
            self._next_ms = deadline_ms
            self._earlier.set()

    async def run(self) -> None:
        while True:
            try:
                await self._end_due()
            except StorageError as error:
                _log.warn("queue.deadlines.failed", reason=error.detail)
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
        """Returns when to look at it again. One that somebody else has to decide on first holds up no other."""
        try:
            return await self._endings.end_by_deadline(record)
        except StorageError:
            raise
        except HoldfastError as error:
            _log.warn("queue.deadline.undecided", reason=error.detail)
            return self._clock.now_ms() + int(RETRY_S * 1000)

    def _is_due(self, record: Record) -> bool:
        deadline_ms, _, _ = deadline_of(record.key)
        if deadline_ms <= self._clock.now_ms():
            return True
        self.told(deadline_ms)
        return False

    async def _sleep(self) -> None:
        rest_s = None if self._next_ms is None else max(0, self._next_ms - self._clock.now_ms()) / 1000
        if is_shared(self._store):
            rest_s = min(LOOK_AGAIN_S, rest_s if rest_s is not None else LOOK_AGAIN_S)
        self._earlier.clear()
        try:
            async with asyncio.timeout(rest_s):
                await self._earlier.wait()
        except TimeoutError:
            return
