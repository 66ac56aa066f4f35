"""The records of attachments: committed and staged ones, their small contents, and how a decision moves them.

A decision moves and deletes records by what was staged. It never copies content: a small one keeps its own record under
an id of its own from the upload on, a large one its blob.
"""

from typing import NamedTuple

from holdfast.state.layer.records import is_cleared
from holdfast.state.layer.records_pb2 import Attachment, Stage, StagedAttachment
from holdfast.storage.keys import pack
from holdfast.storage.port import RANGE_LIMIT_MAX, Transaction, View
from holdfast.storage.tables import Row, Table
from holdfast.txn.layer.port import Decision, Member

ATTACHMENTS = Table("att", Attachment)
STAGED_ATTACHMENTS = Table("stageatt", StagedAttachment)
# All of a key are listed by one read, which shows them as of one moment.
ATTACHMENTS_PER_KEY_MAX = RANGE_LIMIT_MAX


class Named(NamedTuple):
    """An attachment and its name, which stands in the key of its record."""

    name: str
    attachment: Attachment


class Found(NamedTuple):
    """What there is under a name: staged by the transaction, and committed if it was not cleared."""

    staged: StagedAttachment | None
    committed: Attachment | None

    @property
    def alive(self) -> Attachment | None:
        if self.staged is None:
            return self.committed
        return self.staged.attachment if self.staged.HasField("attachment") else None


def content_key(member: Member, content_id: str) -> bytes:
    return pack(("attdata", member.namespace, member.key, content_id))


def small_content_id(attachment: Attachment) -> str:
    """Under which id a small content has its record; empty for a blob and for no content."""
    return attachment.content_id if attachment.size_bytes and not attachment.HasField("blob") else ""


def blobs_of(attachment: Attachment) -> tuple[str, ...]:
    """The blobs that a record must keep alive."""
    return (attachment.blob.id,) if attachment.HasField("blob") else ()


def find(tx: Transaction, txn_id: str, member: Member, stage: Stage | None, name: str) -> Found:
    staged = STAGED_ATTACHMENTS.get(tx, txn_id, *member, name)
    committed = None
    if stage is None or not stage.clears_attachments:
        committed = ATTACHMENTS.get(tx, *member, name)
    return Found(staged, committed)


def committed_of(view: View, member: Member) -> list[Named]:
    """By name, in the order of their bytes."""
    rows = ATTACHMENTS.range(view, *member, limit=ATTACHMENTS_PER_KEY_MAX)
    return [Named(_name(row), row.message) for row in rows]


def staged_of(tx: Transaction, txn_id: str, member: Member) -> list[Row[StagedAttachment]]:
    """Page by page: names that were deleted and names that were added may be more than a key may have."""
    rows: list[Row[StagedAttachment]] = []
    start = None
    while True:
        page = STAGED_ATTACHMENTS.range(tx, txn_id, *member, limit=RANGE_LIMIT_MAX, start=start)
        rows += page
        if len(page) < RANGE_LIMIT_MAX:
            return rows
        start = page[-1].record.key + b"\x00"


def seen_by_holder(tx: Transaction, txn_id: str, member: Member, stage: Stage | None) -> list[Named]:
    """Committed and staged ones without those that are staged as deleted, by name."""
    if stage is not None and stage.is_removed:
        return []
    committed = [] if is_cleared(stage) else committed_of(tx, member)
    seen = {named.name: named.attachment for named in committed}
    if stage is not None and stage.attachment_cost_bytes:
        for row in staged_of(tx, txn_id, member):
            if row.message.HasField("attachment"):
                seen[_name(row)] = row.message.attachment
            else:
                seen.pop(_name(row), None)
    return [Named(name, seen[name]) for name in sorted(seen, key=str.encode)]


def apply(tx: Transaction, txn_id: str, member: Member, stage: Stage, decision: Decision) -> None:
    """Publish or drop what a transaction staged for one key."""
    is_published = decision is Decision.COMMIT and not stage.is_removed
    if decision is Decision.COMMIT and is_cleared(stage):
        for named in committed_of(tx, member):
            _drop_content(tx, member, named.attachment)
            ATTACHMENTS.delete(tx, *member, named.name)
    if not stage.attachment_cost_bytes:
        return
    for row in staged_of(tx, txn_id, member):
        tx.delete(row.record.key)
        if is_published:
            _publish(tx, member, _name(row), row.message)
        else:
            _drop_content(tx, member, row.message.attachment)


def drop_staged(tx: Transaction, txn_id: str, member: Member, stage: Stage | None) -> None:
    """Forget every staged change of a key's attachments."""
    if stage is not None and stage.attachment_cost_bytes:
        for row in staged_of(tx, txn_id, member):
            tx.delete(row.record.key)
            _drop_content(tx, member, row.message.attachment)


def stage_one(
    tx: Transaction, txn_id: str, member: Member, name: str, found: Found, attachment: Attachment | None
) -> None:
    """Stage a new attachment under a name, or with None that there is none."""
    if found.staged is not None:
        _drop_content(tx, member, found.staged.attachment)
    if attachment is None and found.committed is None:
        STAGED_ATTACHMENTS.delete(tx, txn_id, *member, name)
        return
    staged = StagedAttachment(attachment=attachment)
    if found.committed is not None:
        staged.replaced_content_id = small_content_id(found.committed)
    STAGED_ATTACHMENTS.put(tx, staged, txn_id, *member, name, blobs=blobs_of(staged.attachment))


def _publish(tx: Transaction, member: Member, name: str, staged: StagedAttachment) -> None:
    if staged.replaced_content_id:
        tx.delete(content_key(member, staged.replaced_content_id))
    if staged.HasField("attachment"):
        ATTACHMENTS.put(tx, staged.attachment, *member, name, blobs=blobs_of(staged.attachment))
    else:
        ATTACHMENTS.delete(tx, *member, name)


def _drop_content(tx: Transaction, member: Member, attachment: Attachment) -> None:
    if content_id := small_content_id(attachment):
        tx.delete(content_key(member, content_id))


def _name(row: Row[Attachment] | Row[StagedAttachment]) -> str:
    return str(row.parts[-1])
