"""What happens to a queue when one of its keys is put or deleted: all of it in the commit that does so.

The revision of the client has what the client asked for, and the end of a message that it acknowledged. One revision more has
what follows: messages get their places, and go to consumers that have room.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from holdfast.queue.layer.keys import names
from holdfast.queue.layer.keys.dispatch import (
    Budget,
    OnDue,
    dispatch,
    forget_all,
    forget_due,
    return_message,
    take_back_all,
)
from holdfast.queue.layer.keys.names import Kind, QueueKey
from holdfast.queue.layer.keys.records import CONSUMERS, DUE, LEAVING, QUEUES, READY, TURNS
from holdfast.queue.layer.keys.rows import QueueRows
from holdfast.queue.layer.keys.settings import QueueDefaults, Reliability, apply_settings, is_settings, shown
from holdfast.queue.layer.records_pb2 import KeyDue, KeyQueue
from holdfast.state.layer.kv.errors import KeyMissing, KvForbidden, KvInvalid, QueueNotEmpty
from holdfast.state.layer.kv.records import LEASES, key_of, record_of
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.state.layer.records_pb2 import KvEvent
from holdfast.storage.port import RANGE_LIMIT_MAX, Transaction

CLIENT_BYTES_MAX: Final = 256
"""Of the id of a consumer; so that what is put into a queue can be delivered to any."""
GO_ON_MS: Final = 2000
"""After which every process that shares the store goes on with what one of them has not finished."""
QUEUE_ITSELF: Final = 0
"""In place of an idx."""

Found = list[tuple[QueueKey, KvEvent]]


class Context(NamedTuple):
    """What a commit knows that is not in the store."""

    node_id: int
    defaults: QueueDefaults
    now_ms: int
    grant: Callable[[Transaction, bytes], int]
    """Makes a lease for the consumer of a registration that brings none."""
    on_due: OnDue
    watch: int = 0
    """The watch that makes this commit to register its consumer."""


class QueueCommit:
    """What follows for queues from one change of the key space: an `Extension` of it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._node = b"%d" % context.node_id
        self._budget = Budget()

    # -- in the revision of the client

    def complete(self, change: SpaceChange) -> Callable[[SpaceChange], None] | None:
        """Refuse what clients may not do; end the messages whose deliveries they deleted."""
        found = _found_in(change.events)
        if not found:
            return None
        change.tx.prefetch(lambda: _read_next([key for key, _ in found]))
        for key, event in found:
            if event.record:
                check_put(key)
                _check_settings(change, key, event)
            else:
                check_delete(key)
        for key, event in found:
            if key.kind is Kind.DELIVERY and not event.record:
                _acknowledge(change, key)
        for key, event in found:
            if key.kind is Kind.QUEUE and not event.record:
                _end_queue(change, key.queue)
        return lambda following: self._follow_all(following, found)

    # -- in the revision after it

    def _follow_all(self, change: SpaceChange, found: Found) -> None:
        self._budget = Budget()  # For all queues together; this may run again.
        for queue in dict.fromkeys(key.queue for key, _ in found):
            self._follow(change, queue, [one for one in found if one[0].queue == queue])

    def _follow(self, change: SpaceChange, name: bytes, found: Found) -> None:
        if any(key.kind is Kind.QUEUE and not event.record for key, event in found):
            _remove_rows(change.tx, name)
            found = [one for one in found if one[1].record]
            if not found:
                return
        rows = QueueRows(change.tx, name, self._context.defaults)
        self._host(change, rows, found)
        for key, event in found:
            if key.kind is Kind.DELIVERY and not event.record:
                rows.add_open(key.client, -1)
                forget_due(rows, key.idx)
        for key, event in found:
            if key.kind is Kind.INCOMING and event.record:
                _move(change, rows, key, event)
            elif key.kind is Kind.CONSUMER:
                self._registered(change, rows, key, event)
        self._work(change, rows)
        rows.write()

    def take_back(self, change: SpaceChange, name: bytes, idx: int) -> None:
        """A delivery whose time may be over; `go_on` gives its message to somebody."""
        due = DUE.get(change.tx, name, idx)
        if due is not None and due.due_at_ms <= self._context.now_ms:
            rows = QueueRows(change.tx, name, self._context.defaults)
            return_message(change, rows, idx, due)
            rows.write()

    def go_on(self, change: SpaceChange, name: bytes) -> None:
        """Look at a queue again without a change of its keys by a client."""
        self._budget = Budget()
        rows = QueueRows(change.tx, name, self._context.defaults)
        if not rows.is_new:
            self._work(change, rows)
            rows.write()

    def forget(self, change: SpaceChange, name: bytes) -> None:
        """Begin to remove all messages of a queue: they were in the memory of a process that is gone."""
        self._budget = Budget()
        rows = QueueRows(change.tx, name, self._context.defaults)
        rows.queue.forgotten_idx = rows.queue.last_idx
        self._work(change, rows)
        rows.write()

    def _work(self, change: SpaceChange, rows: QueueRows) -> None:
        """As much as one commit may do. What is left is done by the next one, of this process if it lives."""
        context, queue, budget = self._context, rows.queue, self._budget
        is_done = (
            forget_all(change, rows, budget)
            and take_back_all(change, rows, budget)
            and dispatch(change, rows, budget, context.now_ms, context.on_due)
        )
        if not is_done:
            due_at_ms = context.now_ms + GO_ON_MS
            DUE.put(change.tx, KeyDue(due_at_ms=due_at_ms), rows.name, QUEUE_ITSELF)
            change.tx.after_commit(lambda _: context.on_due(rows.name, QUEUE_ITSELF, context.now_ms))
        elif queue.is_unfinished:
            DUE.delete(change.tx, rows.name, QUEUE_ITSELF)
        queue.is_unfinished = not is_done

    def _host(self, change: SpaceChange, rows: QueueRows, found: Found) -> None:
        """The queue is there, has its settings, and is dispatched by a node that lives."""
        key = names.queue_key(rows.name)
        entry = change.get(key)
        value = b"" if entry is None else change.value(entry)
        put = next((event for one, event in found if one.kind is Kind.QUEUE), None)
        host = value if put is None else record_of(put.previous).value
        if not host:
            host = self._node
        elif host != self._node and not _lives(change, host) and _lives(change, self._node):
            host = self._node
            if rows.queue.reliability == Reliability.NONE:
                # They were in the memory of the node that is gone.
                rows.queue.forgotten_idx = rows.queue.last_idx
        if put is not None and is_settings(value):
            _set(rows, value)
        if rows.is_new or put is not None:
            config = names.config_key(rows.name)
            before = change.get(config)
            if before is None or change.value(before) != shown(rows.queue):
                change.put(config, shown(rows.queue), 0, before)
        if entry is None or host != value or entry.record.lease:
            change.put(key, host, 0, entry)  # A queue does not end with a lease.

    def _registered(self, change: SpaceChange, rows: QueueRows, key: QueueKey, event: KvEvent) -> None:
        """A registration was put, changed, or is gone."""
        client = key.client
        entry = change.get(event.key)
        if entry is None:
            rows.leave(client)
            return
        consumer = rows.consumer(client)
        if consumer is None or consumer.is_leaving:
            consumer = rows.register(client)
        lease, server_lease = entry.record.lease, consumer.server_lease
        if not lease:
            if not server_lease or LEASES.get(change.tx, server_lease) is None:
                server_lease = self._context.grant(change.tx, event.key)
            lease = server_lease
        elif lease != server_lease:
            server_lease = 0
        rows.lease(client, server_lease, self._context.watch)
        if lease != entry.record.lease or change.value(entry) != self._node:
            change.put(event.key, self._node, lease, entry)


class _Unruled:
    """The server itself may do everything."""

    def complete(self, change: SpaceChange) -> None:
        return None


UNRULED: Final = _Unruled()


def check_put(key: QueueKey) -> None:
    """Refuse what no client may put."""
    if key.kind is Kind.NAMELESS:
        raise KeyMissing
    if key.kind in (Kind.MESSAGE, Kind.DELIVERY, Kind.CONFIG):
        raise KvForbidden
    if key.kind is Kind.INCOMING:
        key_of(names.delivery_key(key.queue, b"-" * CLIENT_BYTES_MAX, 1, key.name))
    elif key.kind is Kind.CONSUMER and len(key.client) + key.client.count(0) > CLIENT_BYTES_MAX:
        raise KvInvalid(f"the id of a consumer has at most {CLIENT_BYTES_MAX} bytes")


def check_delete(key: QueueKey) -> None:
    """Refuse what no client may delete."""
    if key.kind in (Kind.MESSAGE, Kind.CONFIG):
        raise KvForbidden


def check_keys(puts: Iterable[bytes], deletes: Iterable[bytes]) -> None:
    """Refuse single keys that clients may never write, also in the branch of a transaction that would not run."""
    for keys, check in ((puts, check_put), (deletes, check_delete)):
        for key in keys:
            parsed = names.parsed(key)
            if parsed is not None:
                check(parsed)


def _found_in(events: list[KvEvent]) -> Found:
    """The events that are about queues."""
    return [
        (key, event)
        for event in events
        if event.key.startswith(names.ROOT) and (key := names.parsed(event.key)) is not None
    ]


def _read_next(keys: list[QueueKey]) -> list[bytes]:
    """What is certain to be read for these."""
    found: list[bytes] = []
    for key in keys:
        found += (QUEUES.key(key.queue), key_of(names.queue_key(key.queue)))
        if key.kind is Kind.DELIVERY:
            found.append(key_of(names.message_key(key.queue, key.idx, key.name)))
        if key.kind in (Kind.DELIVERY, Kind.CONSUMER):
            found.append(CONSUMERS.key(key.queue, key.client))
    return found


def _check_settings(change: SpaceChange, key: QueueKey, event: KvEvent) -> None:
    """Refuse wrong ones before they are written."""
    if key.kind is Kind.QUEUE:
        entry = change.get(event.key)
        assert entry is not None, "it was put"
        if is_settings(value := change.value(entry)):
            apply_settings(KeyQueue(), value)


def _set(rows: QueueRows, value: bytes) -> None:
    queue = rows.queue
    room = queue.max_in_flight
    apply_settings(queue, value)
    queue.is_timed = queue.is_timed or queue.ack_timeout_ms > 0
    if queue.max_in_flight != room:
        rows.see_rooms()


def _acknowledge(change: SpaceChange, key: QueueKey) -> None:
    message = change.get(names.message_key(key.queue, key.idx, key.name))
    if message is not None:
        change.delete(message)


def _end_queue(change: SpaceChange, name: bytes) -> None:
    """Only if nothing is left of it but its settings."""
    prefix = names.queue_key(name)
    messages = names.message_key(name, 0, b""), names.message_key(name, 10**names.IDX_DIGITS - 1, b"\xff")
    consumers = prefix + b"/consumer/"
    if change.has_any(*messages) or change.has_any(consumers, names.prefix_end(consumers)):
        raise QueueNotEmpty
    config = change.get(names.config_key(name))
    if config is not None:
        change.delete(config)


def _remove_rows(tx: Transaction, name: bytes) -> None:
    QUEUES.delete(tx, name)
    for table in (CONSUMERS, TURNS, LEAVING, READY, DUE):
        while records := tx.range(*table.bounds(name), limit=RANGE_LIMIT_MAX):
            for record in records:
                tx.delete(record.key)


def _move(change: SpaceChange, rows: QueueRows, key: QueueKey, event: KvEvent) -> None:
    incoming = change.get(event.key)
    assert incoming is not None, "what is put on a producer key is moved in the same commit"
    value = change.value(incoming)
    change.delete(incoming)
    rows.queue.last_idx += 1
    idx = rows.queue.last_idx
    change.put(names.message_key(key.queue, idx, key.name), value, 0, None)
    rows.wait(idx, key.name)


def _lives(change: SpaceChange, node: bytes) -> bool:
    return node.isdigit() and change.get(names.node_key(int(node))) is not None
