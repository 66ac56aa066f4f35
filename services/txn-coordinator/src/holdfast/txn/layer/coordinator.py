"""The coordinator of transactions on one store: one decision, one storage commit, every resource manager in it."""

from collections.abc import Awaitable, Callable, Sequence
from zlib import crc32

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock, end_ms
from holdfast.common.ids import MarkedXids
from holdfast.common.telemetry.metrics import Registry
from holdfast.leases.layer.records import held_bounds, held_members
from holdfast.storage.port import Transaction
from holdfast.txn.layer import rules
from holdfast.txn.layer.errors import TxnConflict
from holdfast.txn.layer.led import DecidedByLeader, EnlistedAtLeader, Led
from holdfast.txn.layer.lifetime import is_sent, last_lease_ends_ms, leased_until_ms, message_place
from holdfast.txn.layer.port import Decision, Member, ResourceManager, check_room
from holdfast.txn.layer.records import MARKERS, RECORDS, delete_record, put_marker, put_record
from holdfast.txn.layer.records_pb2 import TxnMarker, TxnRecord
from holdfast.txn.layer.rules import Participant, State
from holdfast.txn.metrics import TxnMetrics

RETENTION_S_DEFAULT = 24 * 3600.0
RECORD_TTL_S_DEFAULT = 30.0
RECORD_TTL_S_MAX = 7 * 24 * 3600.0  # However far in the future a caller says it ends.
# Between two attempts to deliver a decision to other stores: short while a node restarts, then less and less often.
PAUSE_MS_BASE, PAUSE_MS_MAX, PAUSE_MS_LATE_MAX = 500, 10_000, 300_000
TRIES_EARLY = 10


class Coordinator:
    """The `Decider` of the layers in its process.

    What lies in this store is decided and applied in the same commit: there is no moment at which one is durable and
    the other is not, and nothing to recover. A record of its own has only a transaction that was named beforehand, that
    sends messages, or that reaches other islands. Of every other one the leases tell who takes part.
    """

    def __init__(
        self,
        clock: SteadyClock | None = None,
        *,
        backend_hash: str = "",
        retention_s: float = RETENTION_S_DEFAULT,
        record_ttl_s: float = RECORD_TTL_S_DEFAULT,
        metrics: TxnMetrics | None = None,
    ) -> None:
        self._clock = clock or SteadyClock()
        self.metrics = metrics or TxnMetrics(Registry())
        self.backend_hash = backend_hash
        self._minted = MarkedXids(backend_hash)
        self.mint: Callable[[], str] = self._minted.new
        self._retention_s = retention_s
        self._record_ttl_s = record_ttl_s
        self._managers: list[ResourceManager] = []
        self.on_due: Callable[[int], None] = lambda at_ms: None
        self.lead: Led | None = None
        """Decides on transactions of several islands; None: there is only this one."""

    def enlist(self, manager: ResourceManager) -> None:
        """Have a layer take part in every decision. Called while the layers are wired together."""
        self._managers.append(manager)

    # -- the port of the services

    def reads(self, txn_id: str, members: Sequence[Member]) -> Sequence[bytes]:
        keys = [key for manager in self._managers for key in manager.reads(txn_id, members)]
        return [*keys, RECORDS.key(txn_id)]

    def end(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int
    ) -> None:
        tx.prefetch(lambda: self.reads(txn_id, members))
        for manager in self._managers:
            prefix = manager.member_prefix
            if prefix and not any(member.key.startswith(prefix) for member in members):
                continue
            if not (failpoint.ARMED and failpoint.hit(f"txn.apply.{type(manager).__name__}")):
                manager.apply(tx, txn_id, decision, members, now_ms)

    def decide(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int
    ) -> None:
        if self.lead is not None and self.lead.is_clustered:
            raise DecidedByLeader(self.lead, txn_id, decision)
        record = RECORDS.get(tx, txn_id)
        if record is None:
            self.end(tx, txn_id, decision, members, now_ms)
            self._mark(tx, txn_id, TxnMarker(state=decision.value), now_ms)
            self.metrics.recorded(tx, State(decision.value))
            return
        rules.hold(record, self.located(members))
        self.follow(tx, txn_id, record, decision, now_ms)

    def abandon(
        self, tx: Transaction, txn_id: str, members: Sequence[Member], now_ms: int
    ) -> Callable[[], Awaitable[None]] | None:
        if self.lead is not None and self.lead.is_clustered:
            return DecidedByLeader(self.lead, txn_id, Decision.ROLLBACK).resolve
        self.decide(tx, txn_id, Decision.ROLLBACK, members, now_ms)
        return None

    def decided(self, tx: Transaction, txn_id: str) -> Decision | None:
        marker = MARKERS.get(tx, txn_id)
        return None if marker is None else rules.state_of(marker).decision

    def join(
        self,
        tx: Transaction,
        txn_id: str,
        expires_at_ms: int,
        members: Sequence[Member],
        joining: Member,
        now_ms: int,
    ) -> int:
        check_room(members)
        is_led = self.lead is not None and self.lead.is_clustered
        if self.lead is not None and is_led and not rules.is_enlisted(RECORDS.get(tx, txn_id), joining):
            raise EnlistedAtLeader(self.lead, txn_id, expires_at_ms, [*members, joining])
        last_ms = self.keep(tx, txn_id, expires_at_ms, members, now_ms)
        if last_ms > expires_at_ms:
            self.keep(tx, txn_id, last_ms, members, now_ms)
        return last_ms

    def admit(self, tx: Transaction, txn_id: str, joining: Sequence[Member], now_ms: int) -> None:
        _prefetch_known(tx, txn_id)
        held = held_members(tx, txn_id)
        check_room(held, len(joining))
        expires_at_ms = self._open_until_ms(tx, txn_id, held, now_ms)
        record = RECORDS.get(tx, txn_id)
        if self.lead is not None and self.lead.is_clustered:
            if not rules.are_enlisted(record, joining):
                raise EnlistedAtLeader(self.lead, txn_id, expires_at_ms, [*held, *joining])
        elif record is None or record.expires_at_ms < expires_at_ms:
            # No lease of these ends by itself: the sweep of what is due ends them if no client decides.
            self._put_pending(tx, txn_id, record or TxnRecord(), expires_at_ms, now_ms)
        self.keep(tx, txn_id, last_lease_ends_ms(tx, txn_id, held), held, now_ms)

    def _open_until_ms(self, tx: Transaction, txn_id: str, held: Sequence[Member], now_ms: int) -> int:
        """When a transaction ends that may still be joined; one that holds no lease begins its time anew."""
        record, marker = self.known(tx, txn_id, now_ms)
        decided = record or marker
        if decided is not None and rules.state_of(decided) is not State.PENDING:
            raise TxnConflict(f"the transaction is decided: {decided.state}; begin another one")
        if decided is None and self._minted.has(txn_id):
            # Whoever was told this id was told so with a lease or a delivery on this store. Its end leaves no marker.
            raise TxnConflict("the lease or delivery of this transaction has ended; begin another one")
        leased_ms = last_lease_ends_ms(tx, txn_id, held)
        ends_ms = (
            max(record.expires_at_ms, leased_ms) if record is not None else end_ms(now_ms, self._record_ttl_s)
        )
        if ends_ms <= now_ms:
            raise TxnConflict("the time of the transaction is over; begin another one")
        return ends_ms if leased_ms > now_ms else max(ends_ms, end_ms(now_ms, self._record_ttl_s))

    def _put_pending(
        self, tx: Transaction, txn_id: str, record: TxnRecord, expires_at_ms: int, now_ms: int
    ) -> None:
        record.state = State.PENDING
        record.created_at_ms = record.created_at_ms or now_ms
        record.updated_at_ms = now_ms
        record.expires_at_ms = expires_at_ms
        self._put(tx, txn_id, record, due_at_ms=expires_at_ms)

    def keep(
        self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member], now_ms: int
    ) -> int:
        if self.lead is not None and self.lead.is_clustered and expires_at_ms:
            record = RECORDS.get(tx, txn_id)
            if record is not None and record.expires_at_ms < expires_at_ms:
                raise EnlistedAtLeader(self.lead, txn_id, expires_at_ms, members)
        last_ms = expires_at_ms
        for manager in self._managers:
            last_ms = max(last_ms, manager.keep(tx, txn_id, expires_at_ms, members, now_ms))
        return last_ms

    # -- what decisions by name are made of

    def known(self, tx: Transaction, txn_id: str, now_ms: int) -> tuple[TxnRecord | None, TxnMarker | None]:
        """What is recorded, with all members that hold a lease of the transaction; without both, its marker."""
        _prefetch_known(tx, txn_id)
        record = RECORDS.get(tx, txn_id)
        held = held_members(tx, txn_id)
        if record is None and held:
            record = TxnRecord()
        if record is not None:
            rules.hold(record, self.located(held))
            return record, None
        marker = MARKERS.get(tx, txn_id)
        is_over = marker is not None and marker.expires_at_ms <= now_ms
        return None, None if is_over else marker

    def follow(
        self, tx: Transaction, txn_id: str, record: TxnRecord, decision: Decision, now_ms: int
    ) -> State:
        """A lease ends: what is decided already counts, not what its holder asks for."""
        is_decided = rules.state_of(record) is not State.PENDING
        if not is_decided:
            record.state = decision.value
        return self.advance(tx, txn_id, record, now_ms, is_decided=is_decided)

    def advance(
        self, tx: Transaction, txn_id: str, record: TxnRecord, now_ms: int, *, is_decided: bool
    ) -> State:
        """Store a record as it is now: a pending one waits, a decided one is applied here and goes when all is.

        `is_decided`: it was decided before, so no caller is left to be told of a message whose lease expired meanwhile.
        """
        record.created_at_ms = record.created_at_ms or now_ms
        record.updated_at_ms = now_ms
        state = rules.state_of(record)
        if state.decision is None:
            record.expires_at_ms = record.expires_at_ms or end_ms(now_ms, self._record_ttl_s)
            record.expires_at_ms = min(record.expires_at_ms, end_ms(now_ms, RECORD_TTL_S_MAX))
            # All who hold a lease of it belong to it from now on.
            self.keep(tx, txn_id, 0, held_members(tx, txn_id), now_ms)
            self._put(tx, txn_id, record, due_at_ms=record.expires_at_ms)
            return state
        if not is_decided:
            record.expires_at_ms = max(record.expires_at_ms, end_ms(now_ms, self._retention_s))
            self.metrics.recorded(tx, state)
        members = rules.local_members(record, self.backend_hash)
        if members:
            if is_decided:
                members = self._without_expired(tx, txn_id, members, now_ms)
            self.end(tx, txn_id, state.decision, members, now_ms)
            rules.mark_applied(record, self.backend_hash)
        self.finish(tx, txn_id, record, now_ms)
        return state

    def finish(self, tx: Transaction, txn_id: str, record: TxnRecord, now_ms: int) -> None:
        """Nothing but a marker is left of a decision that has reached all participants; any other is due again soon."""
        if rules.is_applied(record) or record.expires_at_ms < now_ms:
            self._mark(tx, txn_id, TxnMarker(state=record.state, term=record.term), now_ms)
            delete_record(tx, txn_id, record)
        else:
            self.postpone(tx, txn_id, record, now_ms)

    def postpone(self, tx: Transaction, txn_id: str, record: TxnRecord, now_ms: int) -> None:
        record.tries += 1
        self._put(tx, txn_id, record, due_at_ms=now_ms + _pause_ms(txn_id, record.tries))

    def _without_expired(
        self, tx: Transaction, txn_id: str, members: Sequence[Member], now_ms: int
    ) -> list[Member]:
        """Deliveries whose time is over go back to their queue, with either decision."""
        expired = [
            member
            for member in members
            if message_place(member)
            and leased_until_ms(tx, txn_id, member) <= now_ms
            and not is_sent(tx, txn_id, member)
        ]
        if expired:
            self.end(tx, txn_id, Decision.ROLLBACK, expired, now_ms)
        return [member for member in members if member not in expired]

    def located(self, members: Sequence[Member]) -> list[Participant]:
        return [Participant(member, self.backend_hash) for member in members]

    def _put(self, tx: Transaction, txn_id: str, record: TxnRecord, *, due_at_ms: int) -> None:
        if failpoint.ARMED and failpoint.hit("txn.record"):
            return
        put_record(tx, txn_id, record, due_at_ms=due_at_ms)
        tx.after_commit(lambda _: self.on_due(due_at_ms))

    def _mark(self, tx: Transaction, txn_id: str, marker: TxnMarker, now_ms: int) -> None:
        if self._retention_s:
            marker.expires_at_ms = end_ms(now_ms, self._retention_s)
            put_marker(tx, txn_id, marker)


def _prefetch_known(tx: Transaction, txn_id: str) -> None:
    tx.prefetch(lambda: [RECORDS.key(txn_id), MARKERS.key(txn_id)], lambda: [held_bounds(txn_id)])


def _pause_ms(txn_id: str, tries: int) -> int:
    """Spread over half of it by the transaction: what failed together does not come back together, and a function that
    runs again gets the same pause."""
    pause_ms = min(PAUSE_MS_MAX, PAUSE_MS_BASE << min(tries, TRIES_EARLY))
    if tries > TRIES_EARLY:
        pause_ms = min(PAUSE_MS_LATE_MAX, PAUSE_MS_MAX * (tries - TRIES_EARLY))
    return pause_ms - pause_ms // 2 * (crc32(f"{txn_id}/{tries}".encode()) % 1000) // 1000
