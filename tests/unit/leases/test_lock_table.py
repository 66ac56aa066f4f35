"""Locks, semaphores, queues and two-phase requests against a plain model, with clients that vanish at any step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from holdfast.leases.layer.locks.records import Holder, Lock, Outcome, Refused, Session, Tell, Waiter
from holdfast.leases.layer.locks.table import LockTable, TableLimits
from tests.infra.examples import examples

KEYS = {b"lock": 1, b"pool": 2, b"wide": 3}
LIMITS = TableLimits(keys_max=3, waiters_max=4)
IDLE_S = 60
names = st.sampled_from(sorted(KEYS))
sessions = st.integers(0, 4)
ttls = st.integers(1, 8)


@dataclass
class Slot:
    """A grant as the model knows it."""

    session: int
    ttl_s: int
    ends_s: float
    token: bytes = b""
    is_asked_for: bool = True
    """False: its session was queued and has not called `wait` yet."""
    wait_ttl_s: int = 0
    """Of the lease when `wait` begins it anew."""
    two_phase: bool = False


@dataclass
class Place:
    session: int
    ttl_s: int
    two_phase: bool = False
    waiter: Waiter | None = None


@dataclass
class Key:
    slots: list[Slot] = field(default_factory=list)
    queue: list[Place] = field(default_factory=list)
    idle_since_s: float = 0.0


class LockMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        numbers = count(1)
        self.table = LockTable(lambda: b"token-%d" % next(numbers), LIMITS)
        self.sessions = [Session(number) for number in range(5)]
        self.now_s = 100.0
        self.keys: dict[bytes, Key] = {}
        self.granted: list[tuple[int, Outcome]] = []
        self.enqueued: dict[tuple[int, bytes], str] = {}

    # -- the model

    def expire(self, name: bytes) -> None:
        """What the table does before it judges a newcomer."""
        key = self.keys[name]
        over = [slot for slot in key.slots if slot.ends_s <= self.now_s]
        for slot in over:
            key.slots.remove(slot)
            if slot.two_phase:
                state = self.enqueued.get((slot.session, name))
                if state == "acquired":
                    del self.enqueued[slot.session, name]
                elif state == "granted":
                    self.enqueued[slot.session, name] = "lost"
            self.hand_over(name)

    def hand_over(self, name: bytes) -> None:
        key = self.keys[name]
        while key.queue and len(key.slots) < KEYS[name]:
            place = key.queue.pop(0)
            is_pending = place.two_phase and self.enqueued.get((place.session, name)) == "queued"
            slot = Slot(
                place.session,
                place.ttl_s,
                self.now_s + place.ttl_s,
                b"",
                not is_pending,
                place.ttl_s,
                is_pending,
            )
            if is_pending:
                self.enqueued[place.session, name] = "granted"
            key.slots.append(slot)
        if not key.slots and not key.queue:
            key.idle_since_s = self.now_s

    def opened(self, name: bytes) -> Key:
        key = self.keys.setdefault(name, Key(idle_since_s=self.now_s))
        self.expire(name)
        return key

    # -- steps

    def told(self, session: int) -> Tell:
        return lambda outcome: self.granted.append((session, outcome))

    @rule(session=sessions, name=names, ttl_s=ttls, waits=st.booleans())
    def acquire(self, session: int, name: bytes, ttl_s: int, waits: bool) -> None:
        found = self.table.acquire(
            self.sessions[session],
            name,
            KEYS[name],
            ttl_s,
            self.now_s,
            self.told(session) if waits else None,
        )
        key = self.opened(name)
        if len(key.slots) < KEYS[name] and not key.queue:
            assert isinstance(found, Holder)
            key.slots.append(Slot(session, ttl_s, self.now_s + ttl_s))
        elif len(key.queue) >= LIMITS.waiters_max:
            assert found is Refused.MAX_WAITERS
        elif not waits:
            assert found is Refused.TIMEOUT
        else:
            assert isinstance(found, Waiter)
            key.queue.append(Place(session, ttl_s, waiter=found))

    @rule(session=sessions, name=names)
    def acquire_with_another_limit(self, session: int, name: bytes) -> None:
        if name in self.keys:
            found = self.table.acquire(self.sessions[session], name, KEYS[name] + 1, 1, self.now_s)
            assert found is Refused.LIMIT_MISMATCH

    @rule(session=sessions, name=names, ttl_s=ttls)
    def enqueue(self, session: int, name: bytes, ttl_s: int) -> None:
        found = self.table.enqueue(self.sessions[session], name, KEYS[name], ttl_s, self.now_s)
        key = self.opened(name)
        if self.enqueued.get((session, name), "lost") != "lost":
            assert found is Refused.ALREADY_ENQUEUED
        elif len(key.slots) < KEYS[name] and not key.queue:
            assert isinstance(found, Holder)
            key.slots.append(Slot(session, ttl_s, self.now_s + ttl_s, wait_ttl_s=ttl_s, two_phase=True))
            self.enqueued[session, name] = "acquired"
        elif len(key.queue) >= LIMITS.waiters_max:
            assert found is Refused.MAX_WAITERS
        else:
            assert found is None
            key.queue.append(Place(session, ttl_s, two_phase=True))
            self.enqueued[session, name] = "queued"

    @rule(session=sessions, name=names, waits=st.booleans())
    def wait(self, session: int, name: bytes, waits: bool) -> None:
        before = self.enqueued.get((session, name))
        found = self.table.wait(
            self.sessions[session], name, self.now_s, self.told(session) if waits else None
        )
        if before is None:
            assert found is Refused.NOT_ENQUEUED
            return
        if name not in self.keys:  # Forgotten since then, with the loss of the slot.
            assert found is Refused.LEASE_EXPIRED
            del self.enqueued[session, name]
            return
        key = self.keys[name]
        self.expire(name)
        state = self.enqueued.pop((session, name), "lost")  # A slot whose lease this call found over is lost.
        mine = [slot for slot in key.slots if slot.session == session and slot.two_phase]
        if state == "lost":
            assert found is Refused.LEASE_EXPIRED
        elif state == "queued":
            (place,) = (place for place in key.queue if place.session == session and place.two_phase)
            if waits:
                assert isinstance(found, Waiter)
                place.two_phase, place.waiter = False, found
            else:
                assert found is Refused.TIMEOUT
                key.queue.remove(place)
                self.rest(key)
        else:
            assert isinstance(found, Holder)
            (slot,) = mine
            slot.two_phase, slot.is_asked_for = False, True
            slot.ends_s = self.now_s + slot.wait_ttl_s

    def rest(self, key: Key) -> None:
        if not key.slots and not key.queue:
            key.idle_since_s = self.now_s

    @precondition(lambda self: any(key.queue for key in self.keys.values()))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """A waiter's time is over."""
        waiting = [
            (name, place)
            for name, key in self.keys.items()
            for place in key.queue
            if place.waiter is not None
        ]
        if not waiting:
            return
        name, place = data.draw(st.sampled_from(waiting))
        assert place.waiter is not None
        self.table.cancel(place.waiter, self.now_s)
        self.keys[name].queue.remove(place)
        self.rest(self.keys[name])

    @precondition(lambda self: any(key.slots for key in self.keys.values()))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name, at = data.draw(
            st.sampled_from([(name, at) for name, key in self.keys.items() for at in range(len(key.slots))])
        )
        slot = self.keys[name].slots[at]
        assert self.table.release(name, slot.token, self.now_s)
        assert not self.table.release(name, slot.token, self.now_s)
        self.keys[name].slots.remove(slot)
        if slot.two_phase:
            self.enqueued.pop((slot.session, name), None)
        self.hand_over(name)

    @precondition(lambda self: any(key.slots for key in self.keys.values()))
    @rule(data=st.data(), ttl_s=ttls)
    def renew(self, data: st.DataObject, ttl_s: int) -> None:
        name, at = data.draw(
            st.sampled_from([(name, at) for name, key in self.keys.items() for at in range(len(key.slots))])
        )
        slot = self.keys[name].slots[at]
        is_renewed = self.table.renew(name, slot.token, ttl_s, self.now_s)
        assert is_renewed == (slot.ends_s > self.now_s)
        self.expire(name)
        if is_renewed:
            slot.ttl_s, slot.ends_s = ttl_s, self.now_s + ttl_s

    @rule(session=sessions)
    def vanish(self, session: int) -> None:
        self.table.end_session(self.sessions[session], self.now_s)
        self.sessions[session] = Session(session)
        for name, key in self.keys.items():
            self.enqueued.pop((session, name), None)
            was_used = bool(key.slots or key.queue)
            key.queue = [place for place in key.queue if place.session != session]
            key.slots = [slot for slot in key.slots if slot.session != session]
            if was_used:
                self.hand_over(name)

    @rule(seconds=st.floats(0.1, 9))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def sweep(self) -> None:
        self.table.expire(self.now_s)
        for name in self.keys:
            self.expire(name)

    @rule(seconds=st.sampled_from([0, IDLE_S + 1]))
    def collect(self, seconds: int) -> None:
        self.sweep()
        self.now_s += seconds
        self.table.forget_idle(self.now_s, IDLE_S)
        self.keys = {
            name: key
            for name, key in self.keys.items()
            if key.slots or key.queue or self.now_s - key.idle_since_s <= IDLE_S
        }

    # -- what always holds

    @invariant()
    def the_table_is_the_model(self) -> None:
        if not hasattr(self, "table"):
            return
        assert {lock.name for lock in self.table.locks} == set(self.keys)
        for lock in self.table.locks:
            key = self.keys[lock.name]
            assert len(lock.holders) <= lock.limit
            holders = sorted(lock.holders.values(), key=lambda holder: (holder.session.number, holder.ends_s))
            slots = sorted(key.slots, key=lambda slot: (slot.session, slot.ends_s))
            assert [(one.session.number, one.ends_s) for one in holders] == [
                (one.session, one.ends_s) for one in slots
            ]
            for holder, slot in zip(holders, slots, strict=True):
                slot.token = holder.token
            assert [waiter.session.number for waiter in lock.waiters] == [one.session for one in key.queue]
        assert self.table.holders == sum(len(key.slots) for key in self.keys.values())
        assert self.table.waiters == sum(len(key.queue) for key in self.keys.values())

    @invariant()
    def sessions_know_what_is_theirs(self) -> None:
        if not hasattr(self, "table"):
            return
        for session in self.sessions:
            held = {holder for lock in self.table.locks for holder in lock.holders.values()}
            waiting = {waiter for lock in self.table.locks for waiter in lock.waiters}
            assert session.holders == {holder for holder in held if holder.session is session}
            assert session.waiters == {waiter for waiter in waiting if waiter.session is session}

    @invariant()
    def a_free_slot_has_no_waiter(self) -> None:
        if not hasattr(self, "table"):
            return
        for lock in self.table.locks:
            assert not lock.waiters or len(lock.holders) == lock.limit


LockMachine.TestCase.settings = settings(deadline=None, max_examples=examples(800), stateful_step_count=60)
TestLocks = LockMachine.TestCase


def test_waiters_of_a_key_get_it_in_the_order_in_which_they_came() -> None:
    table = LockTable(iter(b"%032x" % number for number in range(600)).__next__)
    holder = table.acquire(Session(0), b"key", 1, 30, 0)
    assert isinstance(holder, Holder)
    order: list[int] = []
    tokens: list[bytes] = [holder.token]
    gone = {Session(number): number for number in range(1, 500)}
    for session, number in gone.items():

        def granted(outcome: Outcome, number: int = number) -> None:
            assert isinstance(outcome, Holder)
            order.append(number)
            tokens.append(outcome.token)

        table.acquire(session, b"key", 1, 30, 0, granted)
    for session, number in gone.items():
        if number % 7 == 3:
            table.end_session(session, 0)

    while table.holders:
        table.release(b"key", tokens[-1], 0)

    assert order == [number for number in range(1, 500) if number % 7 != 3]


@pytest.mark.parametrize("ttl_s", [1, 10**12])
def test_a_lease_of_any_length_has_its_end(ttl_s: int) -> None:
    table = LockTable(lambda: b"token")
    table.acquire(Session(0), b"key", 1, ttl_s, 0)

    assert table.expire(ttl_s - 1) == 0
    assert table.expire(ttl_s) == 1
    assert table.holders == 0


# -- the checks can fail


def _does_nothing(*arguments: object, **more: object) -> None:
    """In place of a rule."""


def _last_come_first_served(monkeypatch: pytest.MonkeyPatch) -> None:
    grant_waiters = LockTable._grant_waiters

    def reversed_queue(table: LockTable, lock: Lock, now_s: float) -> None:
        for waiter in list(lock.waiters)[:1]:
            lock.waiters.move_to_end(waiter)
        grant_waiters(table, lock, now_s)

    monkeypatch.setattr(LockTable, "_grant_waiters", reversed_queue)


def _the_dead_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockTable, "cancel", _does_nothing)


def _ended_leases_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockTable, "_expire", _does_nothing)


def walk() -> None:
    """Each rule that a mutant breaks, once, with a look at everything after each step."""
    machine = LockMachine()
    steps: list[Callable[[], None]] = [
        machine.begin,
        lambda: machine.acquire(0, b"lock", 5, True),
        lambda: machine.acquire(1, b"lock", 5, True),
        lambda: machine.enqueue(2, b"lock", 5),
        lambda: machine.acquire(3, b"lock", 5, True),
        lambda: machine.vanish(0),
        lambda: machine.time_passes(6),
        lambda: machine.acquire(4, b"lock", 5, False),
        lambda: machine.vanish(3),
    ]
    for step in steps:
        step()
        machine.the_table_is_the_model()
        machine.sessions_know_what_is_theirs()
        machine.a_free_slot_has_no_waiter()


def test_a_walk_through_a_queue_agrees_with_the_model() -> None:
    walk()


@pytest.mark.parametrize("mutant", [_last_come_first_served, _the_dead_keep_their_place, _ended_leases_stay])
def test_a_rule_that_is_wrong_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)

    with pytest.raises((AssertionError, ValueError)):
        walk()
