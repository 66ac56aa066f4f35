"""The rules of staged changes: what a transaction sees, what it stages, what its commit publishes.

version   first staged change: committed + 1, kept by later ones; each removal adds one more
content   an update replaces what was staged and takes back a removal; a removal drops what was staged
attachments   counted as if there were no removal, so that an update that takes it back finds them again
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.common import failpoint
from holdfast.leases.layer.records import Current
from holdfast.state.layer.attachment import records as attachment_records
from holdfast.state.layer.errors import EtagMismatch, VersionConflict
from holdfast.state.layer.index.writer import DocumentChange, IndexWriter
from holdfast.state.layer.records import DOCUMENTS, STAGE_COSTS, STAGES, is_cleared, note_emptiness
from holdfast.state.layer.records_pb2 import Document, Stage
from holdfast.storage.port import Transaction
from holdfast.storage.records_pb2 import Payload
from holdfast.txn.layer.port import Decision, Member

# What one write of a decision counts at least, so that as many as fit by their size fit by their number as well.
WRITE_COST_BYTES = 1024


class Expectation(NamedTuple):
    """What a conditional write expects; None: anything."""

    version: int | None = None
    etag: str | None = None


class View(NamedTuple):
    """A key as one reader sees it. No etag: there is no document."""

    version: int
    etag: str
    content: Payload | None
    is_hidden: bool


NOTHING = Document()
ANYTHING = Expectation()


def committed_view(document: Document) -> View:
    content = document.content if document.etag else None
    return View(document.version, document.etag, content, document.is_hidden)


def staged_view(document: Document, stage: Stage | None) -> View:
    """What the transaction itself sees."""
    if stage is None:
        return committed_view(document)
    is_hidden = stage.is_hidden if stage.HasField("is_hidden") else document.is_hidden
    if stage.etag:
        return View(stage.version, stage.etag, stage.content, is_hidden)
    if stage.is_removed:
        return View(stage.version, "", None, is_hidden)
    return committed_view(document)._replace(version=stage.version, is_hidden=is_hidden)


def check(expectation: Expectation, document: Document, stage: Stage | None) -> None:
    """Compare with the staged version and ETag where there are some, else with the committed ones."""
    version = stage.version if stage is not None else document.version
    if expectation.version is not None and expectation.version != version:
        raise VersionConflict("state version mismatch", Current(version, document.etag))
    etag = stage.etag if stage is not None and stage.etag else document.etag
    if expectation.etag is not None and expectation.etag != etag:
        raise EtagMismatch("current state etag does not match", Current(version, etag))


def updated(document: Document, stage: Stage | None, content: Payload, etag: str) -> Stage:
    staged = opened(document, stage)
    staged.is_removed = False
    staged.etag = etag
    staged.content.CopyFrom(content)
    return staged


def hidden(document: Document, stage: Stage | None, is_hidden: bool) -> Stage:
    staged = opened(document, stage)
    staged.is_hidden = is_hidden
    return staged


def removed(document: Document, stage: Stage | None) -> Stage | None:
    """None: there is nothing to remove."""
    if not document.etag and stage is None:
        return None
    version = stage.version if stage is not None else document.version
    return Stage(
        version=version + 1,
        is_removed=True,
        attachment_count=document.attachment_count,
        attachment_cost_bytes=_clearing_cost_bytes(document),
    )


def cleared(document: Document, stage: Stage | None) -> Stage:
    """All attachments go, committed and staged; later ones stay."""
    staged = opened(document, stage)
    staged.clears_attachments = True
    staged.attachment_count = 0
    staged.attachment_cost_bytes = _clearing_cost_bytes(document)
    return staged


def attached(document: Document, stage: Stage | None, *, count_change: int, cost_bytes: int) -> Stage:
    """One attachment is staged, or staged as deleted."""
    staged = opened(document, stage)
    staged.attachment_count += count_change
    staged.attachment_cost_bytes += cost_bytes
    return staged


def attachment_count(document: Document, stage: Stage | None) -> int:
    """How many the transaction sees."""
    if stage is None:
        return document.attachment_count
    return 0 if stage.is_removed else stage.attachment_count


def published(document: Document, stage: Stage, now_s: int) -> Document:
    """What any client sees after the commit."""
    view = staged_view(document, stage)
    return Document(
        version=stage.version,
        etag=view.etag,
        content=view.content,
        is_hidden=view.is_hidden,
        updated_at_s=now_s,
        attachment_count=attachment_count(document, stage),
    )


def blobs_of(record: Document | Stage) -> tuple[str, ...]:
    """The blobs that a record must keep alive."""
    return (record.content.blob.id,) if record.content.HasField("blob") else ()


def opened(document: Document, stage: Stage | None) -> Stage:
    """What is staged, to be changed; the first change opens it."""
    staged = Stage(version=document.version + 1, attachment_count=document.attachment_count)
    if stage is not None:
        staged.CopyFrom(stage)
    return staged


def _clearing_cost_bytes(document: Document) -> int:
    return 2 * WRITE_COST_BYTES * document.attachment_count


# -- what a decision does


def apply(
    tx: Transaction,
    txn_id: str,
    decision: Decision,
    members: Sequence[Member],
    now_ms: int,
    index: IndexWriter,
) -> None:
    """Publish or drop what the transaction staged."""
    is_charged = False
    changes: list[DocumentChange] = []
    for member in members:
        stage = STAGES.get(tx, txn_id, *member)
        if stage is None:
            continue
        if not (failpoint.ARMED and failpoint.hit("state.apply.stays_staged")):
            STAGES.delete(tx, txn_id, *member)
        is_charged = is_charged or bool(stage.charged_bytes)
        if stage.attachment_cost_bytes or is_cleared(stage):
            attachment_records.apply(tx, txn_id, member, stage, decision)
        if decision is Decision.COMMIT:
            changes.append(_publish(tx, member, stage, now_ms))
    if changes:
        index.publish(tx, changes)
    if is_charged:
        STAGE_COSTS.delete(tx, txn_id)


def _publish(tx: Transaction, member: Member, stage: Stage, now_ms: int) -> DocumentChange:
    document = DOCUMENTS.get(tx, *member) or NOTHING
    after = published(document, stage, now_ms // 1000)
    DOCUMENTS.put(tx, after, *member, blobs=blobs_of(after))
    note_emptiness(tx, member, document, after)
    return DocumentChange(member, document, after)
