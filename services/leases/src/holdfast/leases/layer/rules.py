"""The rules of leases: plain functions of a storage transaction, what is asked for, and the time.

No clock, no waiting, no I/O: what a function does not read through its transaction it is given. `decider` ends the
transaction that a lease belongs to.

    FREE --grant--> HELD --renew, keep--> HELD
    HELD --release, expiry: the transaction is decided, apply clears the lease--> FREE, its token stays
    HELD --withdraw: its holder was never told--> FREE
"""

from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.common.clock import end_ms
from holdfast.leases.layer.errors import (
    AlreadyExists,
    FencingMismatch,
    KeyRefusal,
    LeaseExpired,
    LeaseRequired,
    MissingTxn,
    TxnMismatch,
    Waiting,
)
from holdfast.leases.layer.grant import AcquireParams, Claim, Renewal
from holdfast.leases.layer.records import HELD, LEASES, Current, held_bounds, held_members
from holdfast.leases.layer.records_pb2 import Lease, LeaseFloor
from holdfast.state.layer.records import DOCUMENTS
from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.port import Transaction
from holdfast.storage.tables import Table
from holdfast.txn.layer.lifetime import is_message_there, message_of_state
from holdfast.txn.layer.port import Decider, Decision, LeaseHeld, Member

FLOORS: Final = Table("leasefloor", LeaseFloor)
FIRST_OF_MESSAGE: Final = 1
MESSAGE_TOKENS_MAX: Final = 1 << 20


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
    tx.prefetch(lambda: first_reads(member), lambda: [held_bounds(ids.txn_id)] if params.txn_id else [])
    lease = LEASES.get(tx, *member)
    if lease is None:
        document, first_token = read_new(tx, member)
    else:
        document, first_token = DOCUMENTS.get(tx, *member), 0
    current = current_of(document)
    if params.is_create_only and (lease is not None or document is not None):
        raise AlreadyExists("key already exists", current)
    freed: Sequence[Member] = ()
    if lease is not None and lease.lease_id:
        if lease.expires_at_ms > now_ms:
            raise _held(tx, member, lease, current, now_ms)
        freed = end(tx, member, lease, Decision.ROLLBACK, now_ms, decider)
        lease = LEASES.get(tx, *member)
    expires_at_ms = end_ms(now_ms, params.ttl_s)
    is_member = False
    if params.txn_id:
        # Every member of the transaction belongs to it from now on, also the key that minted its id.
        members = held_members(tx, ids.txn_id)
        expires_at_ms = decider.join(tx, ids.txn_id, expires_at_ms, members, member, now_ms)
        is_member = member in members
    granted = Lease(
        lease_id=ids.lease_id,
        owner=params.owner,
        txn_id=ids.txn_id,
        is_explicit=bool(params.txn_id),
        expires_at_ms=expires_at_ms,
        fencing_token=lease.fencing_token + 1 if lease is not None else first_token,
        updated_at_s=now_ms // 1000,
        is_hidden=document is not None and document.is_hidden,
    )
    LEASES.put(tx, granted, *member)
    held = HELD.key(ids.txn_id, *member)
    if is_member:
        tx.put(held, b"")
    else:
        tx.put_fresh(held, b"")  # The id was minted for this grant, or all of its members are known.
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
        end(tx, member, lease, Decision.ROLLBACK, now_ms, decider)
    granted = Lease(
        lease_id=ids.lease_id,
        owner=owner,
        txn_id=ids.txn_id,
        is_explicit=is_explicit,
        expires_at_ms=expires_at_ms,
        fencing_token=lease.fencing_token + 1 if lease is not None else FIRST_OF_MESSAGE,
        updated_at_s=now_ms // 1000,
        is_hidden=True,  # As the state of a message is until its holder shows it.
    )
    LEASES.put(tx, granted, *member)
    tx.put(HELD.key(granted.txn_id, *member), b"")
    return granted


# -- keepalive


def renew(tx: Transaction, renewal: Renewal, now_ms: int) -> Lease:
    """Move the end of one lease, if the caller holds it."""
    lease = checked(tx, renewal.member, renewal.claim, now_ms)
    lease.expires_at_ms = end_ms(now_ms, renewal.ttl_s)
    lease.updated_at_s = now_ms // 1000
    LEASES.put(tx, lease, *renewal.member)
    return lease


def keep_transaction(
    tx: Transaction, txn_id: str, expires_at_ms: int, renewed: Set[Member], now_ms: int, decider: Decider
) -> None:
    """The other leases of the transaction live until then at least."""
    others = [other for other in held_members(tx, txn_id) if other not in renewed]
    decider.keep(tx, txn_id, expires_at_ms, others, now_ms)


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
    return end(tx, member, lease, decision, now_ms, decider)


def end(
    tx: Transaction, member: Member, lease: Lease, decision: Decision, now_ms: int, decider: Decider
) -> Sequence[Member]:
    """Decide for the whole transaction; its keys are free afterwards."""
    if not lease.is_explicit:
        decider.end(tx, lease.txn_id, decision, [member], now_ms)
        return [member]
    members = held_members(tx, lease.txn_id)
    decider.decide(tx, lease.txn_id, decision, members, now_ms)
    return members


def end_if_over(tx: Transaction, member: Member, now_ms: int, decider: Decider) -> Sequence[Member]:
    lease = LEASES.get(tx, *member)
    if lease is None or not lease.lease_id or lease.expires_at_ms > now_ms:
        return ()
    return end(tx, member, lease, Decision.ROLLBACK, now_ms, decider)


def withdraw(tx: Transaction, member: Member, lease_id: str, now_ms: int) -> bool:
    """Clear this lease and nothing else, as if it had not been granted; whether it was still there."""
    lease = LEASES.get(tx, *member)
    if lease is None or lease.lease_id != lease_id:
        return False
    LEASES.put(tx, cleared(lease, now_ms), *member)
    tx.delete(HELD.key(lease.txn_id, *member))
    return True


# -- what a decision does


def apply(tx: Transaction, txn_id: str, members: Sequence[Member], now_ms: int) -> None:
    """The leases of the transaction end, with either decision."""
    for member in members:
        lease = LEASES.get(tx, *member)
        if lease is not None and lease.lease_id and lease.txn_id == txn_id:
            LEASES.put(tx, cleared(lease, now_ms), *member)
        tx.delete(HELD.key(txn_id, *member))


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


# -- fencing tokens over the end of a key: what a key leaves when it is forgotten, and where the next one begins
#
# The tokens of one (namespace, key) only ever rise, however often the key is forgotten in between:
#
#     a key with a lease record       its token + 1; the record is the memory
#     a forgotten key                 the floor of its namespace is at least its last token, by the very commit that forgets it
#     a key without a lease record    floor + 1; the floor is read in the transaction that grants, so a key that comes and
#                                     goes between that read and the commit is a conflict
#
# The state of a message, `q/<queue>/state/<id>`, is forgotten with its message, many times a second. A floor that all of
# them raise would make each of those commits a conflict for every new key of the namespace, so their tokens are kept apart
# by a number: while the message is there (its id is new, and nothing forgets the key before the message) they begin with
# 1 and need no floor up to MESSAGE_TOKENS_MAX; without the message such a key begins above that.


def first_reads(member: Member) -> list[bytes]:
    """What a grant reads of a key, whether it has a lease record or not."""
    return [LEASES.key(*member), DOCUMENTS.key(*member), _floor_key(member.namespace)]


def read_new(tx: Transaction, member: Member) -> tuple[Document | None, int]:
    """The document of a key that has no lease record, and the token of its first grant; `first_reads` has both."""
    document = DOCUMENTS.get(tx, *member)
    floor = tx.get(_floor_key(member.namespace))
    forgotten = 0 if floor is None else FLOORS.decode(floor).fencing_token
    place = message_of_state(member) if member.key.startswith("q/") else None
    if place is None:
        return document, forgotten + 1
    if is_message_there(tx, place):
        return document, FIRST_OF_MESSAGE
    return document, max(forgotten, MESSAGE_TOKENS_MAX) + 1


@lru_cache(maxsize=1024)
def _floor_key(namespace: str) -> bytes:
    return FLOORS.key(namespace)


def forget_leases(tx: Transaction, leases: Mapping[Member, Lease]) -> None:
    """These records go, and with them all that is known of their keys but the highest token."""
    highest: dict[str, int] = {}
    for member, lease in leases.items():
        LEASES.delete(tx, *member)
        if message_of_state(member) is None or lease.fencing_token > MESSAGE_TOKENS_MAX:
            highest[member.namespace] = max(highest.get(member.namespace, 0), lease.fencing_token)
    for namespace, token in highest.items():
        floor = FLOORS.get(tx, namespace)
        if floor is None or floor.fencing_token < token:
            FLOORS.put(tx, LeaseFloor(fencing_token=token), namespace)


# -- claims: whether a caller holds the lease, checked in the very transaction that acts on it


def checked(tx: Transaction, member: Member, claim: Claim, now_ms: int) -> Lease:
    """The lease, if the caller holds it; the refusal tells version and ETag of the key."""
    lease = LEASES.get(tx, *member)
    try:
        return check_claim(claim, lease, now_ms)
    except KeyRefusal as refusal:
        refusal.current = current_of(DOCUMENTS.get(tx, *member))
        raise


def cleared(lease: Lease, now_ms: int) -> Lease:
    """Held by no client, but its token stays: the next holder's must be higher."""
    return Lease(
        fencing_token=lease.fencing_token,
        updated_at_s=now_ms // 1000,
        is_expired=lease.expires_at_ms <= now_ms,
    )


def current_of(document: Document | None) -> Current:
    """Version and ETag of a key whose document this is."""
    return Current() if document is None else Current(document.version, document.etag)


def check_claim(claim: Claim, lease: Lease | None, now_ms: int, current: Current | None = None) -> Lease:
    """The lease, if it is the claimed one and lives; else the refusal, in the order clients rely on."""
    if lease is None or not lease.lease_id or lease.lease_id != claim.lease_id:
        raise LeaseRequired("active lease required", current)
    if lease.expires_at_ms <= now_ms:
        raise LeaseExpired("lease expired", current)
    if lease.fencing_token != claim.fencing_token:
        raise FencingMismatch("fencing token mismatch", current)
    if claim.txn_id is not None and lease.txn_id != claim.txn_id:
        if not claim.txn_id:
            raise MissingTxn("transaction id required", current)
        raise TxnMismatch("transaction mismatch", current)
    return lease
