"""The rules of decisions: who takes part, and which decision counts. Pure; records and time are arguments.

nothing --pending--> pending --commit | rollback, or its time is over--> decided --applied everywhere--> marker
   '------------------------commit | rollback------------------------------^

What is decided never changes; a decision that comes later is answered with the one that is recorded.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from holdfast.txn.layer.errors import TcTermRequired, TcTermStale, TxnConflict
from holdfast.txn.layer.port import MEMBERS_MAX, Decision, Member, TooManyParticipants
from holdfast.txn.layer.records_pb2 import TxnMarker, TxnParticipant, TxnRecord


class State(StrEnum):
    """How far a transaction is."""

    PENDING = "pending"
    COMMIT = "commit"
    ROLLBACK = "rollback"

    @property
    def decision(self) -> Decision | None:
        return None if self is State.PENDING else Decision(self.value)


class Participant(NamedTuple):
    """A key or a message, and the island it lies on; an empty hash: not known."""

    member: Member
    backend_hash: str = ""


class Ask(NamedTuple):
    """What a request wants to have recorded."""

    state: State
    participants: Sequence[Participant] = ()
    term: int = 0
    expires_at_ms: int = 0


def state_of(record: TxnRecord | TxnMarker) -> State:
    return State(record.state or "pending")


def recorded(record: TxnRecord | None, marker: TxnMarker | None, ask: Ask) -> TxnRecord | TxnMarker:
    """The record to store, or the marker if all is over. Raises when terms forbid what is asked for."""
    if record is None and marker is not None:
        _check_terms(marker, ask)
        _check_conflict(marker, ask)
        return marker
    merged = TxnRecord()
    if record is not None:
        merged.CopyFrom(record)
    merge_participants(merged, ask.participants)
    if ask.state is State.PENDING and len(merged.participants) > MEMBERS_MAX:
        raise TooManyParticipants(f"a transaction has at most {MEMBERS_MAX} participants")
    merged.expires_at_ms = max(merged.expires_at_ms, ask.expires_at_ms)
    _check_terms(merged, ask)
    if state_of(merged) is not State.PENDING:
        _check_conflict(merged, ask)
        return merged
    merged.term = max(merged.term, ask.term)
    merged.state = ask.state
    return merged


def is_enlisted(record: TxnRecord | None, member: Member) -> bool:
    return record is not None and any((one.namespace, one.key) == member for one in record.participants)


def are_enlisted(record: TxnRecord | None, members: Sequence[Member]) -> bool:
    known = set() if record is None else {(one.namespace, one.key) for one in record.participants}
    return known.issuperset(members)


def _check_terms(known: TxnRecord | TxnMarker, ask: Ask) -> None:
    if known.term > 0 and ask.term == 0:
        raise TcTermRequired(f"the transaction was decided under term {known.term}; send tc_term")
    if 0 < ask.term < known.term:
        raise TcTermStale(f"term {ask.term} is below the term {known.term} of the transaction")


def _check_conflict(known: TxnRecord | TxnMarker, ask: Ask) -> None:
    if state_of(known) is not ask.state and (known.term > 0 or ask.term > 0):
        raise TxnConflict(f"the transaction is decided: {known.state}")


def merge_participants(record: TxnRecord, participants: Iterable[Participant]) -> None:
    """Add those that are not there yet; sorted by island, namespace and key, no doubles."""
    merged: dict[Member, list[TxnParticipant]] = {}
    for known in record.participants:
        merged.setdefault(Member(known.namespace, known.key), []).append(known)
    for participant in participants:
        _merge(merged.setdefault(participant.member, []), participant)
    ordered = sorted(
        (one for same in merged.values() for one in same),
        key=lambda one: (one.backend_hash, one.namespace, one.key),
    )
    # A copy by hand: what the list holds must not be moved into itself.
    kept = TxnRecord(participants=ordered)
    del record.participants[:]
    record.participants.extend(kept.participants)


def _merge(same: list[TxnParticipant], participant: Participant) -> None:
    """One member on two islands is two participants, as soon as both are named."""
    (namespace, key), backend_hash = participant
    for known in same:
        if not known.backend_hash or not backend_hash or known.backend_hash == backend_hash:
            known.backend_hash = known.backend_hash or backend_hash
            return
    same.append(TxnParticipant(namespace=namespace, key=key, backend_hash=backend_hash))


def local_members(record: TxnRecord, backend_hash: str) -> list[Member]:
    """Those of this island that the decision has not reached."""
    return [
        Member(one.namespace, one.key)
        for one in record.participants
        if not one.is_applied and one.backend_hash in ("", backend_hash)
    ]


def hold(record: TxnRecord, participants: Sequence[Participant]) -> None:
    """These hold a lease of the transaction now: they are part of it, even if a decision reached them."""
    merge_participants(record, participants)
    held = {(one.member.namespace, one.member.key, one.backend_hash) for one in participants}
    for one in record.participants:
        if (one.namespace, one.key, one.backend_hash) in held:
            one.is_applied = False


def mark_applied(record: TxnRecord, backend_hash: str) -> None:
    """The decision has reached all participants of an island."""
    for one in record.participants:
        if one.backend_hash in ("", backend_hash):
            one.is_applied = True


def mark_delivered(record: TxnRecord, delivered: TxnRecord, islands: Sequence[str]) -> None:
    """The decision has reached what `delivered` names of these islands; members that joined later are not among them."""
    reached = {
        (one.namespace, one.key, one.backend_hash)
        for one in delivered.participants
        if one.backend_hash in islands
    }
    for one in record.participants:
        if (one.namespace, one.key, one.backend_hash) in reached:
            one.is_applied = True


def is_applied(record: TxnRecord) -> bool:
    return all(one.is_applied for one in record.participants)
