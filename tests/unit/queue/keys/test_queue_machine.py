"""Queues over keys against a simple model: after each step every message is in exactly the place that the model says."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.queue.layer.keys import dispatch, names
from holdfast.queue.layer.keys.names import Kind
from holdfast.queue.layer.keys.rules import QUEUE_ITSELF
from holdfast.queue.layer.keys.settings import QueueDefaults
from holdfast.state.layer.kv.errors import KvForbidden, QueueNotEmpty
from holdfast.state.layer.kv.operation import DeleteRangeRequest, Operation, PutRequest
from tests.infra.key_queue import Keys
from tests.unit.queue.keys.model import Queue
from tests.unit.queue.keys.plane import NODE, OTHER_NODE, Node, SharedStore, message

QUEUES: tuple[bytes, ...] = (b"q", b"q2", b"\xff\0")
CLIENTS: tuple[bytes, ...] = (b"A", b"AB", b"\0", b"z")
NAMES: tuple[bytes, ...] = (b"m", b"a/b", b"00000000000000000001", b"\xff", b"/")
DEFAULTS = QueueDefaults(max_in_flight=2)

queues = st.sampled_from(QUEUES)
clients = st.sampled_from(CLIENTS)
message_names = st.sampled_from(NAMES)
picks = st.integers(0, 20)


class QueueMachine(RuleBasedStateMachine):
    """Two nodes over one store; each step is made by one of them."""

    steps_max = dispatch.STEPS_MAX

    @initialize(steps_max=st.sampled_from([1, 3, 256]), is_lazy=st.booleans())
    def begin(self, steps_max: int = 256, is_lazy: bool = False) -> None:
        dispatch.STEPS_MAX = steps_max  # type: ignore[misc]
        self.is_lazy = is_lazy
        """Other steps come before a queue has finished one: then who has a message is not compared, only that one has."""
        self.store = SharedStore()
        self.nodes = {node_id: Node(self.store, node_id, DEFAULTS).come() for node_id in (NODE, OTHER_NODE)}
        self.living = {NODE, OTHER_NODE}
        self.node = self.nodes[NODE]
        self.model: dict[bytes, Queue] = {}
        self.acknowledged: set[tuple[bytes, int, int]] = set()
        self.lives: dict[bytes, int] = dict.fromkeys(QUEUES, 0)
        self.watches: dict[int, tuple[bytes, bytes]] = {}
        self.last_watch = 0
        self.last_idx = dict.fromkeys(QUEUES, 0)
        self.puts = 0
        self.revision = 0

    def teardown(self) -> None:
        dispatch.STEPS_MAX = self.steps_max  # type: ignore[misc]

    # -- what the model makes of a step

    def touch(self, name: bytes) -> Queue:
        """A queue that a step is about: made if it is not there, and taken over if its node is gone."""
        queue = self.model.get(name)
        if queue is None:
            queue = self.model[name] = Queue(DEFAULTS.max_in_flight, self.node.node_id)
        elif queue.host not in self.living:
            queue.host = self.node.node_id
            if queue.reliability == "none":
                queue.forget()
        return queue

    def settle(self, *touched: bytes) -> None:
        if not self.is_lazy:
            self.node.finish()
        for name in touched:
            self.model[name].dispatch(self.store.now_ms)

    # -- producers

    @rule(name=queues, called=message_names, is_leased=st.booleans())
    def put(self, name: bytes, called: bytes, is_leased: bool) -> None:
        lease = self.node.grant() if is_leased else 0
        self.puts += 1
        value = b"%d" % self.puts
        self.node.put(message(name, called), value, lease)
        self.touch(name).put(called, value)
        self.settle(name)

    @rule(
        puts=st.lists(st.tuples(queues, message_names), min_size=1, max_size=6, unique=True),
        plain=st.booleans(),
        acked=st.none() | st.tuples(queues, picks),
    )
    def txn(self, puts: list[tuple[bytes, bytes]], plain: bool, acked: tuple[bytes, int] | None) -> None:
        operations: list[Operation] = [PutRequest(b"/plain", b"1")] if plain else []
        own: list[tuple[bytes, bytes, bytes]] = []
        for name, called in puts:
            self.puts += 1
            own.append((name, called, b"%d" % self.puts))
            operations.append(PutRequest(message(name, called), own[-1][2]))
        delivery = None if acked is None else self.pick_delivery(*acked)
        if delivery is not None:
            operations.append(DeleteRangeRequest(delivery))
        self.node.txn(*operations)
        touched = list(dict.fromkeys(name for name, _, _ in own))
        if delivery is not None:
            name = self.acknowledge(delivery)
            touched += [name] if name not in touched else []
        for name, called, value in own:
            self.touch(name).put(called, value)
        self.settle(*touched)

    # -- consumers

    @rule(name=queues, client=clients, is_leased=st.booleans())
    def register(self, name: bytes, client: bytes, is_leased: bool) -> None:
        lease = self.node.grant() if is_leased else 0
        self.node.put(names.consumer_key(name, client), b"anything", lease)
        self.touch(name).register(client, lease)
        self.settle(name)

    @rule(name=queues, client=clients)
    def watch(self, name: bytes, client: bytes) -> None:
        self.last_watch += 1
        self.watches[self.last_watch] = name, client
        known = self.model.get(name)
        consumer = None if known is None else known.consumers.get(client)
        self.node.open_watch(name, client, self.last_watch)
        if consumer is None:
            self.touch(name).register(client, 0, self.last_watch)
            self.settle(name)
        elif consumer.watch:
            consumer.watch = self.last_watch

    @precondition(lambda self: self.watches)
    @rule(pick=picks)
    def close_watch(self, pick: int) -> None:
        watch = list(self.watches)[pick % len(self.watches)]
        name, client = self.watches.pop(watch)
        known = self.model.get(name)
        consumer = None if known is None else known.consumers.get(client)
        self.node.close_watch(name, client, watch)
        if consumer is not None and consumer.watch == watch:
            self.touch(name).leave(client)
            self.settle(name)

    @rule(name=queues, client=clients)
    def unregister(self, name: bytes, client: bytes) -> None:
        known = name in self.model and client in self.model[name].consumers
        assert self.node.delete(names.consumer_key(name, client)).deleted == known
        if known:
            self.touch(name).leave(client)
            self.settle(name)

    @rule(name=queues, client=clients)
    def lease_ends(self, name: bytes, client: bytes) -> None:
        """That of the client, or the one that the server gave: the keys of it end in one revision."""
        if name not in self.model or client not in self.model[name].consumers:
            return
        (registration,) = self.node.kvs(names.consumer_key(name, client))[:1]
        assert registration.lease
        self.node.revoke(registration.lease)
        self.touch(name).leave(client)
        self.settle(name)

    def pick_delivery(self, name: bytes, pick: int) -> bytes | None:
        found = [
            key for key in self.node.below(names.queue_key(name) + b"/consumer/") if not key.endswith(b"/")
        ]
        found = [key for key in found if (one := names.parsed(key)) and one.kind is Kind.DELIVERY]
        return found[pick % len(found)] if found else None

    def acknowledge(self, delivery: bytes) -> bytes:
        key = names.parsed(delivery)
        assert key is not None
        queue = self.touch(key.queue)
        self.acknowledged.add((key.queue, self.lives[key.queue], key.idx))
        queue.messages.pop(key.idx, None)  # Unless it was forgotten by the same commit.
        return key.queue

    @rule(name=queues, pick=picks)
    def ack(self, name: bytes, pick: int) -> None:
        delivery = self.pick_delivery(name, pick)
        if delivery is None:
            return
        assert self.node.delete(delivery).deleted == 1
        self.settle(self.acknowledge(delivery))
        revision = self.node.revision
        assert self.node.delete(delivery).deleted == 0
        assert self.node.revision == revision

    @rule(name=queues, client=clients, with_registration=st.booleans())
    def ack_all(self, name: bytes, client: bytes, with_registration: bool) -> None:
        """By a range."""
        prefix = names.consumer_key(name, client)
        below = self.node.below(prefix)
        deliveries = [key for key in below if key != prefix]
        if with_registration:
            deleted = self.node.delete_below(prefix).deleted
            assert deleted == len(below)
        else:
            deleted = self.node.delete(prefix + b"0", names.prefix_end(prefix)).deleted
            assert deleted == len(deliveries)
        if not deleted:
            return
        self.touch(name)
        for delivery in deliveries:
            self.acknowledge(delivery)
        if with_registration and prefix in below:
            self.model[name].leave(client)
        self.settle(name)

    # -- the queue itself

    @rule(
        name=queues,
        chosen=st.fixed_dictionaries(
            {},
            optional={
                "max_in_flight": st.integers(1, 4),
                "ack_timeout_s": st.integers(0, 2),
                "reliability": st.sampled_from(["majority", "few", "none"]),
            },
        ),
    )
    def set(self, name: bytes, chosen: dict[str, Any]) -> None:
        self.node.put(names.queue_key(name), json.dumps(chosen).encode())
        queue = self.touch(name)
        queue.max_in_flight = chosen.get("max_in_flight", queue.max_in_flight)
        queue.reliability = chosen.get("reliability", queue.reliability)
        queue.ack_timeout_ms = 1000 * chosen.get("ack_timeout_s", queue.ack_timeout_ms // 1000)
        self.settle(name)

    @rule(name=queues)
    def delete_queue(self, name: bytes) -> None:
        queue = self.model.get(name)
        is_left = queue is not None and bool(queue.messages or queue.consumers)
        try:
            deleted = self.node.delete(names.queue_key(name)).deleted
        except QueueNotEmpty:
            assert is_left or self.is_lazy
            return
        assert not is_left
        assert deleted == (queue is not None)
        self.model.pop(name, None)
        self.lives[name] += 1

    @rule(name=queues, pick=picks)
    def forbidden(self, name: bytes, pick: int) -> None:
        """What clients may not do changes nothing."""
        revision = self.node.revision
        idx = names.message_key(name, pick, b"m")
        attempts: list[Callable[[], object]] = [
            lambda: self.node.put(idx, b"x"),
            lambda: self.node.put(names.delivery_key(name, b"A", pick, b"m"), b"x"),
            lambda: self.node.put(names.config_key(name), b"{}"),
            lambda: self.node.txn(PutRequest(message(name, b"m"), b"x"), PutRequest(idx, b"x")),
        ]
        if name in self.model:
            attempts.append(lambda: self.node.delete(names.config_key(name)))
            attempts.append(lambda: self.node.delete_below(names.queue_key(name)))
            attempts.append(lambda: self.node.delete_below(b"/"))
        for attempt in attempts:
            with pytest.raises(KvForbidden):
                attempt()
        assert self.node.revision == revision

    # -- time, and nodes

    @rule(ms=st.sampled_from([400, 1000, 3000]))
    def tick(self, ms: int) -> None:
        self.store.now_ms += ms
        self.node.see_to_due()
        now_ms = self.store.now_ms
        while not self.is_lazy and (overdue := self.overdue()):
            _, name, idx = overdue[0]
            queue = self.model[name]
            queue.messages[idx].due_at_ms = 0
            if queue.ack_timeout_ms:
                queue.messages[idx].client = None
                queue.dispatch(now_ms)

    def overdue(self) -> list[tuple[int, bytes, int]]:
        now_ms = self.store.now_ms
        return sorted(
            (at_ms, name, idx) for name, queue in self.model.items() for at_ms, idx in queue.overdue(now_ms)
        )

    @rule()
    def other_node(self) -> None:
        """From here on calls go to the other one, which has heard of what is due."""
        other = self.nodes[OTHER_NODE if self.node.node_id == NODE else NODE]
        other.due |= self.node.due
        self.node = other
        if other.node_id not in self.living:
            other.come()
            self.living.add(other.node_id)

    @rule()
    def node_dies(self) -> None:
        """The one that is not called."""
        gone = self.nodes[OTHER_NODE if self.node.node_id == NODE else NODE]
        gone.go()
        self.living.discard(gone.node_id)

    @rule(name=queues)
    def restart(self, name: bytes) -> None:
        """Of a process that keeps nothing of some queues."""
        queue = self.model.get(name)
        if queue is not None and queue.reliability == "none":
            self.node.forget(name)
            queue.forget()
            self.settle(name)

    # -- what is true after each step

    @invariant()
    def every_message_is_in_exactly_one_place(self) -> None:
        for name in QUEUES:
            keys = self.node.check(name, is_room_kept=False)
            if name not in self.model:
                assert keys.host is None
                continue
            queue = self.model[name]
            assert keys.host == b"%d" % queue.host
            assert keys.registered == queue.consumers.keys()
            assert not self.acknowledged & {(name, self.lives[name], idx) for idx in keys.messages}
            if self.is_lazy:
                self.follow_commits(name, queue, keys)
            else:
                self.compare(name, queue, keys)

    def compare(self, name: bytes, queue: Queue, keys: Keys) -> None:
        prefix = names.queue_key(name) + b"/"
        known = {prefix + b"config", *(names.consumer_key(name, client) for client in keys.registered)}
        below = {key: value for key, value in self.node.below(prefix).items() if key not in known}
        assert below == queue.keys(name)

    def follow_commits(self, name: bytes, queue: Queue, keys: Keys) -> None:
        """In a lazy run who has what follows from the order of the commits; no message is lost all the same."""
        assert queue.messages.keys() <= keys.messages.keys()
        if keys.messages.keys() != queue.messages.keys():
            assert (name, QUEUE_ITSELF) in self.node.due, "what is forgotten is removed in the end"
        for idx, one in queue.messages.items():
            assert keys.messages[idx] == (one.name, one.value)
            one.client = keys.deliveries[idx].client if idx in keys.deliveries else None

    @invariant()
    def each_idx_is_given_once_in_the_order_of_puts(self) -> None:
        for event in self.node.log(self.revision + 1):
            key = names.parsed(event.key)
            if key is None:
                continue
            if key.kind is Kind.QUEUE and not event.record:
                self.last_idx[key.queue] = 0
            if key.kind is Kind.MESSAGE and event.record:
                assert key.idx == self.last_idx[key.queue] + 1
                self.last_idx[key.queue] = key.idx
        self.revision = self.node.revision


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40)
