"""What is kept of one queue beside its keys, while a commit changes it.

The record of the queue has counts of the messages that wait, of the consumers that are free and of those that leave, so that a
commit looks for one only if there is one.
"""

from bisect import bisect_right, insort
from operator import itemgetter
from typing import Final

from holdfast.queue.layer.keys.records import CONSUMERS, LEAVING, QUEUES, READY, TURNS
from holdfast.queue.layer.keys.settings import QueueDefaults
from holdfast.queue.layer.records_pb2 import KeyConsumer, KeyQueue, KeyReady, KeyTurn
from holdfast.storage.keys import Element
from holdfast.storage.port import RANGE_LIMIT_MAX, Transaction
from holdfast.storage.tables import Row

FREE_IN_HAND_MAX: Final = 64
"""Free consumers that a commit reads at once; a store keeps a range of no more than that in memory."""

Turn = tuple[int, bytes]
"""The order of a consumer among the registrations, and its client."""


class QueueRows:
    """Nothing of it is kept before `write`, except for the rows that ranges read."""

    def __init__(self, tx: Transaction, name: bytes, defaults: QueueDefaults) -> None:
        self.tx = tx
        self.name = name
        found = QUEUES.get(tx, name)
        self.is_new = found is None
        self.queue = found or KeyQueue(reliability=defaults.reliability, max_in_flight=defaults.max_in_flight)
        self._before = self.queue.SerializeToString(deterministic=True)
        self._consumers: dict[bytes, KeyConsumer | None] = {}
        self._changed: set[bytes] = set()
        self._waiting: dict[int, bytes] = {}  # Since this commit began.
        self._free: list[Turn] | None = None  # All of them, in order.

    def write(self) -> None:
        for idx, message_name in self._waiting.items():
            READY.put(self.tx, KeyReady(name=message_name), self.name, idx)
        for client in sorted(self._changed):
            consumer = self._consumers[client]
            if consumer is None:
                CONSUMERS.delete(self.tx, self.name, client)
            else:
                CONSUMERS.put(self.tx, consumer, self.name, client)
        if self.is_new or self.queue.SerializeToString(deterministic=True) != self._before:
            QUEUES.put(self.tx, self.queue, self.name)

    # -- messages that nobody has

    def wait(self, idx: int, message_name: bytes) -> None:
        self._waiting[idx] = message_name
        self.queue.waiting += 1

    def stop_waiting(self, idx: int) -> None:
        if self._waiting.pop(idx, None) is None:
            READY.delete(self.tx, self.name, idx)
        self.queue.waiting -= 1

    def is_new_here(self, idx: int) -> bool:
        """Whether it waits since this commit began."""
        return idx in self._waiting

    def first_waiting(self, limit: int) -> list[tuple[int, bytes]]:
        """The lowest first."""
        found = list(self._waiting.items())
        if self.queue.waiting > len(found):
            if self._free is None and self.queue.free <= FREE_IN_HAND_MAX:
                self.tx.prefetch(list, lambda: [TURNS.bounds(self.name)])  # Who gets them is read next.
            found += [
                (_int(row.parts[1]), row.message.name) for row in READY.range(self.tx, self.name, limit=limit)
            ]
        return sorted(found)[:limit]

    # -- consumers

    def consumer(self, client: bytes) -> KeyConsumer | None:
        """To be read only; what changes one stands below."""
        if client not in self._consumers:
            self._consumers[client] = CONSUMERS.get(self.tx, self.name, client)
        return self._consumers[client]

    def register(self, client: bytes) -> KeyConsumer:
        """A consumer that is not there, or leaves: what it still has it keeps."""
        consumer = self.consumer(client)
        if consumer is None:
            consumer = self._consumers[client] = KeyConsumer()
        elif consumer.is_leaving:
            self._stop_leaving(consumer)
        self.queue.last_order += 1
        consumer.order = self.queue.last_order
        self._see_room(client, consumer)
        return consumer

    def lease(self, client: bytes, server_lease: int, watch: int) -> None:
        """Note by what a consumer is kept."""
        consumer = self.consumer(client)
        assert consumer is not None, "a consumer whose registration was put is known"
        if (consumer.server_lease, consumer.watch) != (server_lease, watch):
            consumer.server_lease, consumer.watch = server_lease, watch
            self._changed.add(client)

    def leave(self, client: bytes) -> None:
        """No further delivery for this one; it is gone once it has none."""
        consumer = self.consumer(client)
        if consumer is None or consumer.is_leaving:
            return
        consumer.is_leaving = True
        self._see_room(client, consumer)
        if consumer.open:
            self.queue.leaving += 1
            LEAVING.put(self.tx, KeyTurn(client=client), self.name, consumer.order)
        else:
            self._consumers[client] = None

    def first_leaving(self) -> bytes | None:
        if not self.queue.leaving:
            return None
        rows = LEAVING.range(self.tx, self.name, limit=1)
        return rows[0].message.client if rows else None

    def add_open(self, client: bytes, count: int) -> None:
        """So many deliveries more, or fewer."""
        consumer = self.consumer(client)
        if consumer is not None:
            self.set_open(client, consumer.open + count)

    def set_open(self, client: bytes, count: int) -> None:
        consumer = self.consumer(client)
        if consumer is None:
            return
        consumer.open = count
        self._see_room(client, consumer)
        if consumer.is_leaving and count <= 0:
            self._stop_leaving(consumer)
            self._consumers[client] = None

    def _stop_leaving(self, consumer: KeyConsumer) -> None:
        consumer.is_leaving = False
        self.queue.leaving -= 1
        LEAVING.delete(self.tx, self.name, consumer.order)

    def with_deliveries(self) -> bytes | None:
        """A consumer that has deliveries, whichever."""
        start = None
        while True:
            rows = CONSUMERS.range(self.tx, self.name, limit=RANGE_LIMIT_MAX, start=start)
            for row in rows:
                client = _bytes(row.parts[1])
                consumer = self._consumers.get(client, row.message)
                if consumer is not None and consumer.open > 0:
                    return client
            if len(rows) < RANGE_LIMIT_MAX:
                return None
            start = rows[-1].record.key + b"\0"

    # -- who is free

    def next_in_turn(self) -> bytes | None:
        """The free consumer that registered next after the one that was served last, and then the first again."""
        queue = self.queue
        if not queue.free:
            return None
        if self._free is None and queue.free <= FREE_IN_HAND_MAX:
            records = self.tx.range(*TURNS.bounds(self.name), limit=RANGE_LIMIT_MAX, expected=True)
            self._free = [_turn(TURNS.row(record)) for record in records]
        if self._free is None:
            after = TURNS.key(self.name, queue.served_order) + b"\0"
            rows = TURNS.range(self.tx, self.name, limit=1, start=after)
            order, client = _turn((rows or TURNS.range(self.tx, self.name, limit=1))[0])
        else:
            place = bisect_right(self._free, queue.served_order, key=itemgetter(0))
            order, client = self._free[place % len(self._free)]
        queue.served_order = order
        return client

    def see_rooms(self) -> None:
        """Another number of deliveries is allowed: see who is free now."""
        start = None
        while True:
            rows = CONSUMERS.range(self.tx, self.name, limit=RANGE_LIMIT_MAX, start=start)
            for row in rows:
                client = _bytes(row.parts[1])
                consumer = self._consumers.setdefault(client, row.message)
                if consumer is not None and self._has_room(consumer) is not consumer.has_turn:
                    self._see_room(client, consumer)
            if len(rows) < RANGE_LIMIT_MAX:
                return
            start = rows[-1].record.key + b"\0"

    def _has_room(self, consumer: KeyConsumer) -> bool:
        return not consumer.is_leaving and consumer.open < self.queue.max_in_flight

    def _see_room(self, client: bytes, consumer: KeyConsumer) -> None:
        """A consumer that has changed has turns if it has room."""
        self._changed.add(client)
        has_room = self._has_room(consumer)
        if has_room is consumer.has_turn:
            return
        consumer.has_turn = has_room
        if has_room:
            self.queue.free += 1
            TURNS.put(self.tx, KeyTurn(client=client), self.name, consumer.order)
            if self._free is not None:
                insort(self._free, (consumer.order, client))
        else:
            self.queue.free -= 1
            TURNS.delete(self.tx, self.name, consumer.order)
            if self._free is not None:
                self._free.remove((consumer.order, client))


def _turn(row: Row[KeyTurn]) -> Turn:
    return _int(row.parts[1]), row.message.client


def _int(part: Element) -> int:
    assert isinstance(part, int)
    return part


def _bytes(part: Element) -> bytes:
    assert isinstance(part, bytes)
    return part
