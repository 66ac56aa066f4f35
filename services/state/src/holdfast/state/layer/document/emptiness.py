"""Keys whose document was removed: their record stays, because versions count on, and is listed to be found again.

("docgone", namespace, key)    empty: the document of this key has neither content nor attachments

Documents are large and many, so the few that are empty must be found without reading all.
"""

from typing import Final

from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.keys import pack, pack_texts, prefix_range
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Member

_NAME: Final = "docgone"
_PREFIX: Final = pack((_NAME,))


def is_empty(document: Document) -> bool:
    return not document.etag and not document.attachment_count


def empty_key(member: Member) -> bytes:
    return pack_texts(_PREFIX, member)


def empty_bounds() -> tuple[bytes, bytes]:
    return prefix_range((_NAME,))


def note_emptiness(tx: Transaction, member: Member, before: Document, after: Document) -> None:
    """A publish makes `after` of `before`; a version of 0 is a key that had no document."""
    if is_empty(after):
        tx.put(empty_key(member), b"")
    elif before.version and is_empty(before):
        tx.delete(empty_key(member))
