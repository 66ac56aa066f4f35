"""Keys whose document was removed: their record stays, because versions count on, and is listed to be found again.

("docgone", namespace, key)    empty: the document of this key has neither content nor attachments

Documents are large and many, so the few that are empty must be found without reading all.
"""

from typing import Final

from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.port import Transaction
from holdfast.storage.tables import Subspace
from holdfast.txn.layer.port import Member

EMPTY: Final = Subspace("docgone")


def is_empty(document: Document) -> bool:
    return not document.etag and not document.attachment_count


def note_emptiness(tx: Transaction, member: Member, before: Document, after: Document) -> None:
    """A publish makes `after` of `before`; a version of 0 is a key that had no document."""
    if is_empty(after):
        tx.put(EMPTY.key(*member), b"")
    elif before.version and is_empty(before):
        tx.delete(EMPTY.key(*member))
