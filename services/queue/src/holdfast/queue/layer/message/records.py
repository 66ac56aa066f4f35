"""The records of a queue and their keys.

A message is one unchanging record with what it carries, and one state that stands in exactly one place: ready (in the
order of delivery), taken, or dead; or staged, while the transaction that sends it is not committed. Moving the state is
the life of the message; what it carries is never moved.
"""

from functools import lru_cache
from typing import Protocol

from holdfast.leases.layer.records import HELD
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import (
    DeadLetterRecord,
    MessageState,
    QueueMessage,
    QueuePolicy,
    StagedMessage,
)
from holdfast.storage.keys import pack, unpack
from holdfast.storage.port import Batch, BlobRef
from holdfast.storage.records_pb2 import Payload
from holdfast.storage.tables import Table, blob_ref
from holdfast.txn.layer.port import Member

MESSAGES = Table("msg", QueueMessage)
READY = Table("ready", MessageState)
TAKEN = Table("taken", MessageState)
DEAD = Table("dlq", DeadLetterRecord)
POLICIES = Table("queue", QueuePolicy)
SENT = Table("sent", StagedMessage)

_DEADLINES = "msgttl"
_CACHED_QUEUES = 4096


class Writer(Protocol):
    """A transaction, or a batch on its way to a commit."""

    def put(self, key: bytes, value: bytes, *, blobs: tuple[str, ...] = ()) -> None: ...

    def delete(self, key: bytes) -> None: ...


class Writes:
    """A batch that is written without reading: its expectations are known already."""

    def __init__(self) -> None:
        self.batch = Batch()

    def expect(self, key: bytes, revision: int) -> None:
        self.batch.expects[key] = revision

    def put(self, key: bytes, value: bytes, *, blobs: tuple[str, ...] = ()) -> None:
        self.batch.puts[key] = value
        if blobs:
            self.batch.blobs[key] = blobs

    def delete(self, key: bytes) -> None:
        self.batch.deletes.add(key)


class Keys:
    """The keys of one queue; what they begin with is packed once."""

    def __init__(self, address: QueueAddress) -> None:
        self._messages = MESSAGES.key(*address)
        self._ready = READY.key(*address)
        self._taken = TAKEN.key(*address)
        self._dead = DEAD.key(*address)
        self._last_place = (0, 0)
        self._last_ready = self._ready + pack(self._last_place)
        self._member_prefix = member_of_message(address, "").key
        self.address = address
        self.policy = POLICIES.key(*address)

    def message(self, message_id: str) -> bytes:
        return self._messages + pack((message_id,))

    def ready(self, priority: int, visible_at_ms: int, message_id: str) -> bytes:
        # The times of one batch are the same, and so is all of the key but its end.
        if (priority, visible_at_ms) != self._last_place:
            self._last_place = (priority, visible_at_ms)
            self._last_ready = self._ready + pack(self._last_place)
        return self._last_ready + pack((message_id,))

    def taken(self, message_id: str) -> bytes:
        return self._taken + pack((message_id,))

    def dead(self, message_id: str) -> bytes:
        return self._dead + pack((message_id,))

    def held(self, txn_id: str, message_id: str) -> bytes:
        return HELD.key(txn_id, self.address.namespace, self._member_prefix + message_id)

    def sent(self, txn_id: str, message_id: str) -> bytes:
        return SENT.key(txn_id, *self.address, message_id)

    def deadline(self, deadline_ms: int, message_id: str) -> bytes:
        return pack((_DEADLINES, deadline_ms, *self.address, message_id))


@lru_cache(maxsize=_CACHED_QUEUES)
def keys_of(address: QueueAddress) -> Keys:
    return Keys(address)


def deadline_bounds() -> tuple[bytes, bytes]:
    """All messages with a TTL, in the order in which it ends."""
    prefix = pack((_DEADLINES,))
    return prefix + b"\x00", prefix + b"\xff"


def deadline_of(key: bytes) -> tuple[int, QueueAddress, str]:
    """When, in which queue, which message."""
    _, deadline_ms, namespace, queue, message_id = unpack(key)
    assert isinstance(deadline_ms, int)
    return deadline_ms, QueueAddress(str(namespace), str(queue)), str(message_id)


# -- moves


def add_new(writer: Writer, keys: Keys, message_id: str, message: QueueMessage, state: MessageState) -> bytes:
    """The message and its first place; returns the key of the place."""
    writer.put(keys.message(message_id), message.SerializeToString(), blobs=blobs_of(message))
    return make_ready(writer, keys, message_id, state)


def make_ready(writer: Writer, keys: Keys, message_id: str, state: MessageState) -> bytes:
    key = keys.ready(state.priority, state.visible_at_ms, message_id)
    writer.put(key, state.SerializeToString())
    if state.deadline_ms:
        # The end by its TTL knows nothing but its id, and must find it.
        writer.put(keys.deadline(state.deadline_ms, message_id), key)
    return key


def claim(
    writer: Writer, keys: Keys, message_id: str, place: bytes, before: MessageState, state: MessageState
) -> bytes:
    """A new delivery takes over from `before`, which may be an old one whose time is over."""
    leave(writer, keys, message_id, before)
    # A call that names this transaction later finds the delivery by this, also if the id was minted for it alone.
    writer.put(keys.held(state.txn_id, message_id), b"")
    return take(writer, keys, message_id, place, state)


def take(writer: Writer, keys: Keys, message_id: str, place: bytes, state: MessageState) -> bytes:
    key = keys.taken(message_id)
    if place != key:
        writer.delete(place)
    writer.put(key, state.SerializeToString())
    return key


def leave(writer: Writer, keys: Keys, message_id: str, delivery: MessageState) -> None:
    """The delivery is over: this message is no longer part of its transaction, however that ends."""
    if delivery.txn_id:
        writer.delete(keys.held(delivery.txn_id, message_id))


def remove(writer: Writer, keys: Keys, message_id: str, place: bytes, state: MessageState) -> None:
    leave(writer, keys, message_id, state)
    writer.delete(place)
    writer.delete(keys.message(message_id))
    if state.deadline_ms:
        writer.delete(keys.deadline(state.deadline_ms, message_id))


def bury(writer: Writer, keys: Keys, message_id: str, place: bytes, letter: DeadLetterRecord) -> None:
    """From its place to the dead letters, with all it carries."""
    remove(writer, keys, message_id, place, letter.state)
    writer.put(keys.dead(message_id), letter.SerializeToString(), blobs=blobs_of(letter.message))


# -- what a record refers to


def blobs_of(message: QueueMessage) -> tuple[str, ...]:
    return (message.payload.blob.id,) if message.payload.HasField("blob") else ()


def payload_blob(payload: Payload) -> BlobRef | None:
    return blob_ref(payload.blob) if payload.HasField("blob") else None


def blob_context(address: QueueAddress) -> str:
    """What an encrypted payload is bound to."""
    return f"queue:{address.namespace}/{address.queue}"


# -- messages as members of a transaction


def member_of_message(address: QueueAddress, message_id: str) -> Member:
    return Member(address.namespace, f"q/{address.queue}/msg/{message_id}")


def member_of_state(address: QueueAddress, message_id: str) -> Member:
    return Member(address.namespace, f"q/{address.queue}/state/{message_id}")


def message_of_member(member: Member) -> tuple[QueueAddress, str] | None:
    """The message that a member of a transaction is; None: it is something else."""
    if not member.key.startswith("q/"):
        return None
    parts = member.key.split("/")
    if len(parts) != 4 or parts[2] != "msg":
        return None
    return QueueAddress(member.namespace, parts[1]), parts[3]
