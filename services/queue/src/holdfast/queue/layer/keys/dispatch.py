"""Who gets which message: the lowest idx first, to the consumers with room in turn."""

from collections.abc import Callable
from typing import Final

from holdfast.queue.layer.keys import names
from holdfast.queue.layer.keys.names import Kind
from holdfast.queue.layer.keys.records import CONSUMERS, DUE, READY, TURNS
from holdfast.queue.layer.records_pb2 import KeyDue, KeyQueue, KeyReady, KeyTurn
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.storage.tables import Row

DELIVERIES_MAX: Final = 256
"""In one revision; what is left goes with the next change of the queue."""
_PAGE: Final = 16


OnDue = Callable[[bytes, int, int], None]
"""Told of a queue, an idx in it and the moment its delivery is due, once that is committed."""


def dispatch(change: SpaceChange, name: bytes, queue: KeyQueue, now_ms: int, on_due: OnDue) -> None:
    made = 0
    while made < DELIVERIES_MAX:
        ready = READY.range(change.tx, name, limit=_PAGE)
        for row in ready:
            if not _deliver(change, name, queue, row, now_ms, on_due):
                return
            made += 1
        if len(ready) < _PAGE:
            return


def _deliver(
    change: SpaceChange, name: bytes, queue: KeyQueue, row: Row[KeyReady], now_ms: int, on_due: OnDue
) -> bool:
    """Give one message to the next consumer with room; False if there is none."""
    tx = change.tx
    idx = row.parts[1]
    assert isinstance(idx, int)
    key = names.message_key(name, idx, row.message.name)
    message = change.get(key)
    if message is None:
        READY.delete(tx, name, idx)
        return True
    client = _next_in_turn(change, name, queue)
    if client is None:
        return False
    consumer = CONSUMERS.get(tx, name, client)
    assert consumer is not None, "a consumer that is gone has no turn"
    consumer.open += 1
    CONSUMERS.put(tx, consumer, name, client)
    if consumer.open >= queue.max_in_flight:
        TURNS.delete(tx, name, consumer.order)
    READY.delete(tx, name, idx)
    delivery = names.delivery_key(name, client, idx, row.message.name)
    change.put(delivery, change.value(message), 0, None)
    if queue.ack_timeout_ms:
        due_at_ms = now_ms + queue.ack_timeout_ms
        DUE.put(tx, KeyDue(client=client, name=row.message.name, due_at_ms=due_at_ms), name, idx)
        tx.after_commit(lambda _: on_due(name, idx, due_at_ms))
    return True


def _next_in_turn(change: SpaceChange, name: bytes, queue: KeyQueue) -> bytes | None:
    after = TURNS.key(name, queue.served_order) + b"\0"
    rows = TURNS.range(change.tx, name, limit=1, start=after) or TURNS.range(change.tx, name, limit=1)
    if not rows:
        return None
    order = rows[0].parts[1]
    assert isinstance(order, int)
    queue.served_order = order
    return rows[0].message.client


def take_back(change: SpaceChange, name: bytes, client: bytes) -> None:
    """Delete all deliveries of a consumer that leaves; their messages wait again, in their old places."""
    prefix = names.consumer_key(name, client)
    for entry in change.find(prefix, names.prefix_end(prefix)):
        key = names.parsed(entry.key)
        if key is not None and key.kind is Kind.DELIVERY:
            change.delete(entry)
            DUE.delete(change.tx, name, key.idx)
            READY.put(change.tx, KeyReady(name=key.name), name, key.idx)


def return_message(change: SpaceChange, name: bytes, idx: int, due: KeyDue) -> None:
    """Take back a single delivery of a consumer that stays."""
    delivery = change.get(names.delivery_key(name, due.client, idx, due.name))
    DUE.delete(change.tx, name, idx)
    if delivery is None:
        return
    change.delete(delivery)
    READY.put(change.tx, KeyReady(name=due.name), name, idx)
    _make_room(change, name, due.client)


def forget_messages(change: SpaceChange, name: bytes) -> None:
    """Delete all messages and deliveries of a queue."""
    tx = change.tx
    prefix = names.queue_key(name) + b"/"
    for entry in change.find(prefix, names.prefix_end(prefix)):
        key = names.parsed(entry.key)
        if key is None or key.kind not in (Kind.MESSAGE, Kind.DELIVERY):
            continue
        change.delete(entry)
        READY.delete(tx, name, key.idx)
        DUE.delete(tx, name, key.idx)
        if key.kind is Kind.DELIVERY:
            _make_room(change, name, key.client)


def _make_room(change: SpaceChange, name: bytes, client: bytes) -> None:
    consumer = CONSUMERS.get(change.tx, name, client)
    if consumer is None:
        return
    consumer.open -= 1
    CONSUMERS.put(change.tx, consumer, name, client)
    TURNS.put(change.tx, KeyTurn(client=client), name, consumer.order)
