"""The steps of a transaction: plain functions of a storage transaction, what is asked for, and the time.

No clock, no waiting, no I/O: what a function does not read through its transaction it is given. `coordinator` adds the
writes of every layer to the same transaction.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.leases.layer.records import held_members
from holdfast.storage.port import Transaction
from holdfast.txn.layer import rules
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.errors import TxnNotFound, TxnPending
from holdfast.txn.layer.lifetime import last_lease_ends_ms
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.records import RECORDS, Due, put_record
from holdfast.txn.layer.records_pb2 import TxnMarker, TxnRecord
from holdfast.txn.layer.rules import Ask, State


class Outcome(NamedTuple):
    """What is recorded after a step, the record if it is not over yet, and the keys that the step has freed."""

    state: State
    record: TxnRecord | None = None
    freed: Sequence[Member] = ()


def decide(tx: Transaction, txn_id: str, ask: Ask, now_ms: int, coordinator: Coordinator) -> Outcome:
    """Record what is asked for, if it may be, and apply it."""
    record, marker = coordinator.known(tx, txn_id, now_ms)
    found = rules.recorded(record, marker, ask)
    if isinstance(found, TxnMarker):
        return Outcome(rules.state_of(found))
    is_decided = record is not None and rules.state_of(record) is not State.PENDING
    return _advance(tx, txn_id, found, now_ms, coordinator, is_decided=is_decided)


def end_with_lease(
    tx: Transaction, txn_id: str, decision: Decision, now_ms: int, coordinator: Coordinator
) -> Outcome:
    """A lease of the transaction ends; what is decided already counts."""
    record, marker = coordinator.known(tx, txn_id, now_ms)
    if record is None:
        return Outcome(State(decision.value) if marker is None else rules.state_of(marker))
    freed = rules.local_members(record, coordinator.backend_hash)
    return Outcome(coordinator.follow(tx, txn_id, record, decision, now_ms), record, freed)


def apply(tx: Transaction, txn_id: str, now_ms: int, coordinator: Coordinator) -> Outcome:
    """Apply the recorded decision, whichever it is."""
    record, marker = coordinator.known(tx, txn_id, now_ms)
    if record is None:
        return _marked(marker)
    if rules.state_of(record) is State.PENDING:
        raise TxnPending("transaction decision not recorded")
    return _advance(tx, txn_id, record, now_ms, coordinator, is_decided=True)


def replay(
    tx: Transaction, txn_id: str, now_ms: int, coordinator: Coordinator, *, term: int, may_end: bool
) -> Outcome:
    """Apply the recorded decision again; with `may_end`, a pending transaction whose time is over is rolled back."""
    record, marker = coordinator.known(tx, txn_id, now_ms)
    if record is None:
        return _marked(marker)
    is_decided = rules.state_of(record) is not State.PENDING
    if not is_decided:
        if not may_end or lives_until_ms(tx, txn_id, record) > now_ms:
            return Outcome(State.PENDING)
        record.state = State.ROLLBACK
    record.term = max(record.term, term)
    return _advance(tx, txn_id, record, now_ms, coordinator, is_decided=is_decided)


def overdue(tx: Transaction, txn_id: str, now_ms: int, coordinator: Coordinator) -> list[Member] | None:
    """The members on this store of a pending transaction whose time is over; None: it is not."""
    record, _ = coordinator.known(tx, txn_id, now_ms)
    if record is None or rules.state_of(record) is not State.PENDING:
        return None
    is_over = lives_until_ms(tx, txn_id, record) <= now_ms
    return rules.local_members(record, coordinator.backend_hash) if is_over else None


def postpone(tx: Transaction, due: Due, now_ms: int, coordinator: Coordinator) -> TxnRecord | None:
    """What is due and not this node's to end: it is due again later. None: there is nothing to do yet."""
    record = _due_record(tx, due)
    if record is None:
        return None
    if rules.state_of(record) is State.PENDING and _still_lives(tx, due.txn_id, record, now_ms):
        return None
    coordinator.postpone(tx, due.txn_id, record, now_ms)
    return record


def resume(tx: Transaction, due: Due, now_ms: int, coordinator: Coordinator, *, term: int) -> Outcome:
    """Go on with what is due. A stale entry of the order is deleted."""
    record = _due_record(tx, due)
    if record is None:
        return Outcome(State.PENDING)
    is_decided = rules.state_of(record) is not State.PENDING
    if not is_decided:
        if _still_lives(tx, due.txn_id, record, now_ms):
            return Outcome(State.PENDING)
        record.state = State.ROLLBACK
        tx.after_commit(lambda _: coordinator.metrics.swept("pending_expired"))
    record.term = max(record.term, term)
    rules.hold(record, coordinator.located(held_members(tx, due.txn_id)))
    return _advance(tx, due.txn_id, record, now_ms, coordinator, is_decided=is_decided)


def finish(
    tx: Transaction,
    txn_id: str,
    delivered: TxnRecord,
    islands: Sequence[str],
    now_ms: int,
    coordinator: Coordinator,
) -> TxnRecord | None:
    """Mark what the decision has reached; the record that is left, if any."""
    record = RECORDS.get(tx, txn_id)
    if record is None:
        return None
    rules.mark_delivered(record, delivered, islands)
    coordinator.finish(tx, txn_id, record, now_ms)
    return record


def lives_until_ms(tx: Transaction, txn_id: str, record: TxnRecord) -> int:
    """A pending transaction lives as long as the last lease of it, or as it was told to."""
    held = held_members(tx, txn_id)
    return max(record.expires_at_ms, last_lease_ends_ms(tx, txn_id, held))


# -- small parts


def _advance(
    tx: Transaction,
    txn_id: str,
    record: TxnRecord,
    now_ms: int,
    coordinator: Coordinator,
    *,
    is_decided: bool,
) -> Outcome:
    members = rules.local_members(record, coordinator.backend_hash)
    state = coordinator.advance(tx, txn_id, record, now_ms, is_decided=is_decided)
    return Outcome(state, record, () if state is State.PENDING else members)


def _due_record(tx: Transaction, due: Due) -> TxnRecord | None:
    record = RECORDS.get(tx, due.txn_id)
    if record is not None and record.due_at_ms == due.at_ms:
        return record
    tx.delete(due.key)
    return None


def _still_lives(tx: Transaction, txn_id: str, record: TxnRecord, now_ms: int) -> bool:
    """If so, the record is due again when that ends."""
    until_ms = lives_until_ms(tx, txn_id, record)
    if until_ms <= now_ms:
        return False
    put_record(tx, txn_id, record, due_at_ms=until_ms)
    return True


def _marked(marker: TxnMarker | None) -> Outcome:
    if marker is None:
        raise TxnNotFound("no such transaction")
    return Outcome(rules.state_of(marker))
