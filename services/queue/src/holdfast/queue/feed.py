"""What other processes do to the queues of a shared store, told to the dispatchers of this one.

A hint that saves failed claims and late deliveries; what is right is decided by commits. A store that belongs to this
process alone has only one thing to tell: that it recovered, and what was in doubt before may have happened.
"""

import asyncio
from typing import Any
from urllib.parse import urlsplit

from holdfast.common.logging import get_logger
from holdfast.queue.dispatcher import Dispatcher
from holdfast.queue.dispatchers import Dispatchers
from holdfast.queue.messages import QueueAddress
from holdfast.queue.records import POLICIES, READY, TAKEN
from holdfast.queue.window import Entry, Place
from holdfast.storage.errors import StorageError
from holdfast.storage.keys import unpack
from holdfast.storage.layers_pb2 import MessageState, QueuePolicy
from holdfast.storage.port import Event, Store
from holdfast.storage.tables import Table

RETRY_S = 1.0
_NOTHING = b""  # As both ends of a range.

_log = get_logger("queue.dispatcher")


def is_shared(store: Store) -> bool:
    """Whether other processes may write to it as well."""
    return urlsplit(store.url).scheme not in ("mem", "disk")


class Feed:
    """Follows the states and the policies of all queues, or the store they are in."""

    def __init__(self, store: Store, dispatchers: Dispatchers) -> None:
        self._store = store
        self._dispatchers = dispatchers

    async def run(self) -> None:
        while True:
            try:
                if is_shared(self._store):
                    await self._follow_others()
                else:
                    await self._follow_recovery()
            except* StorageError as group:
                _log.warn("queue.feed.interrupted", reason=str(group.exceptions[0]))
            await asyncio.sleep(RETRY_S)
            self._dispatchers.reset_all()  # What happened since was not told.

    async def _follow_others(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(READY))
            tasks.create_task(self._follow(TAKEN))
            tasks.create_task(self._follow(POLICIES))

    async def _follow_recovery(self) -> None:
        """Watching nothing costs nothing, and is interrupted like every watch."""
        async with self._store.watch(_NOTHING, _NOTHING) as watch:
            async for _ in watch:
                pass

    async def _follow(self, table: Table[Any]) -> None:
        start, end = table.bounds()
        async with self._store.watch(start, end) as watch:
            self._dispatchers.reset_all()  # What happened before this moment was not told.
            async for events in watch:
                for event in events:
                    self._tell(table, event)

    def _tell(self, table: Table[Any], event: Event) -> None:
        _, namespace, name, *place = unpack(event.key)
        queue = self._dispatchers.find(QueueAddress(str(namespace), str(name)))
        if queue is None:
            return
        if table is POLICIES:
            policy = QueuePolicy() if event.record is None else POLICIES.decode(event.record)
            self._dispatchers.set_policy(queue.address, policy)
        elif event.record is None:
            _left(queue, str(place[-1]), event)
        else:
            state: MessageState = table.decode(event.record)
            queue.tell([Entry(str(place[-1]), event.key, event.revision, state)])


def _left(queue: Dispatcher, message_id: str, event: Event) -> None:
    """The state left this place; if it stands in another one, that is told too."""
    entry = queue.window.get(message_id)
    if entry is None or entry.key != event.key or entry.revision >= event.revision:
        return
    if entry.place is not Place.HANDED:  # Whoever was handed it finds out by its own commit.
        queue.forget(message_id)
