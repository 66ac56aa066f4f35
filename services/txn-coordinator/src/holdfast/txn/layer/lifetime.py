"""How long what a transaction has leased lives: its keys by their leases, its messages by their deliveries."""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.leases.layer.records import LEASES
from holdfast.queue.layer.records_pb2 import DeadLetterRecord, MessageState, QueueMessage, StagedMessage
from holdfast.storage.port import Transaction
from holdfast.storage.tables import Table
from holdfast.txn.layer.port import Member

DELIVERIES = Table("taken", MessageState)  # Written by queue.
_MESSAGES = Table("msg", QueueMessage)  # Written by queue.
_DEAD_LETTERS = Table("dlq", DeadLetterRecord)  # Written by queue.
_SENT = Table("sent", StagedMessage)  # Written by queue.


class MessagePlace(NamedTuple):
    """Where a message is that takes part in a transaction as `q/<queue>/msg/<id>`."""

    namespace: str
    queue: str
    message_id: str


def message_place(member: Member) -> MessagePlace | None:
    """None: the member is a key."""
    return _place(member, "msg")


def message_of_state(member: Member) -> MessagePlace | None:
    """The message whose state the key is, `q/<queue>/state/<id>`; None: it is a key like any other."""
    return _place(member, "state")


def _place(member: Member, kind: str) -> MessagePlace | None:
    if not member.key.startswith("q/"):
        return None
    parts = member.key.split("/")
    if len(parts) != 4 or parts[2] != kind:
        return None
    return MessagePlace(member.namespace, parts[1], parts[3])


def is_message_there(tx: Transaction, place: MessagePlace) -> bool:
    """In its queue, or among the dead letters, from where it may come back."""
    return bool(tx.get_many([_MESSAGES.key(*place), _DEAD_LETTERS.key(*place)]))


def delivery_of(tx: Transaction, txn_id: str, place: MessagePlace) -> MessageState | None:
    """None: the message is not delivered under this transaction."""
    delivery = DELIVERIES.get(tx, *place)
    return delivery if delivery is not None and delivery.txn_id == txn_id else None


def is_sent(tx: Transaction, txn_id: str, member: Member) -> bool:
    """Whether the member is a message that the transaction sends: it has no lease, and no time of its own."""
    place = message_place(member)
    return place is not None and tx.get(_SENT.key(txn_id, *place)) is not None


def leased_until_ms(tx: Transaction, txn_id: str, member: Member) -> int:
    """0: the transaction does not hold it."""
    place = message_place(member)
    if place is None:
        lease = LEASES.get(tx, *member)
        is_held = lease is not None and bool(lease.lease_id) and lease.txn_id == txn_id
        return lease.expires_at_ms if lease is not None and is_held else 0
    delivery = delivery_of(tx, txn_id, place)
    return 0 if delivery is None else delivery.expires_at_ms


def last_lease_ends_ms(tx: Transaction, txn_id: str, members: Sequence[Member]) -> int:
    """When the last of them ends; 0 when nothing is held."""
    return max([leased_until_ms(tx, txn_id, member) for member in members], default=0)
