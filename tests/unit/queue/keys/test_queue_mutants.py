"""Rules that are wrong, one at a time: a walk through the life of a queue notices each of them."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.queue.layer.keys import consumers, dispatch, names, rules
from holdfast.queue.layer.keys.dispatch import Budget
from holdfast.queue.layer.keys.names import QueueKey
from holdfast.queue.layer.keys.rows import QueueRows
from holdfast.queue.layer.keys.rules import QueueCommit
from holdfast.queue.layer.keys.settings import Reliability
from holdfast.queue.layer.records_pb2 import KeyConsumer
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.state.layer.records_pb2 import KvEvent
from tests.unit.queue.keys.test_queue_machine import QueueMachine

Mutant = Callable[[pytest.MonkeyPatch], None]


def walk() -> None:
    """Each rule that a mutant breaks, once, with a look at everything after each step."""
    machine = QueueMachine()
    steps: list[Callable[[], None]] = [
        lambda: machine.begin(3, False),
        lambda: machine.register(b"q", b"A", True),
        lambda: machine.register(b"q", b"z", False),
        lambda: machine.put(b"q", b"m", True),
        lambda: machine.put(b"q", b"m", False),
        lambda: machine.txn([(b"q", b"a/b"), (b"q2", b"m"), (b"q", b"/")], True, None),
        lambda: machine.put(b"q", b"m", False),
        lambda: machine.ack(b"q", 1),
        lambda: machine.register(b"q", b"A", False),
        lambda: machine.lease_ends(b"q", b"z"),
        lambda: machine.ack_all(b"q", b"A", False),
        lambda: machine.set(b"q", {"ack_timeout_s": 1, "max_in_flight": 1}),
        lambda: machine.put(b"q", b"m", False),
        lambda: machine.ack(b"q", 0),
        lambda: machine.tick(3000),
        lambda: machine.forbidden(b"q", 1),
        lambda: machine.watch(b"q", b"AB"),
        lambda: machine.watch(b"q", b"AB"),
        lambda: machine.close_watch(0),
        lambda: machine.ack_all(b"q", b"A", True),
        lambda: machine.ack_all(b"q", b"AB", False),
        lambda: machine.put(b"q", b"m", False),
        lambda: machine.close_watch(0),
        lambda: machine.delete_queue(b"q"),
        lambda: machine.set(b"q2", {"reliability": "none", "max_in_flight": 4}),
        lambda: machine.register(b"q2", b"A", False),
        lambda: machine.txn([(b"q2", b"1"), (b"q2", b"2"), (b"q2", b"3"), (b"q2", b"4")], False, None),
        lambda: machine.set(b"q2", {"max_in_flight": 1}),
        lambda: machine.txn([(b"q2", b"m"), (b"q2", b"/")], False, None),
        lambda: machine.set(b"q2", {"max_in_flight": 4}),
        lambda: machine.ack(b"q2", 0),
        lambda: machine.set(b"q2", {"max_in_flight": 6}),
        lambda: machine.unregister(b"q2", b"A"),
        machine.other_node,
        machine.node_dies,
        lambda: machine.put(b"q2", b"m", False),
    ]
    try:
        for step in steps:
            step()
            machine.every_message_is_in_exactly_one_place()
            machine.each_idx_is_given_once_in_the_order_of_puts()
    finally:
        machine.teardown()


def test_a_walk_through_the_life_of_a_queue_agrees_with_the_model() -> None:
    walk()


def nothing(*_: object) -> None:
    """In place of a step that is left out."""


def _ack_leaves_the_message(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_acknowledge", nothing)


def _ack_leaves_the_count(patch: pytest.MonkeyPatch) -> None:
    add_open = QueueRows.add_open

    def add(rows: QueueRows, client: bytes, count: int) -> None:
        if count > 0:
            add_open(rows, client, count)

    patch.setattr(QueueRows, "add_open", add)


def _taken_back_is_lost(patch: pytest.MonkeyPatch) -> None:
    wait = QueueRows.wait

    def waits(rows: QueueRows, idx: int, name: bytes) -> None:
        if idx == rows.queue.last_idx:
            wait(rows, idx, name)

    patch.setattr(QueueRows, "wait", waits)


def _latest_first(patch: pytest.MonkeyPatch) -> None:
    first_waiting = QueueRows.first_waiting

    def reverse(rows: QueueRows, limit: int) -> list[tuple[int, bytes]]:
        return first_waiting(rows, limit)[::-1]

    patch.setattr(QueueRows, "first_waiting", reverse)


def _always_the_first_consumer(patch: pytest.MonkeyPatch) -> None:
    next_in_turn = QueueRows.next_in_turn

    def first(rows: QueueRows) -> bytes | None:
        rows.queue.served_order = 0
        return next_in_turn(rows)

    patch.setattr(QueueRows, "next_in_turn", first)


def _one_delivery_too_many(patch: pytest.MonkeyPatch) -> None:
    def has_room(rows: QueueRows, consumer: KeyConsumer) -> bool:
        return not consumer.is_leaving and consumer.open <= rows.queue.max_in_flight

    patch.setattr(QueueRows, "_has_room", has_room)


def _idx_follows_what_is_there(patch: pytest.MonkeyPatch) -> None:
    move = rules._move

    def moved(change: SpaceChange, rows: QueueRows, key: QueueKey, event: KvEvent) -> None:
        if not rows.queue.waiting:
            rows.queue.last_idx = max(0, rows.queue.last_idx - 1)
        move(change, rows, key, event)

    patch.setattr(rules, "_move", moved)


def _moved_message_stays_with_its_producer(patch: pytest.MonkeyPatch) -> None:
    def moved(change: SpaceChange, rows: QueueRows, key: QueueKey, event: KvEvent) -> None:
        incoming = change.get(event.key)
        assert incoming is not None
        rows.queue.last_idx += 1
        idx = rows.queue.last_idx
        change.put(names.message_key(key.queue, idx, key.name), change.value(incoming), 0, None)
        rows.wait(idx, key.name)

    patch.setattr(rules, "_move", moved)


def _message_ends_with_the_lease_of_its_put(patch: pytest.MonkeyPatch) -> None:
    def moved(change: SpaceChange, rows: QueueRows, key: QueueKey, event: KvEvent) -> None:
        incoming = change.get(event.key)
        assert incoming is not None
        change.delete(incoming)
        rows.queue.last_idx += 1
        idx, lease = rows.queue.last_idx, incoming.record.lease
        change.put(names.message_key(key.queue, idx, key.name), change.value(incoming), lease, None)
        rows.wait(idx, key.name)

    patch.setattr(rules, "_move", moved)


def _due_outlives_the_ack(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "forget_due", nothing)


def _take_over_forgets_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "Reliability", type("Other", (), {**Reliability.__members__, "NONE": "never"}))


def _unfinished_is_not_told(patch: pytest.MonkeyPatch) -> None:
    work = QueueCommit._work

    def silent(commit: QueueCommit, change: SpaceChange, rows: QueueRows) -> None:
        work(commit, change, rows)
        rows.queue.is_unfinished = False

    patch.setattr(QueueCommit, "_work", silent)


def _every_watch_ends_its_consumer(patch: pytest.MonkeyPatch) -> None:
    def leave(change: SpaceChange, who: Any, watch: int) -> None:
        registration = change.get(names.consumer_key(*who))
        if registration is not None:
            change.delete(registration)

    patch.setattr(consumers, "leave", leave)


def _registering_again_forgets_deliveries(patch: pytest.MonkeyPatch) -> None:
    lease = QueueRows.lease

    def leased(rows: QueueRows, client: bytes, server_lease: int, watch: int) -> None:
        lease(rows, client, server_lease, watch)
        rows.set_open(client, 0)

    patch.setattr(QueueRows, "lease", leased)


def _anything_may_be_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "check_delete", nothing)


def _room_is_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueRows, "see_rooms", nothing)


def _take_back_stops_at_the_bound(patch: pytest.MonkeyPatch) -> None:
    take_back_all = dispatch.take_back_all

    def done(change: SpaceChange, rows: QueueRows, budget: Budget) -> bool:
        take_back_all(change, rows, budget)
        return True

    patch.setattr(rules, "take_back_all", done)


@pytest.mark.parametrize(
    "mutant",
    [
        _ack_leaves_the_message,
        _ack_leaves_the_count,
        _taken_back_is_lost,
        _latest_first,
        _always_the_first_consumer,
        _one_delivery_too_many,
        _idx_follows_what_is_there,
        _moved_message_stays_with_its_producer,
        _message_ends_with_the_lease_of_its_put,
        _due_outlives_the_ack,
        _take_over_forgets_nothing,
        _unfinished_is_not_told,
        _every_watch_ends_its_consumer,
        _registering_again_forgets_deliveries,
        _anything_may_be_deleted,
        _room_is_not_looked_at_again,
        _take_back_stops_at_the_bound,
    ],
)
def test_a_rule_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    mutant(monkeypatch)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        walk()
