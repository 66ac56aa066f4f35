"""Who gets which message: the lowest idx first, to the consumers with room in turn; and what is taken back from them.

A commit has a bound. What is left to do when it is reached is done by the next one, which nobody has to cause.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from holdfast.queue.layer.keys import names
from holdfast.queue.layer.keys.names import Kind, QueueKey
from holdfast.queue.layer.keys.records import DUE
from holdfast.queue.layer.keys.rows import QueueRows
from holdfast.queue.layer.records_pb2 import KeyDue
from holdfast.state.layer.kv.records import Entry, key_of
from holdfast.state.layer.kv.space import SpaceChange

STEPS_MAX: Final = 256
"""Messages that one commit gives to consumers, takes back or removes."""
BYTES_MAX: Final = 2 << 20
"""Of their values and keys, unless the first one has more."""
PAGE: Final = 64

OnDue = Callable[[bytes, int, int], None]
"""Told of a queue, an idx in it and the moment to look at its delivery; once too often does no harm."""


class Budget:
    """What one commit may still do."""

    def __init__(self) -> None:
        self._steps = STEPS_MAX
        self._bytes = BYTES_MAX

    def take(self, entry: Entry) -> bool:
        """Whether one step more is within it, with this key and its value."""
        size = len(entry.raw) + entry.record.value_bytes + 2 * len(entry.key)
        is_first = self._steps == STEPS_MAX
        if not self._steps or (size > self._bytes and not is_first):
            return False
        self._steps -= 1
        self._bytes -= size
        return True


def dispatch(change: SpaceChange, rows: QueueRows, budget: Budget, now_ms: int, on_due: OnDue) -> bool:
    """False: there is more to give, and a consumer with room for it."""
    while rows.queue.waiting and rows.queue.free:
        page = rows.first_waiting(PAGE)
        if not page:
            return True
        change.tx.prefetch(partial(_places, rows, page))
        for idx, name in page:
            if not rows.queue.free:
                return True
            message = change.get(names.message_key(rows.name, idx, name))
            if message is None:
                rows.stop_waiting(idx)
                continue
            if not budget.take(message):
                return False
            client = _deliver(change, rows, message, idx, name)
            if rows.queue.ack_timeout_ms:
                due_at_ms = now_ms + rows.queue.ack_timeout_ms
                DUE.put(change.tx, KeyDue(client=client, name=name, due_at_ms=due_at_ms), rows.name, idx)
                on_due(rows.name, idx, due_at_ms)
    return True


def _places(rows: QueueRows, page: list[tuple[int, bytes]]) -> list[bytes]:
    """Where the messages lie that are given next: each consumer that is free takes one."""
    first = page[: rows.queue.free]
    return [
        key_of(names.message_key(rows.name, idx, name)) for idx, name in first if not rows.is_new_here(idx)
    ]


def _deliver(change: SpaceChange, rows: QueueRows, message: Entry, idx: int, name: bytes) -> bytes:
    client = rows.next_in_turn()
    assert client is not None, "the queue counts those that are free"
    rows.stop_waiting(idx)
    rows.add_open(client, 1)
    change.put(names.delivery_key(rows.name, client, idx, name), change.value(message), 0, None)
    return client


def take_back_all(change: SpaceChange, rows: QueueRows, budget: Budget) -> bool:
    """Of consumers that have left. False: there is more."""
    while (client := rows.first_leaving()) is not None:
        if not _take_back(change, rows, client, budget):
            return False
    return True


def _take_back(change: SpaceChange, rows: QueueRows, client: bytes, budget: Budget) -> bool:
    """All that a consumer has: its messages wait again, in their old places."""
    for entry, key in _deliveries(change, rows.name, client):
        if not budget.take(entry):
            return False
        change.delete(entry)
        forget_due(rows, key.idx)
        rows.wait(key.idx, key.name)
        rows.add_open(client, -1)
    rows.set_open(client, 0)
    return True


def _deliveries(change: SpaceChange, queue: bytes, client: bytes) -> list[tuple[Entry, QueueKey]]:
    """As many as one commit may take back, and one more."""
    prefix = names.consumer_key(queue, client)
    found = change.find_some(prefix, names.prefix_end(prefix), STEPS_MAX + 2)
    parsed = [(entry, names.parsed(entry.key)) for entry in found]
    return [(entry, key) for entry, key in parsed if key is not None and key.kind is Kind.DELIVERY]


def return_message(change: SpaceChange, rows: QueueRows, idx: int, due: KeyDue) -> None:
    """Take back a single delivery of a consumer that stays, if the queue still has a time for that."""
    delivery = change.get(names.delivery_key(rows.name, due.client, idx, due.name))
    DUE.delete(change.tx, rows.name, idx)
    if delivery is not None and rows.queue.ack_timeout_ms:
        change.delete(delivery)
        rows.wait(idx, due.name)
        rows.add_open(due.client, -1)


def forget_all(change: SpaceChange, rows: QueueRows, budget: Budget) -> bool:
    """Remove the messages up to the one that the queue names, and their deliveries. False: there is more."""
    last = rows.queue.forgotten_idx
    if not last:
        return True
    while (client := rows.with_deliveries()) is not None:
        if not _take_back(change, rows, client, budget):
            return False
    start = names.message_key(rows.name, 0, b"")
    end = names.message_key(rows.name, last + 1, b"")
    while found := change.find_some(start, end, PAGE):
        for entry in found:
            if not budget.take(entry):
                return False
            message = names.parsed(entry.key)
            assert message is not None, "it lies among the messages"
            change.delete(entry)
            rows.stop_waiting(message.idx)
    rows.queue.forgotten_idx = 0
    return True


def forget_due(rows: QueueRows, idx: int) -> None:
    """A delivery is no longer there to be taken back."""
    if rows.queue.is_timed:
        DUE.delete(rows.tx, rows.name, idx)
