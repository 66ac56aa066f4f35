"""Following the changes of a store that this process did not make, for a service that keeps a picture of it in memory.

    SYNCED  --the watch is interrupted, its history is kept-->       watch again after the last revision seen
    SYNCED  --history compacted, or what was missed is unknown-->    watch from now on, then `resync`

A store that belongs to this process alone is not followed: each commit tells its own process. It interrupts its watches
when it recovered from a failure; then commits whose outcome was unknown may have happened, and `resync` is called.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self

from holdfast.common.backoff import Backoff
from holdfast.common.logging import get_logger
from holdfast.storage.errors import StorageError, StoreUnavailable, WatcherTooSlow
from holdfast.storage.port import Demand, Event, Store, Watch

_NOTHING = b""  # As both ends of a range: watching it costs no commit anything.

_log = get_logger("storage.follower")


class Follower:
    """Calls `on_events` with the events of [start, end) while its block lasts.

    `resync` is awaited whenever events may have been missed, the first time before the block begins; the watch is open
    by then, so that nothing falls between what it reads and the events that follow.
    """

    def __init__(
        self,
        store: Store,
        bounds: tuple[bytes, bytes | None],
        *,
        on_events: Callable[[list[Event]], None],
        resync: Callable[[], Awaitable[None]],
        name: str,
        demand: Demand | None = None,
    ) -> None:
        self._store = store
        self._bounds = bounds if store.is_shared else (_NOTHING, _NOTHING)
        self._on_events = on_events
        self._resync = resync
        self._demand = demand
        self._name = name
        self._is_interrupted = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        watch = self._store.watch(*self._bounds, demand=self._demand, foreign_only=True)
        try:
            await self._resync()
        except BaseException:
            await watch.aclose()
            raise
        self._task = asyncio.create_task(self._run(watch), name=self._name)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self, watch: Watch) -> None:
        backoff = Backoff(None)
        while True:
            try:
                async with watch:
                    async for events in watch:
                        self._on_events(events)
                        backoff = self._recovered(backoff)
            except StorageError as error:
                after = self._resumed_after(watch, error)
                self._interrupted(error)
            except Exception as error:  # noqa: BLE001 - the edge of this task, which must go on
                after = None
                _log.error("storage.follow.failed", follower=self._name, exception=error)
            else:
                return  # Only the store closes it, and says so by an error.
            await backoff.pause()
            watch = await self._watch_again(after, backoff)

    async def _watch_again(self, after: int | None, backoff: Backoff) -> Watch:
        """Open, and synced unless it goes on where the last one ended."""
        while True:
            watch = self._store.watch(*self._bounds, after=after, demand=self._demand, foreign_only=True)
            if after is not None:
                return watch
            try:
                await self._resync()
            except StorageError as error:
                await watch.aclose()
                self._interrupted(error)
                await backoff.pause()
            except BaseException:
                await watch.aclose()
                raise
            else:
                return watch

    def _resumed_after(self, watch: Watch, error: StorageError) -> int | None:
        """Where to go on; None: what was missed can't be told, everything has to be looked at."""
        if not self._store.is_shared:
            return None
        if isinstance(error, WatcherTooSlow):
            return error.resume_revision
        return watch.revision if isinstance(error, StoreUnavailable) else None

    def _interrupted(self, error: StorageError) -> None:
        """One line for an outage, however long it lasts."""
        if not self._is_interrupted:
            self._is_interrupted = True
            _log.warn("storage.follow.interrupted", follower=self._name, reason=error.detail)

    def _recovered(self, backoff: Backoff) -> Backoff:
        if not self._is_interrupted:
            return backoff
        self._is_interrupted = False
        return Backoff(None)
