"""What happens to a queue when one of its keys is put or deleted: all of it in the commit that does so.

The revision of the client has what the client asked for, and the end of a message that it acknowledged. One revision more has
what follows: messages get their places, and go to consumers that have room.
"""

from collections.abc import Callable

from holdfast.queue.layer.keys import names
from holdfast.queue.layer.keys.dispatch import OnDue, dispatch, forget_messages, take_back
from holdfast.queue.layer.keys.names import Kind, QueueKey
from holdfast.queue.layer.keys.records import CONSUMERS, DUE, QUEUES, READY, TURNS
from holdfast.queue.layer.keys.settings import QueueDefaults, Reliability, apply_settings, is_settings, shown
from holdfast.queue.layer.records_pb2 import KeyConsumer, KeyQueue, KeyReady, KeyTurn
from holdfast.state.layer.kv.errors import KeyMissing, KvForbidden, QueueNotEmpty
from holdfast.state.layer.kv.records import LEASES
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.state.layer.records_pb2 import KvEvent
from holdfast.storage.port import Transaction


class QueueCommit:
    """What follows for one queue from one change of the key space."""

    def __init__(
        self,
        node_id: int,
        defaults: QueueDefaults,
        now_ms: int,
        grant: Callable[[Transaction, bytes], int],
        on_due: OnDue,
    ) -> None:
        """`grant` makes a lease for the consumer of a registration that brings none."""
        self._node = b"%d" % node_id
        self._defaults = defaults
        self._now_ms = now_ms
        self._grant = grant
        self._on_due = on_due

    # -- in the revision of the client

    def complete(self, change: SpaceChange, found: list[tuple[QueueKey, KvEvent]]) -> None:
        """Refuse what clients may not do; end the messages whose deliveries they deleted."""
        for key, event in found:
            if event.record:
                _check_put(key)
                if key.kind is Kind.QUEUE:
                    entry = change.get(event.key)
                    assert entry is not None
                    if is_settings(change.value(entry)):
                        apply_settings(KeyQueue(), change.value(entry))  # Refused before it is written.
            else:
                self._check_delete(change, key)
        for key, event in found:
            if key.kind is Kind.DELIVERY and not event.record:
                self._acknowledge(change, key)

    def _check_delete(self, change: SpaceChange, key: QueueKey) -> None:
        if key.kind in (Kind.MESSAGE, Kind.CONFIG):
            raise KvForbidden
        if key.kind is not Kind.QUEUE:
            return
        tx, name = change.tx, key.queue
        if any(table.range(tx, name, limit=1) for table in (READY, CONSUMERS)) or _messages(change, name):
            raise QueueNotEmpty
        config = change.get(names.config_key(name))
        if config is not None:
            change.delete(config)
        QUEUES.delete(tx, name)

    def _acknowledge(self, change: SpaceChange, key: QueueKey) -> None:
        tx, queue = change.tx, key.queue
        message = change.get(names.message_key(queue, key.idx, key.name))
        if message is not None:
            change.delete(message)
        DUE.delete(tx, queue, key.idx)
        consumer, settings = CONSUMERS.get(tx, queue, key.client), QUEUES.get(tx, queue)
        if consumer is not None and settings is not None:
            consumer.open -= 1
            CONSUMERS.put(tx, consumer, queue, key.client)
            if consumer.open < settings.max_in_flight:
                TURNS.put(tx, KeyTurn(client=key.client), queue, consumer.order)

    # -- in the revision after it

    def follow(self, change: SpaceChange, name: bytes, found: list[tuple[QueueKey, KvEvent]]) -> None:
        if found and all(key.kind is Kind.QUEUE and not event.record for key, event in found):
            return  # The queue was deleted.
        queue = self._queue(change, name, found)
        for key, event in found:
            if key.kind is Kind.INCOMING and event.record:
                self._move(change, queue, key, event)
            elif key.kind is Kind.CONSUMER:
                self._registered(change, queue, key, event)
        dispatch(change, name, queue, self._now_ms, self._on_due)
        QUEUES.put(change.tx, queue, name)

    def _queue(self, change: SpaceChange, name: bytes, found: list[tuple[QueueKey, KvEvent]]) -> KeyQueue:
        """The queue, made if it is not there, and dispatched by a node that lives."""
        key = names.queue_key(name)
        entry = change.get(key)
        queue = QUEUES.get(change.tx, name)
        is_new = queue is None
        if queue is None:
            queue = KeyQueue(
                reliability=self._defaults.reliability, max_in_flight=self._defaults.max_in_flight
            )
        value = b"" if entry is None else change.value(entry)
        is_put = any(one.kind is Kind.QUEUE and event.record for one, event in found)
        is_taken_over = not is_put and not _lives(change, value)
        if is_taken_over and value and queue.reliability == Reliability.NONE:
            forget_messages(change, name)  # They were in the memory of the node that is gone.
        if is_put and is_settings(value):
            room = queue.max_in_flight
            apply_settings(queue, value)
            if queue.max_in_flight != room:
                _give_turns(change, name, queue)
        if is_new or is_put:
            config = names.config_key(name)
            before = change.get(config)
            if before is None or change.value(before) != shown(queue):
                change.put(config, shown(queue), 0, before)
        if value != self._node and (is_put or is_taken_over):
            change.put(key, self._node, 0, change.get(key))
        elif entry is not None and entry.record.lease:
            change.put(key, value, 0, entry)  # A queue does not end with a lease.
        return queue

    def _move(self, change: SpaceChange, queue: KeyQueue, key: QueueKey, event: KvEvent) -> None:
        incoming = change.get(event.key)
        assert incoming is not None, "what is put on a producer key is moved in the same commit"
        value = change.value(incoming)
        change.delete(incoming)
        queue.last_idx += 1
        change.put(names.message_key(key.queue, queue.last_idx, key.name), value, 0, None)
        READY.put(change.tx, KeyReady(name=key.name), key.queue, queue.last_idx)

    def _registered(self, change: SpaceChange, queue: KeyQueue, key: QueueKey, event: KvEvent) -> None:
        """A registration was put, changed, or is gone."""
        tx, name, client = change.tx, key.queue, key.client
        consumer = CONSUMERS.get(tx, name, client)
        entry = change.get(event.key)
        if entry is None:
            if consumer is not None:
                take_back(change, name, client)
                CONSUMERS.delete(tx, name, client)
                TURNS.delete(tx, name, consumer.order)
            return
        if consumer is None:
            queue.last_order += 1
            consumer = KeyConsumer(order=queue.last_order)
            TURNS.put(tx, KeyTurn(client=client), name, consumer.order)
            CONSUMERS.put(tx, consumer, name, client)
        lease = entry.record.lease
        if not lease:
            if not consumer.server_lease or LEASES.get(tx, consumer.server_lease) is None:
                consumer.server_lease = self._grant(tx, event.key)
                CONSUMERS.put(tx, consumer, name, client)
            lease = consumer.server_lease
        elif consumer.server_lease and lease != consumer.server_lease:
            consumer.server_lease = 0
            CONSUMERS.put(tx, consumer, name, client)
        if lease != entry.record.lease or change.value(entry) != self._node:
            change.put(event.key, self._node, lease, entry)


def _check_put(key: QueueKey) -> None:
    if key.kind is Kind.NAMELESS:
        raise KeyMissing
    if key.kind in (Kind.MESSAGE, Kind.DELIVERY, Kind.CONFIG):
        raise KvForbidden


def check_keys(puts: list[bytes], deletes: list[bytes]) -> None:
    """Refuse single keys that clients may never write, also in the branch of a transaction that would not run."""
    for key in puts:
        parsed = names.parsed(key)
        if parsed is not None:
            _check_put(parsed)
    for key in deletes:
        parsed = names.parsed(key)
        if parsed is not None and parsed.kind in (Kind.MESSAGE, Kind.CONFIG):
            raise KvForbidden


def found_in(events: list[KvEvent]) -> list[tuple[QueueKey, KvEvent]]:
    """The events that are about queues."""
    return [
        (key, event)
        for event in events
        if event.key.startswith(names.ROOT) and (key := names.parsed(event.key)) is not None
    ]


def _messages(change: SpaceChange, name: bytes) -> bool:
    """Whether a message is left, in its place or with a consumer."""
    start = names.message_key(name, 0, b"")
    end = names.message_key(name, 10**names.IDX_DIGITS - 1, b"\xff")
    return change.has_any(start, end)


def _lives(change: SpaceChange, node: bytes) -> bool:
    return node.isdigit() and change.get(names.node_key(int(node))) is not None


def _give_turns(change: SpaceChange, name: bytes, queue: KeyQueue) -> None:
    """Another number of deliveries is allowed: who has room has changed."""
    tx = change.tx
    start = None
    while True:
        rows = CONSUMERS.range(tx, name, limit=1000, start=start)
        for row in rows:
            consumer = row.message
            client = row.parts[1]
            assert isinstance(client, bytes)
            if consumer.open < queue.max_in_flight:
                TURNS.put(tx, KeyTurn(client=client), name, consumer.order)
            else:
                TURNS.delete(tx, name, consumer.order)
        if len(rows) < 1000:
            return
        start = rows[-1].record.key + b"\0"
