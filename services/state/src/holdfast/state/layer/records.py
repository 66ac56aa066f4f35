"""The records of documents: what is committed, what a transaction has staged, and which documents are empty.

("docgone", namespace, key)    empty: the document of this key has neither content nor attachments

The record of a document that was removed stays, because versions count on. Documents are large and many, so the few that
are empty must be found without reading all.
"""

from typing import Final

from holdfast.state.layer.records_pb2 import Document, Stage, StageCost
from holdfast.storage.port import Transaction
from holdfast.storage.tables import Subspace, Table
from holdfast.txn.layer.port import Member

DOCUMENTS = Table("doc", Document)
STAGES = Table("stage", Stage)
STAGE_COSTS = Table("stagecost", StageCost)
EMPTY: Final = Subspace("docgone")
DIAGNOSTICS_PREFIX: Final = "lockd-diagnostics/"


def is_large(document: Document) -> bool:
    """Whether its content is a blob; then the index has a summary of it instead of entries."""
    return document.content.HasField("blob")


def is_visible(key: str, document: Document) -> bool:
    """Whether queries may show it: there is a document, and it is not hidden."""
    return bool(document.etag) and not document.is_hidden and not key.startswith(DIAGNOSTICS_PREFIX)


def is_cleared(stage: Stage | None) -> bool:
    """Whether no committed attachment outlives the commit."""
    return stage is not None and (stage.clears_attachments or stage.is_removed)


def is_empty(document: Document) -> bool:
    return not document.etag and not document.attachment_count


def note_emptiness(tx: Transaction, member: Member, before: Document, after: Document) -> None:
    """A publish makes `after` of `before`; a version of 0 is a key that had no document."""
    if is_empty(after):
        tx.put(EMPTY.key(*member), b"")
    elif before.version and is_empty(before):
        tx.delete(EMPTY.key(*member))
