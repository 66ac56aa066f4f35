"""The lock table beside `LockModel`: every client is answered the same, in every order of requests, ends of leases, and clients
that vanish.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.leases.layer.locks.records import Grant, Holder, Lock, Outcome, Refused, Session, Waiter
from holdfast.leases.layer.locks.table import LockTable, TableLimits
from tests.infra.examples import examples
from tests.infra.lock_model import LockModel

LIMITS = {"lock": 1, "other": 1, "pool": 2, "wide": 3}
KEYS_MAX = 3
WAITERS_MAX = 3
CLIENTS = 6
IDLE_S = 20
WORDS = {
    Refused.TIMEOUT: "timeout",
    Refused.MAX_LOCKS: "error_max_locks",
    Refused.MAX_WAITERS: "error_max_waiters",
    Refused.LIMIT_MISMATCH: "error_limit_mismatch",
    Refused.ALREADY_ENQUEUED: "error_already_enqueued",
    Refused.NOT_ENQUEUED: "error_not_enqueued",
    Refused.LEASE_EXPIRED: "error_lease_expired",
}


class World:
    """A table and the model, which are asked the same."""

    def __init__(self) -> None:
        numbers = count(1)
        self.table = LockTable(lambda: b"%032x" % next(numbers), TableLimits(KEYS_MAX, WAITERS_MAX))
        self.model = LockModel(KEYS_MAX, WAITERS_MAX)
        self._begun = count()
        self.sessions = [Session(next(self._begun)) for _ in range(CLIENTS)]
        self.blocked: dict[int, tuple[str, Waiter]] = {}
        self.now_s = 50.0
        self.told: list[tuple[str, int, Outcome]] = []
        self.tokens: dict[str, bytes] = {}
        """By the grant's number in the model, once its client was told of it."""
        self.grants: list[tuple[str, int]] = []

    # -- what clients do

    def lock(self, client: int, name: str, limit: int, ttl_s: int, waits: bool) -> None:
        found = self.table.acquire(
            self.sessions[client],
            name.encode(),
            limit,
            ttl_s,
            self.now_s,
            self._tell(name, client) if waits else None,
        )
        expected = self.model.lock(self.sessions[client].number, name, limit, ttl_s, waits, self.now_s)
        self._compare(client, name, found, expected)

    def enqueue(self, client: int, name: str, limit: int, ttl_s: int) -> None:
        found = self.table.enqueue(self.sessions[client], name.encode(), limit, ttl_s, self.now_s)
        expected = self.model.enqueue(self.sessions[client].number, name, limit, ttl_s, self.now_s)
        self._compare(client, name, found, expected)

    def wait(self, client: int, name: str, waits: bool) -> None:
        tell = self._tell(name, client) if waits else None
        found = self.table.wait(self.sessions[client], name.encode(), self.now_s, tell)
        expected = self.model.wait(self.sessions[client].number, name, waits, self.now_s)
        if (
            expected == "error_lease_expired"
            and name not in self.model.keys
            and found is Refused.NOT_ENQUEUED
        ):
            return  # The slot was lost, and its key is forgotten: both answers are allowed then.
        self._compare(client, name, found, expected)

    def release(self, at: int) -> None:
        name, grant = self.grants[at % len(self.grants)]
        found = self.table.release(name.encode(), self.tokens[f"#{grant}"], self.now_s)
        assert found == (self.model.release(name, grant, self.now_s) == "ok")
        self._check_told()

    def renew(self, at: int, ttl_s: int) -> None:
        name, grant = self.grants[at % len(self.grants)]
        found = self.table.renew(name.encode(), self.tokens[f"#{grant}"], ttl_s, self.now_s)
        assert found == (self.model.renew(name, grant, ttl_s, self.now_s) == f"ok {ttl_s}")
        self._check_told()

    def give_up(self, client: int) -> None:
        name, waiter = self.blocked[client]
        self.table.cancel(waiter, self.now_s)
        self.told.append((name, self.sessions[client].number, Refused.TIMEOUT))
        self.model.give_up(self.sessions[client].number, name, self.now_s)
        self._check_told()

    def vanish(self, client: int, keeps_leases: bool) -> None:
        self.blocked.pop(client, None)
        self.table.end_session(self.sessions[client], self.now_s, keeps_leases=keeps_leases)
        self.model.vanish(self.sessions[client].number, self.now_s, keeps_leases=keeps_leases)
        self.sessions[client] = Session(next(self._begun))
        self._check_told()

    # -- what time does

    def sweep(self) -> None:
        self.table.expire(self.now_s)
        self.model.sweep(self.now_s)
        self._check_told()

    def collect(self) -> None:
        self.table.forget_idle(self.now_s, IDLE_S)
        self.model.collect(self.now_s, IDLE_S)

    # -- comparison

    def _tell(self, name: str, client: int) -> Callable[[Outcome], None]:
        number = self.sessions[client].number
        return lambda outcome: self.told.append((name, number, outcome))

    def _compare(self, client: int, name: str, found: object, expected: str | None) -> None:
        if isinstance(found, Waiter):
            assert expected is None
            self.blocked[client] = name, found
        else:
            self._same(name, found, expected or "blocked")
        self._check_told()

    def _same(self, name: str, outcome: object, expected: str) -> None:
        status, *rest = expected.split()
        if not rest:
            assert (WORDS[outcome] if isinstance(outcome, Refused) else outcome) == (
                None if status == "queued" else status
            )
            return
        assert isinstance(outcome, Grant), expected
        number, ttl_s = rest
        assert outcome.ttl_s == int(ttl_s)
        assert self.tokens.setdefault(number, outcome.token) == outcome.token
        assert len(set(self.tokens.values())) == len(self.tokens), "a token is given once"
        self.grants.append((name, int(number[1:])))

    def _check_told(self) -> None:
        """Who was blocked is told the same, and of one key in the same order."""
        told: dict[str, list[tuple[int, Outcome]]] = defaultdict(list)
        expected: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for name, client, outcome in self.told:
            told[name].append((client, outcome))
        for name, client, answer in self.model.answers:
            expected[name].append((client, answer))
        self.told.clear()
        self.model.answers.clear()
        assert told.keys() == expected.keys()
        for name, outcomes in told.items():
            assert [client for client, _ in outcomes] == [client for client, _ in expected[name]]
            for (client, outcome), (_, answer) in zip(outcomes, expected[name], strict=True):
                self.blocked = {at: found for at, found in self.blocked.items() if not self._is(at, client)}
                self._same(name, outcome, answer)
        self._count()

    def _is(self, client: int, number: int) -> bool:
        return self.sessions[client].number == number

    def _count(self) -> None:
        keys = self.model.keys
        assert {lock.name.decode() for lock in self.table.locks} == set(keys)
        for lock in self.table.locks:
            key = keys[lock.name.decode()]
            assert len(lock.holders) == len(key.slots) <= lock.limit == key.limit
            assert len(lock.waiters) == len(key.queue)
            assert not lock.waiters or len(lock.holders) == lock.limit
        assert self.table.holders == sum(len(key.slots) for key in keys.values())
        assert self.table.waiters == sum(len(key.queue) for key in keys.values())
        for session in self.sessions:
            assert len(session.holders) == sum(
                slot.client == session.number for key in keys.values() for slot in key.slots
            )
            assert len(session.waiters) == sum(
                place.client == session.number for key in keys.values() for place in key.queue
            )


clients = st.integers(0, CLIENTS - 1)
names = st.sampled_from(sorted(LIMITS))
ttls = st.integers(1, 9)
wrong_limit = st.integers(0, 19).map(lambda number: number == 0)


class LockMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = World()

    def is_free(self, client: int) -> bool:
        """A client that is blocked asks nothing."""
        return client not in self.world.blocked

    @rule(client=clients, name=names, ttl_s=ttls, waits=st.booleans(), is_wrong=wrong_limit)
    def lock(self, client: int, name: str, ttl_s: int, waits: bool, is_wrong: bool) -> None:
        if self.is_free(client):
            self.world.lock(client, name, LIMITS[name] + is_wrong, ttl_s, waits)

    @rule(client=clients, name=names, ttl_s=ttls, is_wrong=wrong_limit)
    def enqueue(self, client: int, name: str, ttl_s: int, is_wrong: bool) -> None:
        if self.is_free(client):
            self.world.enqueue(client, name, LIMITS[name] + is_wrong, ttl_s)

    @rule(client=clients, name=names, waits=st.booleans())
    def wait(self, client: int, name: str, waits: bool) -> None:
        if self.is_free(client):
            self.world.wait(client, name, waits)

    @rule(at=st.integers(0, 1000))
    def release(self, at: int) -> None:
        """Also of a token that is old."""
        if self.world.grants:
            self.world.release(at)

    @rule(at=st.integers(0, 1000), ttl_s=ttls)
    def renew(self, at: int, ttl_s: int) -> None:
        if self.world.grants:
            self.world.renew(at, ttl_s)

    @rule(client=clients)
    def give_up(self, client: int) -> None:
        if not self.is_free(client):
            self.world.give_up(client)

    @rule(client=clients, keeps_leases=st.integers(0, 4).map(lambda number: number == 0))
    def vanish(self, client: int, keeps_leases: bool) -> None:
        self.world.vanish(client, keeps_leases)

    @rule(seconds=st.sampled_from([0.25, 1.0, 2.0, 5.0, 10.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now_s += seconds

    @rule()
    def sweep(self) -> None:
        self.world.sweep()

    @rule()
    def collect(self) -> None:
        self.world.collect()

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "world"):
            self.world._count()


LockMachine.TestCase.settings = settings(deadline=None, max_examples=examples(1600), stateful_step_count=60)
TestLocks = LockMachine.TestCase


# -- the checks can fail


def play(seed: int, steps: int = 400) -> None:
    """The same steps as the machine's, by chance."""
    chance = random.Random(seed)
    world = World()
    for _ in range(steps):
        client, name = chance.randrange(CLIENTS), chance.choice(sorted(LIMITS))
        limit, ttl_s = LIMITS[name] + (chance.random() < 0.05), chance.randint(1, 9)
        steps_now: list[Callable[[], None]] = [
            partial(world.vanish, client, chance.random() < 0.2),
            world.sweep,
            world.collect,
            partial(setattr, world, "now_s", world.now_s + chance.choice([0.5, 1, 3])),
        ]
        if world.grants:
            latest = len(world.grants) - 1 - min(int(chance.expovariate(0.5)), len(world.grants) - 1)
            steps_now += [partial(world.release, latest)] * 3 + [partial(world.renew, latest, ttl_s)]
        if client in world.blocked:
            steps_now.append(partial(world.give_up, client))
        else:
            steps_now += [
                partial(world.lock, client, name, limit, ttl_s, True),
                partial(world.lock, client, name, limit, ttl_s, False),
                partial(world.enqueue, client, name, limit, ttl_s),
                partial(world.wait, client, name, chance.random() < 0.7),
            ] * 2
        chance.choice(steps_now)()
        world._count()


def _does_nothing(*arguments: object, **more: object) -> None:
    """In place of a rule."""


def _last_come_first_served(patch: pytest.MonkeyPatch) -> None:
    grant_waiters = LockTable._grant_waiters

    def reversed_queue(table: LockTable, lock: Lock, now_s: float) -> None:
        for waiter in list(lock.waiters)[:1]:
            lock.waiters.move_to_end(waiter)
        grant_waiters(table, lock, now_s)

    patch.setattr(LockTable, "_grant_waiters", reversed_queue)


def _newcomers_overtake(patch: pytest.MonkeyPatch) -> None:
    def is_refused(lock: Lock) -> bool:
        return len(lock.holders) <= lock.limit and not lock.waiters

    patch.setattr(Lock, "is_free", property(is_refused))


def _the_dead_keep_their_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LockTable, "cancel", _does_nothing)


def _ended_leases_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LockTable, "_expire", _does_nothing)


def _one_release_grants_one_too_few(patch: pytest.MonkeyPatch) -> None:
    grant_waiters = LockTable._grant_waiters

    def only_when_empty(table: LockTable, lock: Lock, now_s: float) -> None:
        if not lock.holders:
            grant_waiters(table, lock, now_s)

    patch.setattr(LockTable, "_grant_waiters", only_when_empty)


def _a_renewal_keeps_the_first_end(patch: pytest.MonkeyPatch) -> None:
    restart = LockTable._restart

    def forgetful(table: LockTable, holder: Holder, ttl_s: int, now_s: float) -> None:
        restart(table, holder, holder.ttl_s, now_s)

    patch.setattr(LockTable, "_restart", forgetful)


def _a_lost_slot_is_handed_out(patch: pytest.MonkeyPatch) -> None:
    """The hole of the original."""
    wait = LockTable.wait

    def dead_token(
        table: LockTable,
        session: Session,
        name: bytes,
        now_s: float,
        tell: Callable[[Outcome], None] | None = None,
    ) -> Holder | Waiter | Refused:
        found = wait(table, session, name, now_s, tell)
        lock = next((lock for lock in table.locks if lock.name == name), None)
        if found is Refused.LEASE_EXPIRED and lock is not None:
            return Holder(lock, b"dead", session, 1, now_s + 1, now_s)
        return found

    patch.setattr(LockTable, "wait", dead_token)


def _idle_keys_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LockTable, "forget_idle", _does_nothing)


def _a_second_enqueue_is_welcome(patch: pytest.MonkeyPatch) -> None:
    enqueue = LockTable.enqueue

    def forgetful(
        table: LockTable, session: Session, name: bytes, limit: int, ttl_s: int, now_s: float
    ) -> Holder | Refused | None:
        session.enqueued.pop(name, None)
        return enqueue(table, session, name, limit, ttl_s, now_s)

    patch.setattr(LockTable, "enqueue", forgetful)


MUTANTS = (
    _last_come_first_served,
    _newcomers_overtake,
    _the_dead_keep_their_place,
    _ended_leases_stay,
    _one_release_grants_one_too_few,
    _a_renewal_keeps_the_first_end,
    _a_lost_slot_is_handed_out,
    _idle_keys_are_kept,
    _a_second_enqueue_is_welcome,
)


def test_random_steps_agree_with_the_model() -> None:
    for seed in range(60):
        play(seed)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_that_is_wrong_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)

    with pytest.raises((AssertionError, KeyError, ValueError, StopIteration)):
        for seed in range(30):
            play(seed)


def test_slots_that_were_lost_do_not_pile_up() -> None:
    """Of a connection that enqueues for one key after the other and never waits."""
    table = LockTable(lambda: b"token", TableLimits(keys_max=8))
    holder, client = Session(0), Session(1)
    for number in range(1000):
        name, now_s = b"%d" % number, number * 100.0
        table.acquire(holder, name, 1, 1, now_s)
        assert table.enqueue(client, name, 1, 1, now_s) is None
        for later_s in (2, 4):
            table.expire(now_s + later_s)
        table.forget_idle(now_s + 99, 60)

    assert len(client.enqueued) <= 8


def test_nothing_is_kept_of_what_is_over() -> None:
    """Whatever happened before: without clients, and after a while, the table is empty."""
    for seed in range(5):
        chance = random.Random(seed)
        world = World()
        for step in range(300):
            client, name = step % CLIENTS, chance.choice(sorted(LIMITS))
            if client not in world.blocked:
                world.lock(client, name, LIMITS[name], 5, chance.random() < 0.5)
        for client in range(CLIENTS):
            world.vanish(client, False)
        world.now_s += IDLE_S + 1
        world.collect()
        assert len(world.table) == 0
        assert not world.table._ending
        assert not world.table._idle
