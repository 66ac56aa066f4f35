"""The rules of deliveries: plain functions of a storage transaction, what is asked for, and the time.

No clock, no waiting, no ids of their own: what a function does not read through its transaction it is given. `binding`
leads to the transaction and the state of a delivery; what changed for the memory of the process is in `changes`.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from holdfast.queue.layer.delivery.freeing import free
from holdfast.queue.layer.delivery.transaction_binding import TransactionBinding, check_state_etag
from holdfast.queue.layer.errors import MessageLeaseMismatch, MessageNotFound
from holdfast.queue.layer.message import records, rules
from holdfast.queue.layer.message.changes import Changes
from holdfast.queue.layer.message.records import TAKEN, keys_of, member_of_message
from holdfast.queue.layer.message.types import (
    DequeueOrder,
    ExtendOrder,
    LeaseClaim,
    NackIntent,
    NackOrder,
    QueueAddress,
    Requeued,
)
from holdfast.queue.layer.records_pb2 import MessageState
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Decision


class Ids(NamedTuple):
    """Minted by the caller: a function that runs again must name the same delivery."""

    lease_id: str
    txn_id: str


class Known(NamedTuple):
    """A message as its claimer knows it."""

    message_id: str
    place: bytes
    revision: int
    state: MessageState


class Overtaken(Exception):
    """The record is not the one this process knew."""


class Nacked(NamedTuple):
    requeued: Requeued
    rest: Callable[[], Awaitable[None]] | None
    """To be awaited after the commit: the end of a transaction that another process decides on."""


def claim(
    tx: Transaction,
    address: QueueAddress,
    known: Known,
    order: DequeueOrder,
    ids: Ids,
    visibility_s: int,
    now_ms: int,
    binding: TransactionBinding,
) -> tuple[bytes, MessageState]:
    """A delivery in a transaction of the caller's or with its state: its place and its state. Overtaken if another
    claim was faster."""
    message_id, place, revision, before = known
    record = tx.get(place)
    if record is None or record.mod_revision != revision:
        raise Overtaken
    state = rules.claimed(
        before,
        lease_id=ids.lease_id,
        txn_id=ids.txn_id,
        owner=order.owner,
        is_enlisted=bool(order.txn_id),
        visibility_s=visibility_s,
        now_ms=now_ms,
    )
    state.has_state = state.has_state or order.with_state
    if order.txn_id:
        state.expires_at_ms = binding.join(tx, address, message_id, ids.txn_id, state.expires_at_ms, now_ms)
    return records.claim(tx, keys_of(address), message_id, place, before, state), state


def held(tx: Transaction, claim: LeaseClaim, now_ms: int) -> MessageState:
    """The delivery, if it is the caller's."""
    state = TAKEN.get(tx, *claim.address, claim.message_id)
    if state is None:
        if tx.get(keys_of(claim.address).message(claim.message_id)) is None:
            raise MessageNotFound("message already removed")
        raise MessageLeaseMismatch("the message is not delivered; dequeue it again")
    rules.check_claim(claim, state, now_ms)
    return state


def ack(
    tx: Transaction,
    claim: LeaseClaim,
    state: MessageState,
    now_ms: int,
    binding: TransactionBinding,
    changes: Changes,
) -> None:
    """The message that is `held` with this state is done, and its transaction is committed."""
    check_state_etag(claim)
    address, message_id = claim.address, claim.message_id
    keys = keys_of(address)
    records.remove(tx, keys, message_id, keys.taken(message_id), state)
    if state.is_enlisted:
        binding.decide(tx, state.txn_id, Decision.COMMIT, now_ms)
    binding.forget_state(tx, address, message_id, state, now_ms)
    changes.gone(address, message_id)


def nack(
    tx: Transaction, order: NackOrder, now_ms: int, binding: TransactionBinding, changes: Changes
) -> Nacked:
    """The message goes back, and its transaction is rolled back."""
    state = held(tx, order.claim, now_ms)
    rules.check_etag(order.claim, state)
    ready = rules.requeued(
        state,
        visible_at_ms=rules.visible_from_ms(order.delay_s, now_ms),
        last_error=order.last_error,
        is_failure=order.intent is NackIntent.FAILURE,
    )
    address, message_id = order.claim.address, order.claim.message_id
    records.leave(tx, keys_of(address), message_id, state)
    rest = binding.abandon(tx, state.txn_id, now_ms) if state.is_enlisted else None
    kept = Decision.COMMIT if order.claim.state is not None else Decision.ROLLBACK
    binding.release_state(tx, address, message_id, state, kept, now_ms)
    free(tx, address, message_id, ready, now_ms, binding, changes)
    return Nacked(Requeued(rules.etag(ready), ready.correlation_id), rest)


def extend(
    tx: Transaction,
    order: ExtendOrder,
    visibility_s_max: int,
    now_ms: int,
    binding: TransactionBinding,
    changes: Changes,
) -> MessageState:
    """The delivery ends later, and so does all of its transaction."""
    claim = order.claim
    state = held(tx, claim, now_ms)
    rules.check_etag(claim, state)
    asked_s = min(order.extend_by_s or state.visibility_s, visibility_s_max)
    kept = rules.extended(state, asked_s, now_ms)
    if claim.state is not None:
        binding.extend_state(tx, claim, claim.state, kept.expires_at_ms, now_ms)
    if kept.is_enlisted:
        member = member_of_message(claim.address, claim.message_id)
        binding.keep(tx, kept.txn_id, kept.expires_at_ms, member, now_ms)
    keys = keys_of(claim.address)
    place = records.take(tx, keys, claim.message_id, keys.taken(claim.message_id), kept)
    changes.moved(claim.address, claim.message_id, place, kept)
    return kept
