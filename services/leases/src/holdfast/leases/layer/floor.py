"""Fencing tokens over the end of a key: what a key leaves when it is forgotten, and where the next one begins.

The tokens of one (namespace, key) only ever rise, however often the key is forgotten in between:

    a key with a lease record       its token + 1; the record is the memory
    a forgotten key                 the floor of its namespace is at least its last token, by the very commit that forgets it
    a key without a lease record    floor + 1; the floor is read in the transaction that grants, so a key that comes and
                                    goes between that read and the commit is a conflict

The state of a message, `q/<queue>/state/<id>`, is forgotten with its message, many times a second. A floor that all of them
raise would make each of those commits a conflict for every new key of the namespace, so their tokens are kept apart by
a number: while the message is there (its id is new, and nothing forgets the key before the message) they begin with 1
and need no floor up to MESSAGE_TOKENS_MAX; without the message such a key begins above that.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from holdfast.leases.layer.records import LEASES
from holdfast.leases.layer.records_pb2 import Lease, LeaseFloor
from holdfast.state.layer.records import DOCUMENTS
from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.port import Transaction
from holdfast.storage.tables import Table
from holdfast.txn.layer.lifetime import is_message_there, message_of_state
from holdfast.txn.layer.port import Member

FLOORS: Final = Table("leasefloor", LeaseFloor)
FIRST_OF_MESSAGE: Final = 1
MESSAGE_TOKENS_MAX: Final = 1 << 20


def first_reads(member: Member) -> list[bytes]:
    """What a grant reads of a key, whether it has a lease record or not."""
    return [LEASES.key(*member), DOCUMENTS.key(*member), _floor_key(member.namespace)]


def read_new(tx: Transaction, member: Member) -> tuple[Document | None, int]:
    """The document of a key that has no lease record, and the token of its first grant: one round trip for both."""
    document_key, floor_key = DOCUMENTS.key(*member), _floor_key(member.namespace)
    found = tx.get_many((document_key, floor_key))
    document = DOCUMENTS.decode(found[document_key]) if document_key in found else None
    forgotten = FLOORS.decode(found[floor_key]).fencing_token if floor_key in found else 0
    place = message_of_state(member)
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
