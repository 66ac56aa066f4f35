"""Leases, documents, their index and decisions together: rules called directly, without a loop, against a plain model."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.common.clock import FakeClock, SteadyClock, end_ms
from holdfast.common.ids import new_xid
from holdfast.leases.layer import rules
from holdfast.leases.layer.errors import FencingMismatch, LeaseExpired, LeaseRequired, Waiting
from holdfast.leases.layer.grant import AcquireParams, Claim, Renewal
from holdfast.leases.layer.records import LEASES, held_range, held_txn_of, member_of
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.leases.layer.rules import Ids
from holdfast.state.layer.document import rules as document_rules
from holdfast.state.layer.document import staging
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.document.staging import ANYTHING
from holdfast.state.layer.index.terms import Terms
from holdfast.state.layer.index.writer import index_key, index_prefix
from holdfast.state.layer.records import DOCUMENTS, STAGES
from holdfast.storage.intake import Content
from holdfast.storage.port import Transaction
from holdfast.txn.layer import transitions
from holdfast.txn.layer.coordinator import RECORD_TTL_S_DEFAULT, Coordinator
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.records import RECORDS
from holdfast.txn.layer.rules import Ask, State
from tests.infra.dict_store import DictStore

KEYS = [Member("default", name) for name in ("a", "b", "c")]
members = st.sampled_from(KEYS)
documents = st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 3), max_size=2)


@dataclass
class Held:
    """A lease as the model knows it."""

    lease_id: str
    txn_id: str
    token: int
    expires_at_ms: int
    is_explicit: bool
    staged: dict[str, int] | None = None
    """What its commit makes of the document; None with a version: it is removed."""
    staged_version: int = 0

    @property
    def claim(self) -> Claim:
        return Claim(self.lease_id, self.token, self.txn_id)


class Leases:
    """The resource manager that a process has in `LeaseService`, without its memory."""

    member_prefix = ""

    def reads(self, txn_id: str, members: Any) -> list[bytes]:
        return []

    def apply(self, tx: Transaction, txn_id: str, decision: Decision, members: Any, now_ms: int) -> None:
        rules.apply(tx, txn_id, members, now_ms)

    def keep(self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Any, now_ms: int) -> int:
        return rules.keep(tx, txn_id, expires_at_ms, members)[0]


def _lease_of(tx: Transaction, member: Member) -> Lease | None:
    return LEASES.get(tx, *member)


class LayersMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.fake = FakeClock()
        self.clock = SteadyClock(self.fake)
        self.store = DictStore()
        self.coordinator = Coordinator(self.clock)
        self.coordinator.enlist(StateService(cast(Any, self.store), self.clock))
        self.coordinator.enlist(Leases())
        self.held: dict[Member, Held] = {}
        self.tokens: dict[Member, int] = dict.fromkeys(KEYS, 0)
        self.committed: dict[Member, dict[str, int]] = {}
        self.versions: dict[Member, int] = dict.fromkeys(KEYS, 0)
        self.pending: dict[str, int] = {}  # Transactions that were named, and when their time is over.
        self.ended: list[tuple[str, Decision, list[Member]]] = []

    # -- steps

    @rule(member=members, ttl_s=st.integers(1, 20), joined=st.none() | members)
    def acquire(self, member: Member, ttl_s: int, joined: Member | None) -> None:
        now_ms = self.clock.now_ms()
        other = None if joined is None else self.held.get(joined)
        is_joining = other is not None and other.expires_at_ms > now_ms and joined != member
        txn_id = other.txn_id if other is not None and is_joining else ""
        params = AcquireParams(member, "owner", ttl_s, 0, txn_id)
        ids = Ids(new_xid(), txn_id or new_xid())
        known = self.held.get(member)
        try:
            lease, _, freed = self.store.run(
                lambda tx: rules.grant(tx, params, ids, now_ms, self.coordinator)
            )
        except Waiting:
            assert known is not None
            assert known.expires_at_ms > now_ms
            return
        assert known is None or known.expires_at_ms <= now_ms
        if known is not None:
            assert set(freed) == self.end(known, Decision.ROLLBACK)
        self.tokens[member] += 1
        ends_ms = [end_ms(now_ms, ttl_s)]
        if txn_id:
            mates = [held for held in self.held.values() if held.txn_id == txn_id]
            ends_ms += [mate.expires_at_ms for mate in mates]
            for mate in mates:
                mate.expires_at_ms, mate.is_explicit = max(ends_ms), True
        self.held[member] = Held(*ids, self.tokens[member], max(ends_ms), bool(txn_id))
        assert (lease.fencing_token, lease.expires_at_ms) == (self.tokens[member], max(ends_ms))

    @precondition(lambda self: self.held)
    @rule(member=members, document=documents, is_stale=st.booleans())
    def update(self, member: Member, document: dict[str, int], is_stale: bool) -> None:
        held = self.held.get(member)
        if held is None:
            return
        claim = held.claim._replace(fencing_token=held.token - 1) if is_stale else held.claim
        text = json.dumps(document, separators=(",", ":")).encode()
        content = Content(text, None, len(text), sha256(text).digest())
        now_ms = self.clock.now_ms()
        try:
            view = self.store.run(
                lambda tx: document_rules.update(tx, member, claim, content, ANYTHING, now_ms)
            )
        except LeaseExpired:
            assert held.expires_at_ms <= now_ms
        except FencingMismatch:
            assert is_stale
        else:
            assert not is_stale
            assert held.expires_at_ms > now_ms
            held.staged, held.staged_version = document, held.staged_version or self.versions[member] + 1
            assert view.version == held.staged_version

    @precondition(lambda self: self.held)
    @rule(member=members)
    def remove(self, member: Member) -> None:
        held, now_ms = self.held.get(member), self.clock.now_ms()
        if held is None or held.expires_at_ms <= now_ms:
            return
        is_there = bool(held.staged_version) or member in self.committed

        is_removed, version = self.store.run(
            lambda tx: document_rules.remove(tx, member, held.claim, ANYTHING, now_ms)
        )

        assert is_removed == is_there
        if is_there:
            held.staged, held.staged_version = None, (held.staged_version or self.versions[member]) + 1
        assert version == (held.staged_version or self.versions[member])

    @precondition(lambda self: self.held)
    @rule(member=members)
    def read(self, member: Member) -> None:
        held, now_ms = self.held.get(member), self.clock.now_ms()
        if held is None or held.expires_at_ms <= now_ms:
            return
        view = self.store.run(lambda tx: document_rules.read(tx, member, held.claim, ANYTHING, now_ms))
        shown = None if view.content is None else json.loads(view.content.inline)
        assert shown == (held.staged if held.staged_version else self.committed.get(member))

    @precondition(lambda self: self.held)
    @rule(member=members, state=st.sampled_from(State))
    def decide(self, member: Member, state: State) -> None:
        """By name: a pending transaction is recorded, a decision is applied to all of its members at once."""
        held, now_ms = self.held.get(member), self.clock.now_ms()
        if held is None:
            return
        outcome = self.store.run(
            lambda tx: transitions.decide(tx, held.txn_id, Ask(state), now_ms, self.coordinator)
        )
        assert outcome.state is state
        if state.decision is not None:
            assert set(outcome.freed) == self.end(held, state.decision)
            return
        assert not outcome.freed
        self.pending.setdefault(held.txn_id, end_ms(now_ms, RECORD_TTL_S_DEFAULT))
        for mate in self.held.values():
            mate.is_explicit = mate.is_explicit or mate.txn_id == held.txn_id

    @precondition(lambda self: self.held)
    @rule(member=members)
    def replay(self, member: Member) -> None:
        """A transaction ends by its time when no lease of it lives, and no one said that it lives longer."""
        held, now_ms = self.held.get(member), self.clock.now_ms()
        if held is None:
            return
        ends_ms = [one.expires_at_ms for one in self.held.values() if one.txn_id == held.txn_id]
        is_over = max(*ends_ms, self.pending.get(held.txn_id, 0)) <= now_ms
        outcome = self.store.run(
            lambda tx: transitions.replay(tx, held.txn_id, now_ms, self.coordinator, term=0, may_end=True)
        )
        assert outcome.state is (State.ROLLBACK if is_over else State.PENDING)
        assert set(outcome.freed) == (self.end(held, Decision.ROLLBACK) if is_over else set())

    @precondition(lambda self: self.held)
    @rule(member=members, decision=st.sampled_from(Decision), wrong=st.sampled_from(["", "lease", "token"]))
    def release(self, member: Member, decision: Decision, wrong: str) -> None:
        held = self.held.get(member)
        if held is None:
            return
        claim = held.claim
        if wrong:
            claim = (
                claim._replace(lease_id=new_xid()) if wrong == "lease" else claim._replace(fencing_token=0)
            )
        now_ms = self.clock.now_ms()
        freed = self.store.run(
            lambda tx: rules.release(tx, member, claim, decision, now_ms, self.coordinator)
        )
        if wrong == "lease" or (wrong and held.expires_at_ms > now_ms):
            assert not freed
        else:
            is_over = held.expires_at_ms <= now_ms
            assert set(freed) == self.end(held, Decision.ROLLBACK if is_over else decision)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def apply_again(self, data: st.DataObject) -> None:
        """A decision whose answer was lost comes twice: nothing of what came after it may change."""
        self.repeat(data.draw(st.sampled_from(self.ended)))

    def repeat(self, ended: tuple[str, Decision, list[Member]]) -> None:
        txn_id, decision, ended_members = ended
        now_ms = self.clock.now_ms()
        self.store.run(lambda tx: self.coordinator.end(tx, txn_id, decision, ended_members, now_ms))

    @rule(member=members, document=documents)
    def publish(self, member: Member, document: dict[str, int]) -> None:
        """A whole cycle: documents are overwritten often, which single steps seldom come to."""
        self.acquire(member, 10, None)
        self.update(member, document, is_stale=False)
        self.release(member, Decision.COMMIT, "")

    @precondition(lambda self: self.held)
    @rule(member=members, ttl_s=st.integers(1, 20))
    def renew(self, member: Member, ttl_s: int) -> None:
        held = self.held.get(member)
        if held is None:
            return
        now_ms = self.clock.now_ms()

        def renew(tx: Transaction) -> int:
            lease = rules.renew(tx, Renewal(member, held.claim, ttl_s), now_ms)
            if lease.is_explicit:
                rules.keep_transaction(
                    tx, lease.txn_id, lease.expires_at_ms, {member}, now_ms, self.coordinator
                )
            return lease.expires_at_ms

        try:
            renewed_ms = self.store.run(renew)
        except (LeaseExpired, LeaseRequired):
            assert held.expires_at_ms <= now_ms
            return
        held.expires_at_ms = end_ms(now_ms, ttl_s)
        assert renewed_ms == held.expires_at_ms
        for mate in self.held.values():
            if held.is_explicit and mate.txn_id == held.txn_id:
                mate.expires_at_ms = max(mate.expires_at_ms, held.expires_at_ms)

    @rule(seconds=st.integers(1, 15))
    def time_passes(self, seconds: int) -> None:
        self.fake.advance(seconds)

    @rule(member=members)
    def expire(self, member: Member) -> None:
        held, now_ms = self.held.get(member), self.clock.now_ms()
        freed = self.store.run(lambda tx: rules.end_if_over(tx, member, now_ms, self.coordinator))
        if held is None or held.expires_at_ms > now_ms:
            assert not freed
        else:
            assert set(freed) == self.end(held, Decision.ROLLBACK)

    def end(self, held: Held, decision: Decision) -> set[Member]:
        """What the end of a lease makes of its whole transaction."""
        ended = {member for member, one in self.held.items() if one.txn_id == held.txn_id}
        for member in ended:
            one = self.held.pop(member)
            if decision is Decision.ROLLBACK or not one.staged_version:
                continue
            self.versions[member] = one.staged_version
            if one.staged is None:
                self.committed.pop(member, None)
            else:
                self.committed[member] = one.staged
        self.pending.pop(held.txn_id, None)
        self.ended.append((held.txn_id, decision, sorted(ended)))
        return ended

    # -- what always holds

    @invariant()
    def leases_are_those_of_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        for member in KEYS:
            lease = self.store.run(partial(_lease_of, member=member))
            held = self.held.get(member)
            assert (lease.fencing_token if lease is not None else 0) == self.tokens[member]
            assert (lease.lease_id if lease is not None else "") == ("" if held is None else held.lease_id)
            if held is not None and lease is not None:
                assert lease.expires_at_ms == held.expires_at_ms

    @invariant()
    def what_is_held_is_listed_under_its_transaction(self) -> None:
        if not hasattr(self, "store"):
            return
        start, end = held_range()
        listed = {(held_txn_of(key), member_of(key)) for key in self.store.records if start <= key < end}
        assert listed == {(held.txn_id, member) for member, held in self.held.items()}

    @invariant()
    def documents_are_those_of_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        for member in KEYS:
            record = self.store.records.get(DOCUMENTS.key(*member))
            document = None if record is None else DOCUMENTS.decode(record)
            is_there = document is not None and bool(document.etag)
            shown = json.loads(document.content.inline) if document is not None and is_there else None
            assert shown == self.committed.get(member)
            assert (0 if document is None else document.version) == self.versions[member]

    @invariant()
    def stages_are_those_of_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        start, end = STAGES.bounds()
        staged = sum(start <= key < end for key in self.store.records)
        assert staged == sum(held.staged_version > 0 for held in self.held.values())

    @invariant()
    def only_pending_transactions_have_a_record(self) -> None:
        if not hasattr(self, "store"):
            return
        start, end = RECORDS.bounds()
        assert sum(start <= key < end for key in self.store.records) == len(self.pending)

    @invariant()
    def the_index_is_what_the_documents_say(self) -> None:
        if not hasattr(self, "store"):
            return
        prefix = index_prefix("default")
        expected = {
            index_key(prefix, entry, member.key)
            for member, document in self.committed.items()
            for entry in Terms().of_text(json.dumps(document, separators=(",", ":")).encode())
        }
        assert {key for key in self.store.records if key.startswith(prefix)} == expected


LayersMachine.TestCase.settings = settings(deadline=None)
TestLayers = LayersMachine.TestCase


# -- the checks can fail


def walk() -> None:
    """A decision that is applied a second time, after the next holder of its key has staged and published."""
    machine = LayersMachine()
    (key, *_) = KEYS

    def repeat_all() -> None:
        for ended in reversed(machine.ended):
            machine.repeat(ended)

    steps: list[Callable[[], None]] = [
        machine.begin,
        lambda: machine.publish(key, {"x": 1}),
        lambda: machine.acquire(key, 10, None),
        repeat_all,
        lambda: machine.update(key, {"x": 2}, is_stale=False),
        repeat_all,
        lambda: machine.release(key, Decision.COMMIT, ""),
        repeat_all,
    ]
    for step in steps:
        step()
        machine.leases_are_those_of_the_model()
        machine.what_is_held_is_listed_under_its_transaction()
        machine.documents_are_those_of_the_model()


def test_a_walk_in_which_decisions_come_twice_agrees_with_the_model() -> None:
    walk()


def _does_nothing(*arguments: object) -> None:
    """In place of a step."""


def _ends_any_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases end without a look at whose they are."""
    apply = rules.apply

    def again(tx: Transaction, txn_id: str, members: Sequence[Member], now_ms: int) -> None:
        for member in members:
            lease = LEASES.get(tx, *member)
            apply(tx, txn_id if lease is None else lease.txn_id, [member], now_ms)

    monkeypatch.setattr(rules, "apply", again)


def _publishes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was staged stays, so the second application publishes it over what is newer."""
    monkeypatch.setattr(STAGES, "delete", _does_nothing)


def _counts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each application of a commit makes a version, whether anything is staged or not."""
    apply = staging.apply

    def again(
        tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int, index: Any
    ) -> None:
        apply(tx, txn_id, decision, members, now_ms, index)
        for member in members:
            if decision is Decision.COMMIT and (document := DOCUMENTS.get(tx, *member)) is not None:
                document.version += 1
                DOCUMENTS.put(tx, document, *member)

    monkeypatch.setattr(staging, "apply", again)


@pytest.mark.parametrize("mutant", [_ends_any_lease, _publishes_again, _counts_again])
def test_a_decision_that_is_applied_twice_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)

    with pytest.raises(AssertionError):
        walk()
