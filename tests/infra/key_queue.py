"""What must be true of a queue over keys at every moment, whatever was done to it: its keys, and what is kept beside them."""

from typing import NamedTuple

from holdfast.queue.layer.keys import names
from holdfast.queue.layer.keys.names import Kind
from holdfast.queue.layer.keys.records import CONSUMERS, DUE, LEAVING, QUEUES, READY, TURNS
from holdfast.queue.layer.keys.rules import QUEUE_ITSELF
from holdfast.queue.layer.keys.settings import shown
from holdfast.queue.layer.records_pb2 import KeyConsumer, KeyQueue
from holdfast.state.layer.kv.records import Entry, bounds_of, entries, value_of
from holdfast.storage.keys import Element
from holdfast.storage.port import RANGE_LIMIT_MAX, View
from holdfast.storage.tables import M, Row, Table


class Delivery(NamedTuple):
    client: bytes
    name: bytes
    value: bytes


class Keys:
    """The keys of a queue, by what they mean."""

    def __init__(self, view: View, queue: bytes) -> None:
        self.messages: dict[int, tuple[bytes, bytes]] = {}
        """Name and value by idx."""
        self.deliveries: dict[int, Delivery] = {}
        self.registered: set[bytes] = set()
        self.host: bytes | None = None
        self.config: bytes | None = None
        start = names.queue_key(queue)
        for entry in entries(view, *bounds_of(start, names.prefix_end(start + b"/"))):
            self._take(view, queue, entry)

    def _take(self, view: View, queue: bytes, entry: Entry) -> None:
        key = names.parsed(entry.key)
        assert key is not None
        if key.queue != queue:
            return  # Its name begins with that of this one.
        value = value_of(view, entry.record)
        assert key.kind is Kind.CONSUMER or not entry.record.lease, f"{key} would end with a lease"
        match key.kind:
            case Kind.MESSAGE:
                assert entry.key == names.message_key(queue, key.idx, key.name)
                assert key.idx not in self.messages, f"{key.idx} was given twice"
                self.messages[key.idx] = key.name, value
            case Kind.DELIVERY:
                assert entry.key == names.delivery_key(queue, key.client, key.idx, key.name)
                assert key.idx not in self.deliveries, f"{key.idx} is with two consumers"
                self.deliveries[key.idx] = Delivery(key.client, key.name, value)
            case Kind.CONSUMER:
                self.registered.add(key.client)
            case Kind.QUEUE:
                self.host = value
            case Kind.CONFIG:
                self.config = value
            case _:
                raise AssertionError(f"{entry.key!r} is left")


def check_queue(view: View, queue: bytes, *, is_room_kept: bool = True) -> Keys:
    """The rows agree with the keys, and nothing waits that need not. `is_room_kept`: the room of its consumers was not made
    less than what they had."""
    keys = Keys(view, queue)
    row = QUEUES.get(view, queue)
    if row is None:
        assert (keys.host, keys.config, keys.messages, keys.deliveries, keys.registered) == (
            None,
            None,
            {},
            {},
            set(),
        )
        for table in (CONSUMERS, TURNS, LEAVING, READY, DUE):
            assert not table.range(view, queue, limit=1), table.name
        return keys
    assert keys.host is not None
    assert keys.host.isdigit()
    assert keys.config == shown(row)
    _check_messages(view, queue, keys, row)
    _check_consumers(view, queue, keys, row, is_room_kept=is_room_kept)
    dues = {_int(one.parts[1]) for one in _rows(DUE, view, queue)}
    assert dues - {QUEUE_ITSELF} <= keys.deliveries.keys()
    assert not dues - {QUEUE_ITSELF} or row.is_timed
    assert (QUEUE_ITSELF in dues) is row.is_unfinished
    if not row.is_unfinished:
        assert not (row.waiting and row.free), "a message waits while a consumer has room"
        assert (row.leaving, row.forgotten_idx) == (0, 0)
    return keys


def _check_messages(view: View, queue: bytes, keys: Keys, row: KeyQueue) -> None:
    ready = {_int(one.parts[1]): one.message.name for one in _rows(READY, view, queue)}
    for idx, delivery in keys.deliveries.items():
        assert keys.messages.get(idx) == (delivery.name, delivery.value)
    assert not ready.keys() & keys.deliveries.keys(), "a message waits and is with a consumer"
    assert ready.keys() | keys.deliveries.keys() == keys.messages.keys(), "a message is nowhere"
    assert {idx: keys.messages[idx][0] for idx in ready} == ready
    assert row.waiting == len(ready)
    assert max(keys.messages, default=0) <= row.last_idx


def _check_consumers(view: View, queue: bytes, keys: Keys, row: KeyQueue, *, is_room_kept: bool) -> None:
    found: dict[bytes, KeyConsumer] = {
        _bytes(one.parts[1]): one.message for one in _rows(CONSUMERS, view, queue)
    }
    turns = {_int(one.parts[1]): one.message.client for one in _rows(TURNS, view, queue)}
    leaving = {_int(one.parts[1]): one.message.client for one in _rows(LEAVING, view, queue)}
    for client, consumer in found.items():
        count = sum(1 for delivery in keys.deliveries.values() if delivery.client == client)
        assert consumer.open == count, client
        assert consumer.is_leaving is (client not in keys.registered), client
        has_room = not consumer.is_leaving and consumer.open < row.max_in_flight
        assert consumer.has_turn is has_room, client
        if is_room_kept:
            assert consumer.open <= row.max_in_flight, client
    assert keys.registered <= found.keys()
    assert {delivery.client for delivery in keys.deliveries.values()} <= found.keys()
    assert {client: one.order for client, one in found.items() if one.has_turn} == _turned(turns)
    assert {client: one.order for client, one in found.items() if one.is_leaving} == _turned(leaving)
    assert (row.free, row.leaving) == (len(turns), len(leaving))


def _turned(turns: dict[int, bytes]) -> dict[bytes, int]:
    return {client: order for order, client in turns.items()}


def _rows(table: Table[M], view: View, queue: bytes) -> list[Row[M]]:
    found: list[Row[M]] = []
    start = None
    while True:
        page = table.range(view, queue, limit=RANGE_LIMIT_MAX, start=start)
        found += page
        if len(page) < RANGE_LIMIT_MAX:
            return found
        start = page[-1].record.key + b"\0"


def _int(part: Element) -> int:
    assert isinstance(part, int)
    return part


def _bytes(part: Element) -> bytes:
    assert isinstance(part, bytes)
    return part
