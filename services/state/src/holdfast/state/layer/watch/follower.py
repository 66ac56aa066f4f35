"""Several ranges of a store followed as one: what was committed to any of them, in the order of revisions and keys."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from holdfast.storage.port import Event, Watch


class MergedWatch:
    """Calls `on_events` with whole revisions. Its watches have to begin at the same moment, from now on.

    A watch says up to where it has delivered everything. Up to the smallest of these revisions nothing can be missing; what
    one watch has delivered beyond that waits for the others, which have something to deliver then.
    """

    def __init__(self, watches: Sequence[Watch], on_events: Callable[[list[Event]], Awaitable[None]]) -> None:
        self._watches = watches
        self._on_events = on_events
        self._waiting: list[deque[Event]] = [deque() for _ in watches]
        self._revision = self._delivered()

    @property
    def revision(self) -> int:
        """Everything up to here was handed over."""
        if not any(self._waiting):
            self._revision = max(self._revision, self._delivered())
        return self._revision

    async def run(self) -> None:
        """Until a watch ends with an error, which comes in a group."""
        async with asyncio.TaskGroup() as group:
            for watch, waiting in zip(self._watches, self._waiting, strict=True):
                group.create_task(self._take_in(watch, waiting), name="state.watch.range")

    async def _take_in(self, watch: Watch, waiting: deque[Event]) -> None:
        async for events in watch:
            waiting.extend(events)
            if whole := self._whole():
                await self._on_events(whole)

    def _whole(self) -> list[Event]:
        self._revision = max(self._revision, self._delivered())
        whole: list[Event] = []
        for waiting in self._waiting:
            while waiting and waiting[0].revision <= self._revision:
                whole.append(waiting.popleft())
        whole.sort(key=_place_of)
        return whole

    def _delivered(self) -> int:
        return min(watch.revision for watch in self._watches)


def _place_of(event: Event) -> tuple[int, bytes]:
    return event.revision, event.key
