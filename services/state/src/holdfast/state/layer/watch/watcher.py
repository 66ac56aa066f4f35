"""One watch of a namespace: the past from the history of the store, then what the hub tells, without a gap between them.

CATCHING UP  --reads the history page by page until it meets the hub's revision-->  LIVE
LIVE         --does not take what its buffer holds-->                               CATCHING UP, from the history again
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from holdfast.state.layer.watch.event import KeyEvent
from holdfast.storage.errors import StoreClosed

BUFFER_EVENTS_MAX: Final = 4096
"""What waits for a watcher that is live; it is shared with all who watch the same."""
CHANGES_AT_ONCE_MAX: Final = 64


@dataclass(slots=True, eq=False)
class Change:
    """All that one revision tells of what is watched."""

    revision: int
    events: list[KeyEvent]
    forms: dict[str, bytes] = field(default_factory=dict)
    """What protocols made of it, by their own names: many who watch the same are sent the same bytes."""


class Hub(Protocol):
    """What a watcher knows of its hub."""

    @property
    def is_following(self) -> bool: ...

    @property
    def revision(self) -> int:
        """Everything up to here was told to those who are live."""
        ...

    async def history(self, watch: "KeyWatch", after: int) -> tuple[list[Change], int]:
        """What the watcher missed after a revision, and up to where that is all."""
        ...

    def remove(self, watch: "KeyWatch") -> None: ...


class KeyWatch:
    """Registered from the moment it is made. Close it: the hub works for it until then."""

    def __init__(self, hub: Hub, namespace: str, prefix: str, after: int, created_revision: int) -> None:
        self.namespace = namespace
        self.prefix = prefix
        self.created_revision = created_revision
        self._hub = hub
        self._told = after
        self._read = after  # Everything up to here is told, buffered, or nothing to this one.
        self._buffer: deque[Change] = deque()
        self._buffered_events = 0
        self._is_live = False
        self._is_closed = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def revision(self) -> int:
        """Everything up to here was taken: another watch may go on after it."""
        if self._is_live and not self._buffer:
            self._told = max(self._told, self._hub.revision)
        return self._told

    async def begin(self) -> None:
        """Read the first page of the past, if there is a past. Raises Compacted, or FutureRevision."""
        if self._told > self._hub.revision or not self._join():
            await self._catch_up()

    async def next(self) -> list[Change]:
        """Wait for what comes next. Raises Compacted when it is gone, or why the store can't tell."""
        while not self._buffer:
            if self._is_closed:
                raise StoreClosed("the watch is closed; watch again after the last revision seen")
            if self._is_live or not self._hub.is_following:
                await self._sleep()  # The hub wakes everybody when it follows the store again.
            else:
                await self._catch_up()
        return self._take()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._clear()
            self._hub.remove(self)
            self.wake()

    # -- called by the hub

    def deliver(self, change: Change) -> bool:
        """The next change, if it is live; it is to be woken then. False: its buffer is full, it goes on from the history."""
        if not self._is_live or change.revision <= self._read:
            return True
        if not self._buffer:
            self._told = max(self._told, change.revision - 1)
        self._append(change)
        if self._buffered_events <= BUFFER_EVENTS_MAX:
            return True
        self.fall_back()
        return False

    def fall_back(self) -> None:
        """Go on from the history: the buffer is full, or the hub missed something."""
        self._read = self.revision
        self._is_live = False
        self._clear()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- inner

    def _join(self) -> bool:
        """Be live if the hub has told nothing yet of what this one waits for."""
        if self._hub.is_following and self._read >= self._hub.revision:
            self._is_live = True
        return self._is_live

    async def _catch_up(self) -> None:
        changes, revision = await self._hub.history(self, self._read)
        if self._is_closed:
            return
        self._extend(changes)
        self._read = max(self._read, revision)
        if not self._buffer:
            self._told = self._read
        self._join()

    def _extend(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self._append(change)

    def _append(self, change: Change) -> None:
        self._buffer.append(change)
        self._buffered_events += len(change.events)
        self._read = change.revision

    def _take(self) -> list[Change]:
        taken = [self._buffer.popleft() for _ in range(min(len(self._buffer), CHANGES_AT_ONCE_MAX))]
        self._buffered_events -= sum(len(change.events) for change in taken)
        self._told = taken[-1].revision if self._buffer else max(self._told, self._read)
        return taken

    def _clear(self) -> None:
        self._buffer.clear()
        self._buffered_events = 0

    async def _sleep(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
