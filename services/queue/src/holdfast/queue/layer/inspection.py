"""Looking at a queue without touching it: its numbers, its head, what would leave next."""

import asyncio
from collections.abc import AsyncIterator

from holdfast.common.clock import SteadyClock, unix_s
from holdfast.queue.layer.dispatch.dispatcher import Dispatcher
from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.dispatch.window import Entry, EntryStatus, Order
from holdfast.queue.layer.message import rules
from holdfast.queue.layer.message.records import MESSAGES, READY
from holdfast.queue.layer.message.rules import Disposition, body_view, message_view
from holdfast.queue.layer.message.types import Availability, Body, Head, Message, QueueAddress, Stats
from holdfast.queue.layer.records_pb2 import MessageState
from holdfast.storage.port import Store

PAGE_ENTRIES = 128


class Inspection:
    """What this process and the store know of the queues."""

    def __init__(self, store: Store, clock: SteadyClock, dispatchers: Dispatchers) -> None:
        self._store = store
        self._clock = clock
        self._dispatchers = dispatchers

    async def stats(self, address: QueueAddress) -> Stats:
        queue = await self._dispatchers.loaded(address)
        entry = await queue.head()
        return Stats(
            address,
            waiting_consumers=queue.waiting_consumers,
            total_consumers=queue.consumers,
            pending_candidates=len(queue.window) - queue.window.out,
            in_flight=queue.window.out,
            is_paused=queue.policy.is_paused,
            head=None if entry is None else await self._head(address, entry),
        )

    async def _head(self, address: QueueAddress, entry: Entry) -> Head | None:
        message = entry.message or await MESSAGES.fetch(self._store, *address, entry.message_id)
        if message is None:
            return None
        enqueued_at_ms = rules.enqueued_at_ms(message, entry.state)
        age_ms = max(0, self._clock.now_ms() - enqueued_at_ms)
        return Head(entry.message_id, unix_s(enqueued_at_ms), unix_s(entry.due_ms), age_ms // 1000)

    async def watch(self, address: QueueAddress) -> AsyncIterator[Availability]:
        """The present state at once, then every change of it."""
        queue = await self._dispatchers.loaded(address)
        changed = asyncio.Event()
        queue.watchers.add(changed.set)
        try:
            last: str | None = None
            while True:
                changed.clear()
                entry = await queue.head() if queue.is_loaded else None
                head_id = "" if entry is None else entry.message_id
                if head_id != last:
                    last = head_id
                    yield Availability(bool(head_id), head_id, unix_s(self._clock.now_ms()))
                await changed.wait()
        finally:
            queue.watchers.discard(changed.set)

    async def peek(self, address: QueueAddress, limit: int) -> list[tuple[Message, Body]]:
        """What would leave next, in order, without taking it."""
        queue = await self._dispatchers.loaded(address)
        await queue.head()
        states = await self._visible(queue, limit)
        keys = {order.message_id: queue.keys.message(order.message_id) for order in states}
        found = await self._store.get_many(list(keys.values()))
        peeked: list[tuple[Message, Body]] = []
        for order, state in states.items():
            record = found.get(keys[order.message_id])
            if record is not None:
                message = MESSAGES.decode(record)
                view = message_view(address, order.message_id, message, state)
                peeked.append((view, body_view(message)))
        return peeked

    async def _visible(self, queue: Dispatcher, limit: int) -> dict[Order, MessageState]:
        """From the store those that are ready, from memory those whose lease ran out, in the order of delivery."""
        now_ms = self._clock.now_ms()
        visible = {
            entry.order: entry.state
            for entry in queue.window
            if entry.status is EntryStatus.VISIBLE and entry.state.lease_id and _is_ready(entry.state, now_ms)
        }
        start, end = READY.bounds(*queue.address)
        count = 0
        while count < limit:
            rows = await READY.fetch_range(
                self._store, *queue.address, limit=PAGE_ENTRIES, start=start, end=end
            )
            for row in rows:
                state = row.message
                start = row.record.key + b"\x00"
                if state.visible_at_ms > now_ms:
                    start = READY.bounds(*queue.address, state.priority)[1]
                    break
                if _is_ready(state, now_ms):
                    visible[Order(state.priority, state.visible_at_ms, str(row.parts[-1]))] = state
                    count += 1
            else:
                if len(rows) < PAGE_ENTRIES:
                    break
        return dict(sorted(visible.items())[:limit])


def _is_ready(state: MessageState, now_ms: int) -> bool:
    return rules.disposition(state, now_ms) is Disposition.READY
