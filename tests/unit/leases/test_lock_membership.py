"""Nodes that come, go, stand still and are slow at any moment: no two of them ever decide about one key."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.common.clock import FakeClock
from holdfast.leases.nodes import membership
from holdfast.leases.nodes.membership import Membership
from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.local.store import LocalStore
from holdfast.storage.port import Store, Transaction
from holdfast.storage.store_clock import StoreClock
from tests.infra.examples import examples
from tests.unit.leases.durable_locks import memory_store

KEYS = [b"job-%d" % number for number in range(6)]
TTL_S = 6.0
numbers = st.integers(0, 2)
delays = st.sampled_from([0.0, 0.0, 0.1, 0.7, 2.0, 9.0])


class SlowStore:
    """What one node sees of the store: a clock of its own, and answers that take a while after the store has decided."""

    def __init__(self, store: LocalStore, clock: FakeClock, ahead_s: float) -> None:
        self._store = store
        self._clock = clock
        self.clock = ShiftedClock(store.clock, ahead_s)
        self.way_s = 0.0
        """So long takes the next commit until the store decides."""
        self.delay_s = 0.0
        """And so long its answer."""
        self.is_lost = False
        """The next answer is lost, after the store has decided."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def transact(self, fn: Callable[[Transaction], Any], **named: Any) -> Any:
        def slow(tx: Transaction) -> Any:
            found = fn(tx)
            way_s, self.way_s = self.way_s, 0.0
            self._clock.advance(way_s)
            return found

        return await self._late(self._store.transact(slow, **named))

    async def range(self, *arguments: Any, **named: Any) -> Any:
        return await self._late(self._store.range(*arguments, **named))

    async def _late(self, answer: Awaitable[Any]) -> Any:
        found = await answer
        delay_s, self.delay_s = self.delay_s, 0.0
        self._clock.advance(delay_s)
        is_lost, self.is_lost = self.is_lost, False
        if is_lost:
            raise StoreUnavailable("the answer was lost")
        return found


class ShiftedClock:
    def __init__(self, clock: StoreClock, ahead_s: float) -> None:
        self._clock = clock
        self._ahead_ms = int(ahead_s * 1000)

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms


class Node:
    def __init__(self, store: LocalStore, clock: FakeClock, ahead_s: float) -> None:
        self.store = SlowStore(store, clock, ahead_s)
        self.holds: set[bytes] = set()
        self.membership = Membership(
            cast(Store, self.store),
            TTL_S,
            joins_at_once=False,
            on_change=self.changed,
            on_loss=self.holds.clear,
        )

    def changed(self) -> None:
        if not self.membership.is_frozen:
            self.holds = {key for key in self.holds if self.membership.is_mine(key)}


class MembershipMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.store = memory_store(self.clock)
        self.nodes: dict[int, Node] = {}

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    def do(self, work: Callable[[], Awaitable[object]]) -> None:
        async def done() -> None:
            with suppress(StoreUnavailable):
                await work()

        self.loop.run_until_complete(done())

    @rule(number=numbers, delay_s=delays, way_s=delays, is_lost=st.booleans())
    def come(self, number: int, delay_s: float = 0.0, way_s: float = 0.0, is_lost: bool = False) -> None:
        if number not in self.nodes:
            node = Node(self.store, self.clock, (number - 1) * 0.1)
            node.store.delay_s, node.store.way_s, node.store.is_lost = delay_s, way_s, is_lost
            self.do(node.membership._announce)
            self.nodes[number] = node

    @rule(number=numbers, delay_s=delays, way_s=delays, is_lost=st.booleans())
    def renew(self, number: int, delay_s: float = 0.0, way_s: float = 0.0, is_lost: bool = False) -> None:
        node = self.nodes.get(number)
        if node is not None:
            node.store.delay_s, node.store.way_s, node.store.is_lost = delay_s, way_s, is_lost
            self.do(node.membership._renew)

    @rule(number=numbers)
    def read(self, number: int) -> None:
        node = self.nodes.get(number)
        if node is not None:
            self.do(node.membership._read)

    @rule(number=numbers)
    def vanish(self, number: int) -> None:
        """As kill -9: its announcement stays, its clients are gone."""
        self.nodes.pop(number, None)

    @rule(seconds=st.sampled_from([0.05, 0.3, 1.0, 3.0, 7.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(times=st.integers(1, 6))
    def all_is_well(self, times: int) -> None:
        """Everybody renews in time."""
        for _ in range(times):
            self.clock.advance(1.4)
            for node in self.nodes.values():
                self.do(node.membership._renew)

    @invariant()
    def one_node_decides_and_knows_what_it_gave_away(self) -> None:
        if hasattr(self, "loop"):
            self.do(self._look)

    async def _look(self) -> None:
        for key in KEYS:
            deciding = [node for node in self.nodes.values() if node.membership.is_mine(key)]
            assert len(deciding) <= 1, "two nodes decide"
            for node in deciding:
                others = [other for other in self.nodes.values() if other is not node and key in other.holds]
                assert all(other.membership.is_frozen for other in others), "held twice"
                node.holds.add(key)


MembershipMachine.TestCase.settings = settings(
    deadline=None, max_examples=examples(400), stateful_step_count=40
)
TestMembership = MembershipMachine.TestCase


def walk() -> None:
    machine = MembershipMachine()
    machine.begin()

    def check() -> None:
        machine.one_node_decides_and_knows_what_it_gave_away()

    try:
        machine.come(0)
        check()
        assert machine.nodes[0].holds == set(KEYS), "a node that is alone has every key at once"
        machine.come(1)
        check()
        machine.clock.advance(0.5)
        check()
        for _ in range(12):
            machine.clock.advance(0.7)
            machine.renew(1)
            if machine.clock.wall_s() % 2 < 1.4:
                machine.renew(0)
            check()
        assert machine.nodes[1].holds, "a newcomer gets its share"
        machine.clock.advance(4.0)
        machine.renew(1)
        machine.clock.advance(2.5)
        machine.renew(1)
        check()
        assert machine.nodes[1].holds == set(KEYS), "a node that is gone is replaced"
        machine.renew(0)
        check()
        assert not machine.nodes[0].holds, "who was replaced has lost everything"
    finally:
        machine.teardown()


def test_a_walk_through_the_lives_of_two_nodes_agrees() -> None:
    walk()


def _never_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Membership._look

    def thawed(self: Membership) -> None:
        look(self)
        self.is_frozen = False

    monkeypatch.setattr(Membership, "_look", thawed)


def _home_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    join = Membership._join

    def at_once(self: Membership, now_ms: int, slack_ms: int, tx: Transaction) -> None:
        self._join_ms = -slack_ms - 2 * membership.GUARD_MS
        join(self, now_ms, slack_ms, tx)

    monkeypatch.setattr(Membership, "_join", at_once)


@pytest.mark.parametrize("mutant", [_never_frozen, _home_at_once])
def test_a_rule_that_is_wrong_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)

    with pytest.raises(AssertionError):
        walk()


async def test_a_node_begins_without_an_answer_of_the_store_and_is_announced_later() -> None:
    clock = FakeClock()
    store = SlowStore(memory_store(clock), clock, 0.0)
    store.is_lost = True
    is_serving = asyncio.Event()

    def changed() -> None:
        if not node.is_frozen:
            is_serving.set()

    node = Membership(cast(Store, store), 1.0, joins_at_once=True, on_change=changed, on_loss=lambda: None)
    async with node.running("127.0.0.1:1"):
        assert node.is_frozen
        await asyncio.wait_for(is_serving.wait(), 10)
        assert node.is_mine(b"job")
