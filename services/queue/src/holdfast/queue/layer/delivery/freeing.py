"""The rules of what becomes of a message that is no longer held: ready again, a dead letter, or gone.

Plain functions of a storage transaction and the time. What they changed is in `changes`.
"""

from datetime import UTC, datetime

from holdfast.queue.layer.delivery.transaction_binding import TransactionBinding
from holdfast.queue.layer.message import records, rules
from holdfast.queue.layer.message.changes import Changes
from holdfast.queue.layer.message.records import MESSAGES, TAKEN, deadline_of, keys_of
from holdfast.queue.layer.message.rules import Disposition
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import DeadLetterRecord, MessageState, QueueMessage
from holdfast.storage.port import Record, Transaction
from holdfast.txn.layer.port import Decision


def free(
    tx: Transaction,
    address: QueueAddress,
    message_id: str,
    ready: MessageState,
    now_ms: int,
    binding: TransactionBinding,
    changes: Changes,
) -> None:
    """It was taken and is no longer held: ready at its time, unless it may not be delivered any more."""
    place = keys_of(address).taken(message_id)
    disposition = rules.disposition(ready, now_ms)
    if disposition is Disposition.READY:
        make_ready(tx, address, message_id, place, ready, changes)
    else:
        put_away(tx, address, message_id, place, ready, disposition, now_ms, binding, changes)


def make_ready(
    tx: Transaction,
    address: QueueAddress,
    message_id: str,
    place: bytes,
    ready: MessageState,
    changes: Changes,
) -> None:
    tx.delete(place)
    changes.moved(address, message_id, records.make_ready(tx, keys_of(address), message_id, ready), ready)


def put_away(
    tx: Transaction,
    address: QueueAddress,
    message_id: str,
    place: bytes,
    state: MessageState,
    disposition: Disposition,
    now_ms: int,
    binding: TransactionBinding,
    changes: Changes,
) -> None:
    """To the dead letters, or nowhere."""
    message = MESSAGES.get(tx, *address, message_id) if disposition is Disposition.DEAD else None
    if message is not None:
        records.bury(tx, keys_of(address), message_id, place, _letter(message, state, now_ms))
        changes.dead += 1
    else:
        records.remove(tx, keys_of(address), message_id, place, state)
        binding.forget_state(tx, address, message_id, state, now_ms)
    changes.gone(address, message_id)


def _letter(message: QueueMessage, state: MessageState, now_ms: int) -> DeadLetterRecord:
    """Its attempts are used up: what it carries and where it stood move to the dead letters."""
    dead = MessageState()
    dead.CopyFrom(state)
    dead.failure_attempts = rules.failures(state, now_ms)
    dead.last_error = _max_attempts_error(now_ms)
    return DeadLetterRecord(message=message, state=dead, dead_at_ms=now_ms)


def end(
    tx: Transaction,
    address: QueueAddress,
    message_id: str,
    record: Record,
    now_ms: int,
    binding: TransactionBinding,
    changes: Changes,
) -> None:
    """It is past its deadline, out of attempts, or out of time within a transaction, which ends with it."""
    state = TAKEN.decode(record)
    if rules.is_held(state, now_ms):
        return
    if state.is_enlisted:
        binding.decide(tx, state.txn_id, Decision.ROLLBACK, now_ms)
        return
    disposition = rules.disposition(state, now_ms)
    if disposition is not Disposition.READY:
        binding.release_state(tx, address, message_id, state, Decision.ROLLBACK, now_ms)
        put_away(tx, address, message_id, record.key, state, disposition, now_ms, binding, changes)


def end_by_deadline(
    tx: Transaction, entry: Record, now_ms: int, binding: TransactionBinding, changes: Changes
) -> int | None:
    """The TTL of a message is over; `entry` is its place in the order of deadlines. Returns when to look again."""
    _, address, message_id = deadline_of(entry.key)
    keys = keys_of(address)
    place = tx.get(entry.value) or tx.get(keys.taken(message_id))
    tx.delete(entry.key)
    if place is None:
        return None
    state = TAKEN.decode(place)
    if rules.is_held(state, now_ms):
        # Its holder may still ack it; when that time is over too, it goes.
        tx.put(keys.deadline(state.expires_at_ms, message_id), entry.value)
        return state.expires_at_ms
    if state.is_enlisted:
        binding.decide(tx, state.txn_id, Decision.ROLLBACK, now_ms)
    else:
        put_away(tx, address, message_id, place.key, state, Disposition.GONE, now_ms, binding, changes)
    return None


def give_back(
    tx: Transaction,
    address: QueueAddress,
    message_id: str,
    lease_id: str,
    now_ms: int,
    binding: TransactionBinding,
    changes: Changes,
) -> None:
    """A delivery that was never sent, if it is still the one of this lease."""
    state = TAKEN.get(tx, *address, message_id)
    if state is not None and state.lease_id == lease_id:
        records.leave(tx, keys_of(address), message_id, state)
        state.is_enlisted = False  # The lease on its state does not stay with the transaction either.
        binding.release_state(tx, address, message_id, state, Decision.ROLLBACK, now_ms)
        free(tx, address, message_id, rules.given_back(state), now_ms, binding, changes)


def redrive(
    tx: Transaction,
    address: QueueAddress,
    message_id: str,
    letter: DeadLetterRecord,
    now_ms: int,
    changes: Changes,
) -> None:
    """Out of the dead letters, back into its queue."""
    keys = keys_of(address)
    tx.delete(keys.dead(message_id))
    ready = rules.redriven(letter.state, now_ms)
    changes.moved(address, message_id, records.add_new(tx, keys, message_id, letter.message, ready), ready)


def _max_attempts_error(now_ms: int) -> bytes:
    time = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return b'{"reason":"max_attempts_exceeded","time_rfc3339":"%b"}' % time.encode()
