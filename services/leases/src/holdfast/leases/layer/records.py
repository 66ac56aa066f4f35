"""The records of leases: who holds which key, and what is held under which transaction."""

from typing import NamedTuple

from holdfast.leases.layer.records_pb2 import Lease
from holdfast.storage.keys import unpack
from holdfast.storage.port import RANGE_LIMIT_MAX, Transaction
from holdfast.storage.tables import Subspace, Table
from holdfast.txn.layer.port import Member

LEASES = Table("lease", Lease)

HELD = Subspace("held")
"""There is a lease on this member under this transaction, `(txn_id, *member)`: on a key, written by leases, or on a
message that is delivered, written by queue."""


def held_members(tx: Transaction, txn_id: str) -> list[Member]:
    """Everything that is leased under a transaction; what joins or leaves meanwhile is a conflict."""
    start, end = held_bounds(txn_id)
    records = tx.range(start, end, limit=RANGE_LIMIT_MAX, expected=True)
    return [member_of(record.key) for record in records]


def held_bounds(txn_id: str) -> tuple[bytes, bytes]:
    """What `held_members` reads."""
    return HELD.bounds(txn_id)


def member_of(key: bytes) -> Member:
    """The member whose namespace and key a storage key ends with: of a lease, a document, of HELD and others."""
    *_, namespace, name = unpack(key)
    return Member(str(namespace), str(name))


def held_txn_of(key: bytes) -> str:
    """The transaction that a key of HELD names."""
    return str(unpack(key)[1])


def held_range() -> tuple[bytes, bytes]:
    """All leases there are."""
    return HELD.bounds()


class Current(NamedTuple):
    """Version and ETag of a key as the caller sees them; they go with most refusals."""

    version: int = 0
    etag: str = ""
