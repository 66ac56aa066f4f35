"""Leases, documents, their index and decisions together: rules called directly, without a loop, against a plain model."""

import json
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, cast

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
from holdfast.state.layer.document import staging
from holdfast.state.layer.document.holding import read_holding, write_stage
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.index.terms import Terms
from holdfast.state.layer.index.writer import index_key, index_prefix
from holdfast.state.layer.records import DOCUMENTS, STAGES
from holdfast.storage.port import Transaction
from holdfast.storage.records_pb2 import Payload
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.port import Decision, Member
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

    @property
    def claim(self) -> Claim:
        return Claim(self.lease_id, self.token, self.txn_id)


class Leases:
    """The resource manager that a process has in `LeaseService`, without its memory."""

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock

    def reads(self, txn_id: str, members: Any) -> list[bytes]:
        return []

    def apply(self, tx: Transaction, txn_id: str, decision: Decision, members: Any) -> None:
        rules.apply(tx, txn_id, members, self._clock.now_ms())

    def keep(self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Any) -> int:
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
        self.coordinator.enlist(Leases(self.clock))
        self.held: dict[Member, Held] = {}
        self.tokens: dict[Member, int] = dict.fromkeys(KEYS, 0)
        self.committed: dict[Member, dict[str, int]] = {}
        self.writes: dict[Member, int] = dict.fromkeys(KEYS, 0)

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
        now_ms = self.clock.now_ms()

        def update(tx: Transaction) -> None:
            holding = read_holding(tx, member, claim, now_ms)
            payload = Payload(inline=text, size_bytes=len(text))
            staged = staging.updated(holding.document, holding.stage, payload, sha256(text).hexdigest())
            write_stage(tx, holding, staged)

        try:
            self.store.run(update)
        except LeaseExpired:
            assert held.expires_at_ms <= now_ms
        except FencingMismatch:
            assert is_stale
        else:
            assert not is_stale
            assert held.expires_at_ms > now_ms
            held.staged = document

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
                rules.keep_transaction(tx, lease.txn_id, lease.expires_at_ms, {member}, self.coordinator)
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
            if decision is Decision.COMMIT and one.staged is not None:
                self.committed[member] = one.staged
                self.writes[member] += 1
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
    def documents_and_stages_are_those_of_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        for member in KEYS:
            record = self.store.records.get(DOCUMENTS.key(*member))
            document = None if record is None else DOCUMENTS.decode(record)
            shown = None if document is None else json.loads(document.content.inline)
            assert shown == self.committed.get(member)
            assert (0 if document is None else document.version) == self.writes[member]
        start, end = STAGES.bounds()
        staged = sum(start <= key < end for key in self.store.records)
        assert staged == sum(held.staged is not None for held in self.held.values())

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
