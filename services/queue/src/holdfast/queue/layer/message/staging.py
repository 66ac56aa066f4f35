"""Messages that a transaction sends: staged by enqueue, in their queue with its commit, gone with its rollback.

Plain functions of a storage transaction. What a message carries is written when it is staged and never again, so that a
commit moves small states only. No place of its queue names a staged message: nothing that delivers or lists finds it.
It is a member of its transaction as a delivery is, `q/<queue>/msg/<id>`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.queue.layer.errors import TxnTooLarge
from holdfast.queue.layer.message import records, rules
from holdfast.queue.layer.message.records import SENT, keys_of, member_of_message
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import MessageState, QueueMessage, StagedMessage
from holdfast.storage.port import RANGE_LIMIT_MAX, Transaction
from holdfast.txn.layer.port import Decider


class NewStaged(NamedTuple):
    """A message on its way into a transaction."""

    address: QueueAddress
    message_id: str
    message: QueueMessage
    staged: StagedMessage


def stage(
    tx: Transaction,
    txn_id: str,
    messages: Sequence[NewStaged],
    bytes_max: int,
    now_ms: int,
    decider: Decider,
) -> None:
    """All of them join the transaction. TxnConflict if it is over, TooManyParticipants and TxnTooLarge beyond its limits."""
    # With the first read of the transaction.
    tx.prefetch(lambda: [], lambda: [SENT.bounds(txn_id)])
    joining = [member_of_message(one.address, one.message_id) for one in messages]
    decider.admit(tx, txn_id, joining, now_ms)
    _check_bytes(tx, txn_id, sum(one.staged.payload_bytes for one in messages), bytes_max)
    for address, message_id, message, staged in messages:
        keys = keys_of(address)
        tx.put(keys.message(message_id), message.SerializeToString(), blobs=records.blobs_of(message))
        tx.put(keys.sent(txn_id, message_id), staged.SerializeToString())
        tx.put(keys.held(txn_id, message_id), b"")


def _check_bytes(tx: Transaction, txn_id: str, more_bytes: int, bytes_max: int) -> None:
    start, end = SENT.bounds(txn_id)
    known = tx.range(start, end, limit=RANGE_LIMIT_MAX, expected=True)
    if sum(SENT.decode(record).payload_bytes for record in known) + more_bytes > bytes_max:
        raise TxnTooLarge(f"a transaction sends at most {bytes_max} bytes of payloads; begin another one")


def read(tx: Transaction, txn_id: str, address: QueueAddress, message_id: str) -> StagedMessage | None:
    """None: the transaction does not send this message."""
    record = tx.get(keys_of(address).sent(txn_id, message_id))
    return None if record is None else SENT.decode(record)


def publish(
    tx: Transaction, txn_id: str, address: QueueAddress, message_id: str, staged: StagedMessage, now_ms: int
) -> tuple[bytes, MessageState]:
    """The transaction is committed: the message stands in its queue. Returns its place and its state there."""
    keys = keys_of(address)
    ready = rules.published(staged, now_ms)
    tx.delete(keys.sent(txn_id, message_id))
    return records.make_ready(tx, keys, message_id, ready), ready


def drop(tx: Transaction, txn_id: str, address: QueueAddress, message_id: str) -> None:
    """The transaction is rolled back: nothing of the message stays, its payload included."""
    keys = keys_of(address)
    tx.delete(keys.sent(txn_id, message_id))
    tx.delete(keys.message(message_id))
