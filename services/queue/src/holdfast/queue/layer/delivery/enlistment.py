"""The queue as a resource manager: what a decision on a transaction makes of the messages it dequeued and sends.

Commit acks the deliveries and publishes what is sent; rollback gives back the one and drops the other. Plain functions
of a storage transaction and the time. What they changed is in `changes`.
"""

from collections.abc import Sequence

from holdfast.leases.layer.records import HELD
from holdfast.queue.layer.delivery.freeing import free
from holdfast.queue.layer.delivery.transaction_binding import TransactionBinding
from holdfast.queue.layer.errors import MessageLeaseMismatch
from holdfast.queue.layer.message import records, rules, staging
from holdfast.queue.layer.message.changes import Changes
from holdfast.queue.layer.message.records import TAKEN, keys_of, message_of_member
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import MessageState, StagedMessage
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Decision, Member


def reads(txn_id: str, members: Sequence[Member]) -> list[bytes]:
    """The keys that `apply` reads."""
    found = [place for member in members if (place := message_of_member(member)) is not None]
    return [key for address, message_id in found for key in _keys(txn_id, address, message_id)]


def _keys(txn_id: str, address: QueueAddress, message_id: str) -> tuple[bytes, ...]:
    keys = keys_of(address)
    return keys.taken(message_id), keys.message(message_id), keys.sent(txn_id, message_id)


def apply(
    tx: Transaction,
    txn_id: str,
    decision: Decision,
    members: Sequence[Member],
    now_ms: int,
    binding: TransactionBinding,
    changes: Changes,
) -> None:
    for member in members:
        found = message_of_member(member)
        if found is None:
            continue
        address, message_id = found
        staged = staging.read(tx, txn_id, address, message_id)
        state = None if staged is not None else TAKEN.get(tx, *address, message_id)
        if staged is not None:
            _end_staged(tx, txn_id, address, message_id, staged, decision, now_ms, changes)
        elif decision is Decision.COMMIT:
            _commit(tx, txn_id, address, message_id, state, now_ms, binding, changes)
        elif state is not None and state.txn_id == txn_id:
            _roll_back(tx, address, message_id, state, now_ms, binding, changes)
        tx.delete(HELD.key(txn_id, *member))


def keep(
    tx: Transaction,
    txn_id: str,
    expires_at_ms: int,
    members: Sequence[Member],
    now_ms: int,
    changes: Changes,
) -> int:
    """The deliveries of the transaction belong to it from now on, also the one that minted its id, and live until
    then at least; their ETag stays, because their consumers did not ask for the change."""
    last_ms = 0
    for member in members:
        found = message_of_member(member)
        state = None if found is None else TAKEN.get(tx, *found[0], found[1])
        if found is None or state is None or state.txn_id != txn_id:
            continue
        if not state.is_enlisted and state.expires_at_ms <= now_ms:
            tx.delete(HELD.key(txn_id, *member))  # Expired before another member joined.
            continue
        if not state.is_enlisted or state.expires_at_ms < expires_at_ms:
            state.is_enlisted = True
            state.expires_at_ms = max(state.expires_at_ms, expires_at_ms)
            keys, message_id = keys_of(found[0]), found[1]
            place = records.take(tx, keys, message_id, keys.taken(message_id), state)
            changes.moved(found[0], message_id, place, state)
        last_ms = max(last_ms, state.expires_at_ms)
    return last_ms


def _end_staged(
    tx: Transaction,
    txn_id: str,
    address: QueueAddress,
    message_id: str,
    staged: StagedMessage,
    decision: Decision,
    now_ms: int,
    changes: Changes,
) -> None:
    if decision is Decision.ROLLBACK:
        staging.drop(tx, txn_id, address, message_id)
        return
    place, ready = staging.publish(tx, txn_id, address, message_id, staged, now_ms)
    changes.moved(address, message_id, place, ready)
    if ready.deadline_ms:
        changes.deadlines_ms.append(ready.deadline_ms)


def _commit(
    tx: Transaction,
    txn_id: str,
    address: QueueAddress,
    message_id: str,
    state: MessageState | None,
    now_ms: int,
    binding: TransactionBinding,
    changes: Changes,
) -> None:
    keys = keys_of(address)
    if state is None and tx.get(keys.message(message_id)) is None:
        return  # Acked already.
    if state is None or state.txn_id != txn_id or state.expires_at_ms <= now_ms:
        raise MessageLeaseMismatch("the transaction no longer holds this message; it stays in its queue")
    records.remove(tx, keys, message_id, keys.taken(message_id), state)
    binding.forget_state(tx, address, message_id, state, now_ms)
    changes.gone(address, message_id)


def _roll_back(
    tx: Transaction,
    address: QueueAddress,
    message_id: str,
    state: MessageState,
    now_ms: int,
    binding: TransactionBinding,
    changes: Changes,
) -> None:
    has_expired = state.expires_at_ms <= now_ms
    ready = rules.requeued(
        state,
        visible_at_ms=state.expires_at_ms if has_expired else now_ms,
        last_error=rules.ROLLBACK_ERROR,
        is_failure=has_expired,
    )
    free(tx, address, message_id, ready, now_ms, binding, changes)
