"""Messages, deliveries and transactions together: rules called directly, without a loop, against a plain model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.common.clock import FakeClock, SteadyClock, end_ms
from holdfast.common.ids import MarkedXids, new_xid, uuid7
from holdfast.leases.layer.records import HELD, held_members, held_range
from holdfast.queue.layer.delivery import enlistment, freeing
from holdfast.queue.layer.delivery import rules as delivery_rules
from holdfast.queue.layer.delivery.rules import Ids, Known
from holdfast.queue.layer.delivery.transaction_binding import Dependencies, TransactionBinding
from holdfast.queue.layer.errors import MessageLeaseExpired, MessageLeaseMismatch, MessageNotFound
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message import records, rules, staging
from holdfast.queue.layer.message.arrival import new_message
from holdfast.queue.layer.message.changes import Changes
from holdfast.queue.layer.message.records import (
    DEAD,
    MESSAGES,
    READY,
    SENT,
    TAKEN,
    keys_of,
    member_of_message,
)
from holdfast.queue.layer.message.rules import Disposition
from holdfast.queue.layer.message.staging import NewStaged
from holdfast.queue.layer.message.types import (
    DequeueOrder,
    EnqueueOrder,
    ExtendOrder,
    LeaseClaim,
    NackIntent,
    NackOrder,
    QueueAddress,
)
from holdfast.queue.layer.records_pb2 import MessageState, QueuePolicy, StagedMessage
from holdfast.storage.intake import Content
from holdfast.storage.keys import unpack
from holdfast.storage.port import Transaction
from holdfast.txn.layer import transitions
from holdfast.txn.layer.coordinator import RECORD_TTL_S_DEFAULT, Coordinator
from holdfast.txn.layer.errors import TxnConflict
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.records import RECORDS
from tests.infra.dict_store import DictStore

T = TypeVar("T")

ORDERS = QueueAddress("default", "orders")
KEYS = keys_of(ORDERS)
LIMITS = QueueLimits()
NOTHING = Content(b"", None, 0, b"")
REFUSED = (MessageLeaseMismatch, MessageLeaseExpired, MessageNotFound)
decisions = st.sampled_from(Decision)
picks = st.integers(0, 5)


@dataclass
class Modelled:
    """A message as the model knows it."""

    message_id: str
    max_attempts: int
    delay_s: int
    place: str  # staged, ready, taken, dead or gone
    visible_at_ms: int = 0
    attempts: int = 0
    failures: int = 0
    token: int = 0
    lease_id: str = ""
    txn_id: str = ""
    expires_at_ms: int = 0
    is_enlisted: bool = False
    is_listed: bool = False  # Among the members of its transaction.

    def has_expired(self, now_ms: int) -> bool:
        return self.place == "taken" and self.expires_at_ms <= now_ms

    def is_used_up(self, now_ms: int) -> bool:
        return self.failures + self.has_expired(now_ms) >= self.max_attempts

    def free(self, visible_at_ms: int, *, is_failure: bool) -> None:
        self.failures += is_failure
        self.place = "dead" if self.failures >= self.max_attempts else "ready"
        self.visible_at_ms = visible_at_ms
        self.leave()

    def leave(self) -> None:
        self.lease_id = self.txn_id = ""
        self.is_listed = self.is_enlisted = False


class Queues:
    """The resource manager that a process has in `QueueService`, without its memory."""

    member_prefix = "q/"
    binding: TransactionBinding

    def reads(self, txn_id: str, members: Any) -> list[bytes]:
        return enlistment.reads(txn_id, members)

    def apply(self, tx: Transaction, txn_id: str, decision: Decision, members: Any, now_ms: int) -> None:
        enlistment.apply(tx, txn_id, decision, members, now_ms, self.binding, Changes())

    def keep(self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Any, now_ms: int) -> int:
        return enlistment.keep(tx, txn_id, expires_at_ms, members, now_ms, Changes())


class MessagesMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.fake = FakeClock()
        self.clock = SteadyClock(self.fake)
        self.store = DictStore()
        self.coordinator = Coordinator(self.clock)
        queues = Queues()
        # Neither keys nor states take part: what the binding needs of leases and documents is never called.
        self.binding = queues.binding = TransactionBinding(
            Dependencies(self.coordinator, cast(Any, None), cast(Any, None))
        )
        self.coordinator.enlist(queues)
        self.messages: dict[str, Modelled] = {}
        self.records: dict[str, int] = {}  # When transactions end that send messages.
        self.decided: set[str] = set()
        self.minted: list[str] = []
        self.txn_ids = [new_xid() for _ in range(3)]

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def run(self, step: Callable[[Transaction], T]) -> T:
        return self.store.run(step)

    # -- the model

    def listed(self, txn_id: str) -> list[Modelled]:
        return [one for one in self.messages.values() if one.txn_id == txn_id and one.is_listed]

    def deliveries(self, txn_id: str) -> list[Modelled]:
        return [one for one in self.listed(txn_id) if one.place == "taken"]

    def leased_until_ms(self, txn_id: str) -> int:
        return max((one.expires_at_ms for one in self.deliveries(txn_id)), default=0)

    def taken(self, pick: int) -> Modelled | None:
        found = [one for one in self.messages.values() if one.place == "taken"]
        return found[pick % len(found)] if found else None

    def keep(self, txn_id: str, expires_at_ms: int) -> int:
        last_ms = expires_at_ms
        for one in self.deliveries(txn_id):
            if not one.is_enlisted and one.has_expired(self.now_ms):
                one.is_listed = False
                continue
            one.is_enlisted = True
            one.expires_at_ms = max(one.expires_at_ms, expires_at_ms)
            last_ms = max(last_ms, one.expires_at_ms)
        return last_ms

    def end(self, txn_id: str, decision: Decision) -> None:
        now_ms = self.now_ms
        for one in self.listed(txn_id):
            if one.place == "staged" and decision is Decision.COMMIT:
                one.place = "ready"
                one.visible_at_ms = rules.visible_from_ms(one.delay_s, now_ms)
                one.leave()
            elif one.place == "staged" or decision is Decision.COMMIT:
                one.place = "gone"
                one.leave()
            else:
                has_expired = one.has_expired(now_ms)
                one.free(one.expires_at_ms if has_expired else now_ms, is_failure=has_expired)
        self.records.pop(txn_id, None)
        self.decided.add(txn_id)

    def may_commit(self, txn_id: str) -> bool:
        return not any(one.has_expired(self.now_ms) for one in self.deliveries(txn_id))

    # -- messages in

    @rule(delay_s=st.integers(0, 5), max_attempts=st.integers(1, 3))
    def enqueue(self, delay_s: int, max_attempts: int) -> None:
        order = EnqueueOrder(ORDERS, "c", delay_s, max_attempts=max_attempts)
        message, state = new_message(order, NOTHING, QueuePolicy(), LIMITS, self.now_ms)
        message_id = uuid7()
        self.run(lambda tx: records.add_new(tx, KEYS, message_id, message, state))
        self.messages[message_id] = Modelled(
            message_id, max_attempts, delay_s, "ready", rules.visible_from_ms(delay_s, self.now_ms)
        )

    @rule(pick=picks, delay_s=st.integers(0, 5), of_delivery=st.booleans(), is_late=st.booleans())
    def send(self, pick: int, delay_s: int, of_delivery: bool, is_late: bool = False) -> None:
        delivery = self.taken(pick) if of_delivery else None
        txn_id = delivery.txn_id if delivery is not None else self.txn_ids[pick % len(self.txn_ids)]
        if is_late and self.minted:
            txn_id = self.minted[-1 - pick % len(self.minted)]
        order = EnqueueOrder(ORDERS, "c", delay_s, max_attempts=2)
        message, state = new_message(order, NOTHING, QueuePolicy(), LIMITS, self.now_ms)
        new = NewStaged(ORDERS, uuid7(), message, StagedMessage(state=state, delay_s=delay_s))
        is_known = bool(self.listed(txn_id)) or txn_id in self.records
        leased_ms = self.leased_until_ms(txn_id)
        is_over = not is_known and (txn_id in self.decided or txn_id in self.minted)
        fresh_ms = end_ms(self.now_ms, RECORD_TTL_S_DEFAULT)
        ends_ms = max(self.records.get(txn_id, 0), leased_ms) if is_known else fresh_ms
        try:
            self.run(lambda tx: staging.stage(tx, txn_id, [new], 1000, self.now_ms, self.coordinator))
        except TxnConflict:
            assert ends_ms <= self.now_ms or is_over
            return
        assert ends_ms > self.now_ms
        assert not is_over
        self.keep(txn_id, leased_ms)
        self.records[txn_id] = ends_ms if leased_ms > self.now_ms else max(ends_ms, fresh_ms)
        self.messages[new.message_id] = Modelled(
            new.message_id, 2, delay_s, "staged", txn_id=txn_id, is_listed=True
        )

    # -- deliveries

    @rule(visibility_s=st.integers(1, 20), pick=st.none() | picks, of_delivery=st.booleans())
    def claim(self, visibility_s: int, pick: int | None, of_delivery: bool) -> None:
        mate = self.taken(pick) if pick is not None and of_delivery else None
        named = "" if pick is None else self.txn_ids[pick % len(self.txn_ids)]
        named = mate.txn_id if mate is not None else named
        found = self.next_ready()
        expected = self.next_modelled()
        assert (None if found is None else found.message_id) == (
            None if expected is None else expected.message_id
        )
        if found is None or expected is None:
            return
        order = DequeueOrder(ORDERS, "worker", txn_id=named)
        ids = Ids(new_xid(), named or self.coordinator.mint())
        if not named:
            self.minted.append(ids.txn_id)
        _, state = self.run(
            lambda tx: delivery_rules.claim(
                tx, ORDERS, found, order, ids, visibility_s, self.now_ms, self.binding
            )
        )
        expires_at_ms = end_ms(self.now_ms, visibility_s)
        if named:
            last_ms = self.keep(named, expires_at_ms)
            expires_at_ms = self.keep(named, last_ms)
        expected.failures += expected.has_expired(self.now_ms)
        if expected.place == "taken":
            expected.visible_at_ms = expected.expires_at_ms
        expected.place = "taken"
        expected.attempts += 1
        expected.token += 1
        expected.lease_id, expected.txn_id = ids
        expected.is_enlisted, expected.is_listed = bool(named), True
        expected.expires_at_ms = expires_at_ms
        assert (state.attempts, state.fencing_token) == (expected.attempts, expected.token)

    def next_ready(self) -> Known | None:
        """What a dispatcher would hand out, from the records alone."""
        ready: list[tuple[tuple[int, str], Known]] = []
        for table in (READY, TAKEN):
            start, end = table.bounds(*ORDERS)
            for key, record in self.store.records.items():
                if not start <= key < end:
                    continue
                state, message_id = table.decode(record), str(unpack(key)[-1])
                due_ms = state.expires_at_ms if state.lease_id else state.visible_at_ms
                is_free = not rules.is_held(state, self.now_ms) and not state.is_enlisted
                is_ready = rules.disposition(state, self.now_ms) is Disposition.READY
                if is_free and is_ready and due_ms <= self.now_ms:
                    known = Known(message_id, key, record.mod_revision, state)
                    ready.append(((due_ms, message_id), known))
        return min(ready, key=lambda one: one[0])[1] if ready else None

    def next_modelled(self) -> Modelled | None:
        now_ms = self.now_ms
        ready = [
            ((one.visible_at_ms if one.place == "ready" else one.expires_at_ms), one.message_id)
            for one in self.messages.values()
            if (one.place == "ready" and one.visible_at_ms <= now_ms)
            or (one.has_expired(now_ms) and not one.is_enlisted and not one.is_used_up(now_ms))
        ]
        return self.messages[min(ready)[1]] if ready else None

    def claim_of(self, one: Modelled, wrong: str) -> LeaseClaim:
        claim = LeaseClaim(ORDERS, one.message_id, one.lease_id, one.token, one.txn_id)
        if wrong == "lease":
            return claim._replace(lease_id=new_xid())
        return claim._replace(fencing_token=one.token + 1) if wrong == "token" else claim

    @precondition(lambda self: self.taken(0))
    @rule(pick=picks, wrong=st.sampled_from(["", "", "", "lease", "token"]))
    def ack(self, pick: int, wrong: str) -> None:
        one = self.taken(pick)
        assert one is not None
        others = [mate for mate in self.deliveries(one.txn_id) if mate is not one]
        is_held = not wrong and not one.has_expired(self.now_ms)
        is_blocked = one.is_enlisted and any(mate.has_expired(self.now_ms) for mate in others)
        claim = self.claim_of(one, wrong)

        def ack(tx: Transaction) -> None:
            state = delivery_rules.held(tx, claim, self.now_ms)
            delivery_rules.ack(tx, claim, state, self.now_ms, self.binding, Changes())

        try:
            self.run(ack)
        except REFUSED:
            assert not is_held or is_blocked
            return
        assert is_held
        assert not is_blocked
        txn_id, is_enlisted = one.txn_id, one.is_enlisted
        one.place = "gone"
        one.leave()
        if is_enlisted:
            self.end(txn_id, Decision.COMMIT)

    @precondition(lambda self: self.taken(0))
    @rule(pick=picks, delay_s=st.integers(0, 5), intent=st.sampled_from(NackIntent), is_wrong=st.booleans())
    def nack(self, pick: int, delay_s: int, intent: NackIntent, is_wrong: bool) -> None:
        one = self.taken(pick)
        assert one is not None
        order = NackOrder(self.claim_of(one, "lease" if is_wrong else ""), delay_s, intent)
        try:
            self.run(lambda tx: delivery_rules.nack(tx, order, self.now_ms, self.binding, Changes()))
        except REFUSED:
            assert is_wrong or one.has_expired(self.now_ms)
            return
        assert not is_wrong
        assert not one.has_expired(self.now_ms)
        txn_id, is_enlisted = one.txn_id, one.is_enlisted
        one.free(rules.visible_from_ms(delay_s, self.now_ms), is_failure=intent is NackIntent.FAILURE)
        if is_enlisted:
            self.end(txn_id, Decision.ROLLBACK)

    @precondition(lambda self: self.taken(0))
    @rule(pick=picks, seconds=st.integers(1, 20))
    def extend(self, pick: int, seconds: int) -> None:
        one = self.taken(pick)
        assert one is not None
        order = ExtendOrder(self.claim_of(one, ""), seconds)
        try:
            kept = self.run(
                lambda tx: delivery_rules.extend(tx, order, 1800, self.now_ms, self.binding, Changes())
            )
        except REFUSED:
            assert one.has_expired(self.now_ms)
            return
        assert not one.has_expired(self.now_ms)
        one.expires_at_ms = end_ms(self.now_ms, seconds)
        assert kept.expires_at_ms == one.expires_at_ms
        if one.is_enlisted:
            for mate in self.deliveries(one.txn_id):
                mate.expires_at_ms = max(mate.expires_at_ms, one.expires_at_ms)

    @precondition(lambda self: self.taken(0))
    @rule(pick=picks)
    def give_back(self, pick: int) -> None:
        one = self.taken(pick)
        assert one is not None
        self.run(
            lambda tx: freeing.give_back(
                tx, ORDERS, one.message_id, one.lease_id, self.now_ms, self.binding, Changes()
            )
        )
        one.attempts -= 1
        one.free(one.visible_at_ms, is_failure=False)

    # -- time

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        self.fake.advance(seconds)

    @precondition(lambda self: self.taken(0))
    @rule(pick=picks)
    def expire(self, pick: int) -> None:
        """What a dispatcher does with a delivery whose time is over."""
        one = self.taken(pick)
        assert one is not None

        def expire(tx: Transaction) -> None:
            record = tx.get(KEYS.taken(one.message_id))
            assert record is not None
            freeing.end(tx, ORDERS, one.message_id, record, self.now_ms, self.binding, Changes())

        self.run(expire)
        if not one.has_expired(self.now_ms):
            return
        if one.is_enlisted:
            self.end(one.txn_id, Decision.ROLLBACK)
        elif one.is_used_up(self.now_ms):
            one.failures += 1
            one.place = "dead"
            one.leave()

    @rule()
    def sweep(self) -> None:
        """What was not decided on in its time is rolled back."""
        for txn_id in list(self.records):
            self.run(lambda tx, txn_id=txn_id: self._sweep(tx, txn_id))  # type: ignore[misc]
            if max(self.records[txn_id], self.leased_until_ms(txn_id)) <= self.now_ms:
                self.end(txn_id, Decision.ROLLBACK)

    def _sweep(self, tx: Transaction, txn_id: str) -> None:
        record, _ = self.coordinator.known(tx, txn_id, self.now_ms)
        assert record is not None
        if transitions.lives_until_ms(tx, txn_id, record) <= self.now_ms:
            self.coordinator.follow(tx, txn_id, record, Decision.ROLLBACK, self.now_ms)

    # -- decisions and dead letters

    @rule(pick=picks, of_delivery=st.booleans(), decision=decisions)
    def decide(self, pick: int, of_delivery: bool, decision: Decision) -> None:
        delivery = self.taken(pick) if of_delivery else None
        txn_id = delivery.txn_id if delivery is not None else self.txn_ids[pick % len(self.txn_ids)]
        may_commit = self.may_commit(txn_id)

        def decide(tx: Transaction) -> None:
            self.coordinator.decide(tx, txn_id, decision, held_members(tx, txn_id), self.now_ms)

        try:
            self.run(decide)
        except MessageLeaseMismatch:
            assert decision is Decision.COMMIT
            assert not may_commit
            return
        assert may_commit or decision is Decision.ROLLBACK
        self.end(txn_id, decision)

    @precondition(lambda self: any(one.place == "dead" for one in self.messages.values()))
    @rule()
    def redrive(self) -> None:
        one = next(one for one in self.messages.values() if one.place == "dead")
        letter = DEAD.decode(self.store.records[KEYS.dead(one.message_id)])
        assert letter.state.failure_attempts == one.failures
        self.run(lambda tx: freeing.redrive(tx, ORDERS, one.message_id, letter, self.now_ms, Changes()))
        one.failures = 0
        one.place, one.visible_at_ms = "ready", self.now_ms

    # -- what always holds

    def stored(self, table: Any, *prefix: str) -> dict[str, Any]:
        start, end = table.bounds(*prefix)
        return {
            str(unpack(key)[-1]): table.decode(record)
            for key, record in self.store.records.items()
            if start <= key < end
        }

    def at(self, *places: str) -> dict[str, Modelled]:
        return {message_id: one for message_id, one in self.messages.items() if one.place in places}

    @invariant()
    def every_message_stands_in_exactly_the_place_of_the_model(self) -> None:
        if not hasattr(self, "txn_ids"):
            return
        assert self.stored(MESSAGES, *ORDERS).keys() == self.at("staged", "ready", "taken").keys()
        assert self.stored(READY, *ORDERS).keys() == self.at("ready").keys()
        assert self.stored(TAKEN, *ORDERS).keys() == self.at("taken").keys()
        assert self.stored(DEAD, *ORDERS).keys() == self.at("dead").keys()
        assert self.stored(SENT).keys() == self.at("staged").keys()

    @invariant()
    def states_are_those_of_the_model(self) -> None:
        if not hasattr(self, "txn_ids"):
            return
        states: dict[str, MessageState] = {**self.stored(READY, *ORDERS), **self.stored(TAKEN, *ORDERS)}
        for message_id, state in states.items():
            one = self.messages[message_id]
            assert (state.attempts, state.failure_attempts, state.fencing_token) == (
                one.attempts,
                one.failures,
                one.token,
            )
            assert (state.lease_id, state.txn_id, state.is_enlisted) == (
                one.lease_id,
                one.txn_id,
                one.is_enlisted,
            )
            if one.place == "taken":
                assert state.expires_at_ms == one.expires_at_ms
            else:
                assert state.visible_at_ms == one.visible_at_ms

    @invariant()
    def transactions_know_their_members_and_nothing_else(self) -> None:
        if not hasattr(self, "txn_ids"):
            return
        start, end = held_range()
        held = {key for key in self.store.records if start <= key < end}
        listed = [one for one in self.messages.values() if one.is_listed]
        assert held == {HELD.key(one.txn_id, *_member(one)) for one in listed}
        assert self.stored(RECORDS).keys() == self.records.keys()


def _member(one: Modelled) -> Member:
    return member_of_message(ORDERS, one.message_id)


MessagesMachine.TestCase.settings = settings(deadline=None, stateful_step_count=60)
TestMessages = MessagesMachine.TestCase


# -- the checks can fail


def walk() -> None:
    """Each rule that a mutant breaks, once, with a look at everything after each step."""
    machine = MessagesMachine()
    steps: list[Callable[[], None]] = [
        machine.begin,
        lambda: machine.enqueue(0, 3),
        lambda: machine.claim(10, None, False),
        lambda: machine.send(0, 0, True),
        lambda: machine.ack(0, ""),
        lambda: machine.claim(10, None, False),
        lambda: machine.send(0, 0, True),
        lambda: machine.nack(0, 0, NackIntent.DEFER, False),
        lambda: machine.claim(10, None, False),
        lambda: machine.ack(0, ""),
        lambda: machine.send(0, 0, False, is_late=True),
    ]
    for step in steps:
        step()
        machine.every_message_stands_in_exactly_the_place_of_the_model()
        machine.states_are_those_of_the_model()
        machine.transactions_know_their_members_and_nothing_else()


def test_a_walk_through_the_life_of_a_sent_message_agrees_with_the_model() -> None:
    walk()


def _visible_early(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = staging.stage

    def staged(
        tx: Transaction, txn_id: str, messages: Any, bytes_max: int, now_ms: int, decider: Any
    ) -> None:
        stage(tx, txn_id, messages, bytes_max, now_ms, decider)
        for one in messages:
            records.make_ready(tx, keys_of(one.address), one.message_id, one.staged.state)

    monkeypatch.setattr(staging, "stage", staged)


def _does_nothing(*arguments: object) -> None:
    """In place of a rule."""


def _kept_by_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "drop", _does_nothing)


def _token_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = rules.claimed

    def stays(state: MessageState, **more: Any) -> MessageState:
        taken = claimed(state, **more)
        taken.fencing_token = max(1, state.fencing_token)
        return taken

    monkeypatch.setattr(rules, "claimed", stays)


def _ack_leaves_the_transaction_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionBinding, "decide", _does_nothing)


def _minted_ids_are_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def has(_: MarkedXids, __: str) -> bool:
        return False

    monkeypatch.setattr(MarkedXids, "has", has)


@pytest.mark.parametrize(
    "mutant",
    [
        _visible_early,
        _kept_by_rollback,
        _token_stays,
        _ack_leaves_the_transaction_alone,
        _minted_ids_are_like_others,
    ],
)
def test_a_rule_that_is_wrong_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)

    with pytest.raises(AssertionError):
        walk()
