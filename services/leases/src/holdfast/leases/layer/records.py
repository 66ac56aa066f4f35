"""The records of leases: who holds which key, and what is held under which transaction."""

from typing import NamedTuple

from holdfast.leases.layer.records_pb2 import Lease
from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.keys import pack, pack_texts, prefix_range, unpack
from holdfast.storage.port import RANGE_LIMIT_MAX, Transaction
from holdfast.storage.tables import Table
from holdfast.txn.layer.port import Member

LEASES = Table("lease", Lease)

_HELD = "held"
_HELD_PREFIX = pack((_HELD,))


def held_key(txn_id: str, member: Member) -> bytes:
    """There is a lease on this member under this transaction: on a key, written by leases, or on a message that is
    delivered, written by queue. The record is empty."""
    return pack_texts(_HELD_PREFIX, (txn_id, *member))


def held_members(tx: Transaction, txn_id: str) -> list[Member]:
    """Everything that is leased under a transaction; what joins or leaves meanwhile is a conflict."""
    start, end = prefix_range((_HELD, txn_id))
    records = tx.range(start, end, limit=RANGE_LIMIT_MAX, expected=True)
    return [member_of(record.key) for record in records]


def member_of(key: bytes) -> Member:
    """The member whose namespace and key a storage key ends with: of a lease, a document, a `held_key` and others."""
    *_, namespace, name = unpack(key)
    return Member(str(namespace), str(name))


def held_txn_of(key: bytes) -> str:
    """The transaction that a `held_key` names."""
    return str(unpack(key)[1])


def held_range() -> tuple[bytes, bytes]:
    """All leases there are."""
    return prefix_range((_HELD,))


class Current(NamedTuple):
    """Version and ETag of a key as the caller sees them; they go with most refusals."""

    version: int = 0
    etag: str = ""

    @classmethod
    def of(cls, document: Document | None) -> "Current":
        return cls() if document is None else cls(document.version, document.etag)
