"""Durable locks with restarts, failing commits and vanishing clients at random steps: what was told is so."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.common.clock import FakeClock
from holdfast.leases.layer.locks.durable.journal import LockJournal
from holdfast.leases.layer.locks.durable.service import DurableLockService
from holdfast.leases.layer.locks.durable.table import Steps
from holdfast.leases.layer.locks.durable.turns import KeyTurns
from holdfast.leases.layer.locks.records import Grant, Holder, Outcome, Pending, Refused
from holdfast.leases.layer.locks.service import LockOptions
from tests.infra.examples import examples
from tests.unit.leases.durable_locks import (
    Client,
    HeldStore,
    memory_store,
    recorded_tokens,
    service_over,
    turns,
)

KEYS = {b"lock": 1, b"pool": 2}
OPTIONS = LockOptions(sweep_interval_s=3600, gc_interval_s=3600, idle_s_max=30)
TIMEOUT_S = 3600.0
names = st.sampled_from(sorted(KEYS))
clients = st.integers(0, 3)
ttls = st.integers(1, 20)


@dataclass
class Held:
    """A grant that was told to a client that lives."""

    client: int
    name: bytes
    token: bytes
    ends_s: float
    is_asked_back: bool = False
    """Its release was asked for, or its client is gone: it may have ended."""


class DurableLockMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.store = memory_store(self.clock)
        self.held: list[Held] = []
        self.tokens: dict[bytes, list[bytes]] = {name: [] for name in KEYS}
        self.busy: set[int] = set()
        self.lives = 0
        self.broken: list[AssertionError] = []
        """What was told that must not be."""
        self.start()

    def start(self) -> None:
        self.lives += 1
        self.gate = HeldStore(self.store)
        self.service: DurableLockService = service_over(self.gate, OPTIONS)
        self.running = self.service.running()
        self.loop.run_until_complete(self.running.__aenter__())
        self.clients = [Client(self.service) for _ in range(4)]
        self.busy.clear()

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        self.gate.is_holding = False
        self.gate.let(succeed=True)
        self.loop.run_until_complete(self.running.__aexit__(None, None, None))
        self.end_tasks()
        self.loop.close()

    def end_tasks(self) -> None:
        """Whatever is under way ends; none is left to be destroyed some time later."""

        async def ended() -> None:
            while tasks := asyncio.all_tasks(self.loop) - {asyncio.current_task(self.loop)}:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        self.loop.run_until_complete(ended())

    def do(self, step: Callable[[], object] = lambda: None) -> None:
        """Do it on the loop, and whatever follows from it."""

        async def done() -> None:
            step()
            await turns()

        self.loop.run_until_complete(done())

    def now_s(self) -> float:
        return self.service.now_s()

    # -- what clients are told

    def ask(
        self,
        client: int,
        begin: Callable[[Callable[[Outcome], None]], Outcome | Pending],
        told: Callable[[Outcome], None],
    ) -> None:
        """One request at a time for each client, as over a connection."""
        if client in self.busy:
            return
        life = self.lives

        def tell(outcome: Outcome) -> None:
            if life != self.lives:
                return  # Its process is gone.
            try:
                assert client in self.busy, "it is told once"
                self.busy.discard(client)
                told(outcome)
            except AssertionError as error:
                self.broken.append(error)

        self.busy.add(client)

        async def ask() -> None:
            found = begin(tell)
            if not isinstance(found, Pending):
                tell(found)
            await turns()

        self.loop.run_until_complete(ask())

    def granted(self, client: int, name: bytes, outcome: Outcome) -> None:
        if not isinstance(outcome, Grant):
            return
        assert outcome.token in recorded_tokens(self.store, name), "it is told when it is recorded"
        if all(one.token != outcome.token for one in self.held):
            assert outcome.token not in self.tokens[name], "no token comes again"
            if KEYS[name] == 1:
                assert outcome.token > max(self.tokens[name], default=b""), "tokens grow"
            self.tokens[name].append(outcome.token)
            assert isinstance(outcome, Holder)
            self.held.append(Held(client, name, outcome.token, outcome.ends_s))

    @rule(client=clients, name=names, ttl_s=ttls, waits=st.booleans())
    def acquire(self, client: int, name: bytes, ttl_s: int, waits: bool) -> None:
        session = self.clients[client].session
        self.ask(
            client,
            lambda tell: self.service.acquire(
                session, name, KEYS[name], ttl_s, TIMEOUT_S if waits else 0, tell
            ),
            lambda outcome: self.granted(client, name, outcome),
        )

    @rule(client=clients, name=names, ttl_s=ttls)
    def enqueue(self, client: int, name: bytes, ttl_s: int) -> None:
        session = self.clients[client].session
        self.ask(
            client,
            lambda tell: self.service.enqueue(session, name, KEYS[name], ttl_s, tell),
            lambda outcome: self.granted(client, name, outcome),
        )

    @rule(client=clients, name=names, waits=st.booleans())
    def wait(self, client: int, name: bytes, waits: bool) -> None:
        session = self.clients[client].session
        self.ask(
            client,
            lambda tell: self.service.wait(session, name, TIMEOUT_S if waits else 0, tell),
            lambda outcome: self.granted(client, name, outcome),
        )

    @rule(client=clients, data=st.data())
    def release(self, client: int, data: st.DataObject) -> None:
        if not self.held or client in self.busy:
            return
        one = data.draw(st.sampled_from(self.held))
        before, one.is_asked_back = one.is_asked_back, True
        lives_still = one.ends_s > self.now_s() and not before

        def told(outcome: Outcome) -> None:
            if outcome is Refused.UNAVAILABLE:
                one.is_asked_back = before
                return
            assert outcome is True or not lives_still, "a slot that is held can be released"
            if one in self.held:
                self.held.remove(one)
            assert one.token not in recorded_tokens(self.store, one.name)

        session = self.clients[client].session
        self.ask(client, lambda tell: self.service.release(session, one.name, one.token, tell), told)

    @rule(client=clients, data=st.data(), ttl_s=ttls)
    def renew(self, client: int, data: st.DataObject, ttl_s: int) -> None:
        if not self.held or client in self.busy:
            return
        one = data.draw(st.sampled_from(self.held))
        # It may end as early as the new time says, and lasts until then only if it is told so.
        ends_s = self.now_s() + ttl_s
        before, one.ends_s = one.ends_s, min(one.ends_s, ends_s)

        def told(outcome: Outcome) -> None:
            if outcome is True:
                one.ends_s = ends_s
            else:
                assert outcome is Refused.UNAVAILABLE or before <= self.now_s() or one.is_asked_back

        session = self.clients[client].session
        self.ask(client, lambda tell: self.service.renew(session, one.name, one.token, ttl_s, tell), told)

    # -- what goes wrong

    @rule()
    def commits_take_their_time(self) -> None:
        self.gate.is_holding = True

    @rule(succeed=st.booleans(), goes_on=st.booleans())
    def commits_end(self, succeed: bool, goes_on: bool) -> None:
        self.gate.is_holding = goes_on
        self.do(lambda: self.gate.let(succeed=succeed))

    @rule(client=clients)
    def vanish(self, client: int) -> None:
        self.forget(self.clients[client])
        self.busy.discard(client)
        self.do(self.clients[client].vanish)
        self.clients[client] = Client(self.service)

    def forget(self, client: Client) -> None:
        number = self.clients.index(client)
        for one in self.held:
            if one.client == number:
                one.is_asked_back = True

    @rule(seconds=st.sampled_from([0.5, 3.0, 12.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.do(self.service.sweep)

    @rule()
    def idle_keys_are_forgotten(self) -> None:
        self.clock.advance(OPTIONS.idle_s_max + 1)
        self.do(self.service.sweep)
        self.do(lambda: asyncio.create_task(self.service.collect()))

    @rule()
    def restart(self) -> None:
        """What was not recorded by now never is; a release or the end of a client that was under way did not happen."""
        self.gate.is_dead = True
        self.gate.waiting.clear()
        self.lives += 1
        self.end_tasks()
        self.loop.run_until_complete(self.running.__aexit__(None, None, None))
        for one in self.held:
            one.client = -1
        self.start()

    # -- what always holds

    @invariant()
    def what_is_told_is_so(self) -> None:
        if hasattr(self, "loop") and self.broken:
            raise self.broken[0]

    @invariant()
    def no_slot_is_held_twice(self) -> None:
        if not hasattr(self, "loop"):
            return
        for name, limit in KEYS.items():
            sure = [
                one
                for one in self.held
                if one.name == name and one.ends_s > self.now_s() and not one.is_asked_back
            ]
            recorded = recorded_tokens(self.store, name)
            assert len(recorded) <= limit
            assert {one.token for one in sure} <= set(recorded), "what a client was told is recorded"

    @invariant()
    def memory_is_what_is_recorded(self) -> None:
        if not hasattr(self, "loop"):
            return
        for lock in self.service.table.locks:
            if not self.service.is_busy(lock.name):
                assert sorted(lock.holders) == sorted(recorded_tokens(self.store, lock.name))
                assert not lock.waiters or len(lock.holders) == lock.limit
        holders = sum(len(lock.holders) for lock in self.service.table.locks)
        assert self.service.table.holders == holders


DurableLockMachine.TestCase.settings = settings(
    deadline=None, max_examples=examples(400), stateful_step_count=50
)
TestDurableLocks = DurableLockMachine.TestCase


# -- the checks can fail


def _told_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    record = KeyTurns._record

    async def too_early(turns: KeyTurns, name: bytes, steps: Steps) -> None:
        asyncio.get_running_loop().create_task(record(turns, name, steps))

    monkeypatch.setattr(KeyTurns, "_record", too_early)


def _what_failed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def stays(steps: Steps) -> None:
        """In place of taking it back."""

    monkeypatch.setattr(Steps, "take_back", stays)


def _a_release_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    record = LockJournal.record

    async def only_grants(journal: LockJournal, lock: object) -> None:
        if lock.holders:  # type: ignore[attr-defined]  # It is a Lock.
            await record(journal, lock)  # type: ignore[arg-type]

    monkeypatch.setattr(LockJournal, "record", only_grants)


def walk() -> None:
    machine = DurableLockMachine()
    machine.begin()

    def release() -> None:
        one = machine.held[-1]
        session = machine.clients[0].session
        found: list[Outcome] = []
        machine.ask(0, lambda tell: machine.service.release(session, one.name, one.token, tell), found.append)
        if found == [True]:
            machine.held.remove(one)
            assert one.token not in recorded_tokens(machine.store, one.name)

    steps: list[Callable[[], None]] = [
        lambda: machine.acquire(0, b"lock", 20, False),
        release,
        lambda: machine.acquire(0, b"lock", 20, False),
        machine.commits_take_their_time,
        lambda: machine.acquire(1, b"pool", 20, False),
        lambda: machine.commits_end(False, False),
        lambda: machine.acquire(2, b"pool", 20, False),
        machine.restart,
        lambda: machine.acquire(0, b"lock", 20, False),
    ]
    try:
        for step in steps:
            step()
            machine.what_is_told_is_so()
            machine.no_slot_is_held_twice()
            machine.memory_is_what_is_recorded()
    finally:
        machine.teardown()


def test_a_walk_with_a_failure_and_a_restart_agrees() -> None:
    walk()


@pytest.mark.parametrize(
    "mutant", [_told_before_it_is_durable, _what_failed_stays, _a_release_is_not_recorded]
)
def test_a_step_that_is_wrong_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)

    with pytest.raises(AssertionError):
        walk()
