"""The rules of leases: plain functions of a storage transaction, what is asked for, and the time.

No clock, no waiting, no I/O: what a function does not read through its transaction it is given. `decider` ends the
transaction that a lease belongs to.

    FREE --grant--> HELD --renew, keep--> HELD
    HELD --release, expiry: the transaction is decided, apply clears the lease--> FREE, its token stays
    HELD --withdraw: its holder was never told--> FREE
"""

from collections.abc import Sequence, Set
from typing import NamedTuple

from holdfast.common.clock import end_ms
from holdfast.leases.layer.claim import (
    Claim,
    Current,
    FencingMismatch,
    KeyRefusal,
    LeaseExpired,
    LeaseRequired,
    check_claim,
)
from holdfast.leases.layer.errors import AlreadyExists, Waiting
from holdfast.leases.layer.floor import FIRST_OF_MESSAGE, first_reads, read_new
from holdfast.leases.layer.grant import AcquireParams, Renewal
from holdfast.leases.layer.records import LEASES, held_key, held_members
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.state.layer.records import DOCUMENTS
from holdfast.storage.keys import next_key
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Decider, Decision, LeaseHeld, Member


class Ids(NamedTuple):
    """Minted by the caller: a function that runs again must name the same lease."""

    lease_id: str
    txn_id: str


class Granted(NamedTuple):
    lease: Lease
    current: Current
    freed: Sequence[Member]
    """Keys of an expired transaction that ended on the way."""


# -- acquire


def grant(tx: Transaction, params: AcquireParams, ids: Ids, now_ms: int, decider: Decider) -> Granted:
    """The lease; Waiting if another holder has it, AlreadyExists for a create-only call on a key that exists."""
    member = params.member
    tx.prefetch(lambda: first_reads(member))
    lease = LEASES.get(tx, *member)
    if lease is None:
        document, first_token = read_new(tx, member)
    else:
        document, first_token = DOCUMENTS.get(tx, *member), 0
    current = Current.of(document)
    if params.is_create_only and (lease is not None or document is not None):
        raise AlreadyExists("key already exists", current)
    freed: Sequence[Member] = ()
    if lease is not None and lease.lease_id:
        if lease.expires_at_ms > now_ms:
            raise _held(tx, member, lease, current, now_ms)
        freed = end(tx, member, lease, Decision.ROLLBACK, decider)
        lease = LEASES.get(tx, *member)
    expires_at_ms = end_ms(now_ms, params.ttl_s)
    if params.txn_id:
        # Everybody in the transaction belongs to it from now on, also the key that minted its id.
        members = held_members(tx, ids.txn_id)
        expires_at_ms = decider.join(tx, ids.txn_id, expires_at_ms, members, member)
    granted = Lease(
        lease_id=ids.lease_id,
        owner=params.owner,
        txn_id=ids.txn_id,
        is_explicit=bool(params.txn_id),
        expires_at_ms=expires_at_ms,
        fencing_token=lease.fencing_token + 1 if lease is not None else first_token,
        updated_at_s=now_ms // 1000,
    )
    _put(tx, member, granted)
    return Granted(granted, current, freed)


def _held(tx: Transaction, member: Member, lease: Lease, current: Current, now_ms: int) -> Waiting:
    held = Waiting("lease already held", current, retry_after_s=(lease.expires_at_ms - now_ms) / 1000)
    record = tx.get(LEASES.key(*member))
    held.seen_revision = 0 if record is None else record.mod_revision
    return held


def grant_message_state(
    tx: Transaction,
    member: Member,
    owner: str,
    ids: Ids,
    expires_at_ms: int,
    now_ms: int,
    decider: Decider,
    *,
    is_explicit: bool,
) -> Lease:
    """An ordinary lease, on the state of a message that is there. LeaseHeld if another holder has it."""
    lease = LEASES.get(tx, *member)
    if lease is not None and lease.lease_id:
        if lease.expires_at_ms > now_ms:
            raise LeaseHeld(lease.expires_at_ms)
        end(tx, member, lease, Decision.ROLLBACK, decider)
    granted = Lease(
        lease_id=ids.lease_id,
        owner=owner,
        txn_id=ids.txn_id,
        is_explicit=is_explicit,
        expires_at_ms=expires_at_ms,
        fencing_token=lease.fencing_token + 1 if lease is not None else FIRST_OF_MESSAGE,
        updated_at_s=now_ms // 1000,
    )
    _put(tx, member, granted)
    return granted


def _put(tx: Transaction, member: Member, lease: Lease) -> None:
    LEASES.put(tx, lease, *member)
    tx.put(held_key(lease.txn_id, member), b"")


# -- keepalive


def renew(tx: Transaction, renewal: Renewal, now_ms: int) -> Lease:
    """Move the end of one lease, if the caller holds it."""
    lease = checked(tx, renewal.member, renewal.claim, now_ms)
    lease.expires_at_ms = end_ms(now_ms, renewal.ttl_s)
    lease.updated_at_s = now_ms // 1000
    LEASES.put(tx, lease, *renewal.member)
    return lease


def keep_transaction(
    tx: Transaction, txn_id: str, expires_at_ms: int, renewed: Set[Member], decider: Decider
) -> None:
    """The other leases of the transaction live until then at least."""
    others = [other for other in held_members(tx, txn_id) if other not in renewed]
    decider.keep(tx, txn_id, expires_at_ms, others)


def extend(tx: Transaction, member: Member, claim: Claim, expires_at_ms: int, now_ms: int) -> None:
    """Let the lease end then; refused as a renewal is."""
    lease = checked(tx, member, claim, now_ms)
    lease.expires_at_ms = expires_at_ms
    LEASES.put(tx, lease, *member)


# -- release


def release(
    tx: Transaction, member: Member, claim: Claim, decision: Decision, now_ms: int, decider: Decider
) -> Sequence[Member]:
    """End the lease and its transaction; the keys that are free then. A lease that is gone is no error: this may be the
    second try."""
    tx.prefetch(lambda: decider.reads(claim.txn_id or "", [member]))
    try:
        lease = checked(tx, member, claim, now_ms)
    except LeaseExpired:
        return end_if_over(tx, member, now_ms, decider)
    except (LeaseRequired, FencingMismatch):
        return ()
    return end(tx, member, lease, decision, decider)


def end(
    tx: Transaction, member: Member, lease: Lease, decision: Decision, decider: Decider
) -> Sequence[Member]:
    """Decide for the whole transaction; its keys are free afterwards."""
    if not lease.is_explicit:
        decider.end(tx, lease.txn_id, decision, [member])
        return [member]
    members = held_members(tx, lease.txn_id)
    decider.decide(tx, lease.txn_id, decision, members)
    return members


def end_if_over(tx: Transaction, member: Member, now_ms: int, decider: Decider) -> Sequence[Member]:
    lease = LEASES.get(tx, *member)
    if lease is None or not lease.lease_id or lease.expires_at_ms > now_ms:
        return ()
    return end(tx, member, lease, Decision.ROLLBACK, decider)


def withdraw(tx: Transaction, member: Member, lease_id: str, now_ms: int) -> bool:
    """Clear this lease and nothing else, as if it had not been granted; whether it was still there."""
    lease = lease_in_commit_order(tx, member)
    if lease is None or lease.lease_id != lease_id:
        return False
    LEASES.put(tx, cleared(lease, now_ms), *member)
    tx.delete(held_key(lease.txn_id, member))
    return True


def lease_in_commit_order(tx: Transaction, member: Member) -> Lease | None:
    """By a range, because that is compared in the order of commits: what is still on its way is not overlooked."""
    key = LEASES.key(*member)
    tx.range(key, next_key(key), limit=1, expected=True)
    return LEASES.get(tx, *member)


# -- what a decision does


def apply(tx: Transaction, txn_id: str, members: Sequence[Member], now_ms: int) -> None:
    """Whatever was decided, the leases of the transaction end."""
    for member in members:
        lease = LEASES.get(tx, *member)
        if lease is not None and lease.lease_id and lease.txn_id == txn_id:
            LEASES.put(tx, cleared(lease, now_ms), *member)
        tx.delete(held_key(txn_id, member))


def keep(
    tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member]
) -> tuple[int, dict[Member, int]]:
    """The leases of the transaction belong together and live until then at least: when the last of them ends, and the
    new ends of those that were moved."""
    last_ms = 0
    moved: dict[Member, int] = {}
    for member in members:
        lease = LEASES.get(tx, *member)
        if lease is None or lease.txn_id != txn_id:
            continue
        if not lease.is_explicit or lease.expires_at_ms < expires_at_ms:
            lease.is_explicit = True
            lease.expires_at_ms = max(lease.expires_at_ms, expires_at_ms)
            LEASES.put(tx, lease, *member)
            moved[member] = lease.expires_at_ms
        last_ms = max(last_ms, lease.expires_at_ms)
    return last_ms, moved


# -- small parts


def checked(tx: Transaction, member: Member, claim: Claim, now_ms: int) -> Lease:
    """The lease, if the caller holds it; the refusal tells version and ETag of the key."""
    lease = LEASES.get(tx, *member)
    try:
        return check_claim(claim, lease, now_ms)
    except KeyRefusal as refusal:
        refusal.current = Current.of(DOCUMENTS.get(tx, *member))
        raise


def cleared(lease: Lease, now_ms: int) -> Lease:
    """Held by no one, but its token stays: the next holder's must be higher."""
    return Lease(fencing_token=lease.fencing_token, updated_at_s=now_ms // 1000)
