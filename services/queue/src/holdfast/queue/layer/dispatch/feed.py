"""What other processes do to the queues of a shared store, told to the dispatchers of this one.

A hint that saves failed claims and late deliveries; what is right is decided by commits. A store that belongs to this
process alone has only one thing to tell: that it recovered, and what was in doubt before may have happened.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from holdfast.queue.layer.dispatch.dispatcher import Dispatcher
from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.dispatch.window import Entry, EntryStatus
from holdfast.queue.layer.message.records import POLICIES, READY, TAKEN
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import MessageState, QueuePolicy
from holdfast.storage.following import Follower
from holdfast.storage.keys import unpack
from holdfast.storage.port import Event, Store
from holdfast.storage.tables import Table

_TABLES: tuple[Table[Any], ...] = (READY, TAKEN, POLICIES)


class Feed:
    """Follows the states and the policies of all queues, or the store they are in."""

    def __init__(self, store: Store, dispatchers: Dispatchers) -> None:
        self._store = store
        self._dispatchers = dispatchers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for table in _TABLES:
                follower = Follower(
                    self._store,
                    table.bounds(),
                    on_events=partial(self._told, table),
                    resync=self._resync,
                    name=f"queue.feed.{table.name}",
                    demand=self._dispatchers.demand,
                )
                await stack.enter_async_context(follower)
            yield

    async def _resync(self) -> None:
        """What happened before this moment was not told."""
        self._dispatchers.reset_all()

    def _told(self, table: Table[Any], events: list[Event]) -> None:
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
    if entry.status is not EntryStatus.HANDED:  # The consumer that was handed it finds out by its own commit.
        queue.forget(message_id)
