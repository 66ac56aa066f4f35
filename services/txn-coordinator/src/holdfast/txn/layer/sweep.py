"""The sweep: transactions whose time is over, decisions that have not reached every store, markers that may be forgotten.

It wakes for the earliest of them, so it costs by what is due. What another process of the island left behind is not told
here; for that it looks again after `interval_s` at the latest.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from holdfast.common.background import background
from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.common.telemetry.metrics import Registry
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.port import Store, Transaction
from holdfast.txn.layer.listing import in_doubt
from holdfast.txn.layer.records import MARKERS, Due, due_bounds, marker_due_bounds
from holdfast.txn.layer.watchdog import watched
from holdfast.txn.metrics import TxnMetrics

PAGE = 128
AT_ONCE_MAX = 16
FAILURE_PAUSE_S = 1.0

_log = get_logger("txn.sweep")


class Resumer(Protocol):
    """Goes on with a transaction whose time is over, as the place of this node in the cluster allows."""

    async def resume(self, due: Due) -> None: ...


class Sweep:
    """`running` sweeps for the length of its block."""

    def __init__(
        self,
        store: Store,
        lead: Resumer,
        clock: SteadyClock,
        *,
        interval_s: float,
        metrics: TxnMetrics | None = None,
    ) -> None:
        self._metrics = metrics or TxnMetrics(Registry())
        self._store = store
        self._lead = lead
        self._clock = clock
        self._interval_ms = max(1, int(interval_s * 1000))
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._earlier = asyncio.Event()
        self._next_ms = 0
        self._next_look_ms = 0
        self._has_failed = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with background(self._run(), name="txn.sweep"):
            with self._clock.stepping(self._earlier.set):
                yield

    def wake(self, at_ms: int) -> None:
        """Something is due then."""
        if at_ms < self._next_ms:
            self._earlier.set()

    async def _run(self) -> None:
        while True:
            self._earlier.clear()
            self._next_ms = self._clock.now_ms() + self._interval_ms
            try:
                with watched(self._metrics.sweep, "sweep"):
                    is_more = await self.sweep()
                self._next_ms = min(self._next_ms, await self._first_due_ms())
            except HoldfastError as error:
                warn_unless_told(_log, "txn.sweep.failed", error)
                is_more, self._has_failed = False, True
            rest_s = 0.0 if is_more else max(0.001, (self._next_ms - self._clock.now_ms()) / 1000)
            if self._has_failed:
                rest_s = max(rest_s, FAILURE_PAUSE_S)  # What failed is due still.
                self._has_failed = False
            with suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._earlier.wait()

    async def sweep(self) -> bool:
        """One page of what is due now; whether there may be more."""
        now_ms = self._clock.now_ms()
        due = await self._store.range(*due_bounds(now_ms), limit=PAGE, keys_only=True)
        await asyncio.gather(*(self._resume(Due(record)) for record in due))
        markers = await self._store.range(*marker_due_bounds(now_ms), limit=PAGE, keys_only=True)
        if markers:
            await self._forget([Due(record) for record in markers])
            self._metrics.swept("cleanup_deleted", len(markers))
        if due or markers:
            _log.debug("txn.sweeper.summary", due=len(due), cleanup_deleted=len(markers))
        if now_ms >= self._next_look_ms:
            self._next_look_ms = (
                now_ms + self._interval_ms
            )  # A sweep that is always busy looks no more often.
            self._metrics.show_in_doubt(*await in_doubt(self._store, now_ms // 1000))
        return len(due) == PAGE or len(markers) == PAGE

    async def _resume(self, due: Due) -> None:
        async with self._at_once:
            try:
                await self._lead.resume(due)
            except HoldfastError as error:
                self._has_failed = True
                self._metrics.swept("failed")
                warn_unless_told(_log, "txn.resume.failed", error, txn_id=due.txn_id)

    async def _forget(self, dues: list[Due]) -> None:
        def forget(tx: Transaction) -> None:
            for due in dues:
                marker = MARKERS.get(tx, due.txn_id)
                if marker is not None and marker.expires_at_ms == due.at_ms:
                    MARKERS.delete(tx, due.txn_id)
                tx.delete(due.key)

        await self._store.transact(forget)

    async def _first_due_ms(self) -> int:
        firsts = [
            Due(record).at_ms
            for bounds in (due_bounds(), marker_due_bounds())
            for record in await self._store.range(*bounds, limit=1, keys_only=True)
        ]
        return min(firsts, default=self._next_ms)
