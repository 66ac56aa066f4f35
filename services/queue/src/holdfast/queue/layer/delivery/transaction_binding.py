"""What a delivery is tied to: the transaction it belongs to, and the lease on its state.

A message in a transaction stands among its members as `q/<queue>/msg/<id>`, its state as `q/<queue>/state/<id>`, which
is an ordinary key with an ordinary lease. A delivery that minted its transaction id stands there too, as the only one
(but for its state) until another call names that id; from then on it is enlisted.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from holdfast.leases.layer.grant import Claim
from holdfast.leases.layer.records import LEASES, held_members
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.leases.layer.rules import Ids
from holdfast.queue.layer.errors import MetadataChanged, StateNotFound
from holdfast.queue.layer.message.records import member_of_message, member_of_state
from holdfast.queue.layer.message.types import LeaseClaim, QueueAddress, StateClaim
from holdfast.queue.layer.records_pb2 import MessageState
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Decider, Decision, Leaser, Member, MessageStates


class Dependencies(NamedTuple):
    """The other services, as the queue needs them."""

    decider: Decider
    leaser: Leaser
    message_states: MessageStates


def state_etag(message_id: str) -> str:
    """A message has one state for its whole life, so this never changes."""
    return f"s{message_id}"


class TransactionBinding:
    """Every method adds to the storage transaction that it is given."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._decider, self._leaser, self._message_states = dependencies

    # -- transactions

    def join(
        self,
        tx: Transaction,
        address: QueueAddress,
        message_id: str,
        txn_id: str,
        expires_at_ms: int,
        now_ms: int,
    ) -> int:
        """A consumer dequeues within the transaction; returns until when all its members live."""
        members = held_members(tx, txn_id)
        message = member_of_message(address, message_id)
        return self._decider.join(tx, txn_id, expires_at_ms, members, message, now_ms)

    def decide(self, tx: Transaction, txn_id: str, decision: Decision, now_ms: int) -> None:
        """For all members that the transaction still has."""
        members = held_members(tx, txn_id)
        self._decider.decide(tx, txn_id, decision, members, now_ms)
        tx.after_commit(lambda _: self._leaser.freed(_keys_among(members)))

    def abandon(self, tx: Transaction, txn_id: str, now_ms: int) -> Callable[[], Awaitable[None]] | None:
        """Roll back all members that the transaction still has; the rest of it after the commit."""
        members = held_members(tx, txn_id)
        rest = self._decider.abandon(tx, txn_id, members, now_ms)
        tx.after_commit(lambda _: self._leaser.freed(_keys_among(members)))
        return rest

    def is_committed(self, tx: Transaction, txn_id: str) -> bool:
        """Whether a transaction of the caller's has ended well: then all its messages are acked."""
        return bool(txn_id) and self._decider.decided(tx, txn_id) is Decision.COMMIT

    def keep(self, tx: Transaction, txn_id: str, expires_at_ms: int, but: Member, now_ms: int) -> None:
        """The others of the transaction live until then at least."""
        others = [member for member in held_members(tx, txn_id) if member != but]
        self._decider.keep(tx, txn_id, expires_at_ms, others, now_ms)

    # -- state

    def grant_state(
        self,
        tx: Transaction,
        address: QueueAddress,
        message_id: str,
        state: MessageState,
        lease_id: str,
        now_ms: int,
    ) -> Lease:
        """LeaseHeld if another caller holds the key."""
        member = member_of_state(address, message_id)
        self._message_states.open_message_state(tx, member)
        return self._leaser.grant(
            tx,
            member,
            state.owner,
            Ids(lease_id, state.txn_id),
            state.expires_at_ms,
            now_ms,
            is_explicit=state.is_enlisted,
        )

    def release_state(
        self,
        tx: Transaction,
        address: QueueAddress,
        message_id: str,
        state: MessageState,
        decision: Decision,
        now_ms: int,
    ) -> None:
        """The delivery is over; what it staged of its state is kept or dropped. An enlisted one follows its transaction."""
        if not state.has_state or state.is_enlisted:
            return
        member = member_of_state(address, message_id)
        lease = LEASES.get(tx, *member)
        if lease is not None and lease.lease_id and lease.txn_id == state.txn_id:
            self._decider.end(tx, state.txn_id, decision, [member], now_ms)
            tx.after_commit(lambda _: self._leaser.freed([member]))

    def forget_state(
        self, tx: Transaction, address: QueueAddress, message_id: str, state: MessageState, now_ms: int
    ) -> None:
        """The message goes for ever, and its state with it."""
        if state.has_state:
            member = member_of_state(address, message_id)
            self._message_states.forget_message_state(tx, member, state.txn_id, now_ms)
            self._leaser.forget(tx, member)

    def extend_state(
        self, tx: Transaction, claim: LeaseClaim, sent: StateClaim, expires_at_ms: int, now_ms: int
    ) -> None:
        member = member_of_state(claim.address, claim.message_id)
        lease = LEASES.get(tx, *member)
        if lease is None or not lease.lease_id:
            raise StateNotFound("the message was delivered without its state")
        token = sent.fencing_token or lease.fencing_token
        self._leaser.extend(tx, member, Claim(sent.lease_id, token, None), expires_at_ms, now_ms)


def check_state_etag(claim: LeaseClaim) -> None:
    sent = claim.state
    if sent is not None and sent.etag and sent.etag != state_etag(claim.message_id):
        raise MetadataChanged("state metadata changed", state_etag(claim.message_id))


def _keys_among(members: Sequence[Member]) -> list[Member]:
    return [member for member in members if "/msg/" not in member.key or not member.key.startswith("q/")]
