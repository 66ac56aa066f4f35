"""The rules of attachments: plain functions of a storage transaction, what is asked for, and the time."""

from typing import NamedTuple

from holdfast.common.clock import unix_s
from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.attachment import records
from holdfast.state.layer.attachment.records import ATTACHMENTS_PER_KEY_MAX, Found, Named
from holdfast.state.layer.document import staging
from holdfast.state.layer.document.holding import Holding, read_holding, write_stage
from holdfast.state.layer.errors import TooManyAttachments
from holdfast.state.layer.records_pb2 import Attachment
from holdfast.storage.intake import Content
from holdfast.storage.port import Transaction, View
from holdfast.storage.tables import blob_message
from holdfast.txn.layer.port import Member


class Upload(NamedTuple):
    """What an upload asks for. `is_kept`: what is there already is not overwritten."""

    name: str
    content_type: str
    bytes_max: int | None
    is_kept: bool


class Attached(NamedTuple):
    """How an upload ended. `is_noop`: nothing was written, because the name was taken."""

    named: Named
    version: int
    is_noop: bool = False


class Selector(NamedTuple):
    """Which attachment is meant: the one that has this name, this id, or both."""

    name: str
    attachment_id: str

    def matches(self, named: Named) -> bool:
        return self.name in ("", named.name) and self.attachment_id in ("", named.attachment.id)


class Ids(NamedTuple):
    """Minted by the caller: a function that runs again must write the same. `attachment_id` is for a new name only."""

    content_id: str
    attachment_id: str


# -- upload


def taken(tx: Transaction, member: Member, claim: Claim, upload: Upload, now_ms: int) -> Attached | None:
    """What an upload that overwrites nothing finds under its name; None: it may go on."""
    holding = read_holding(tx, member, claim, now_ms)
    return _noop(holding, upload, _find(tx, holding, upload.name))


def stage(
    tx: Transaction, member: Member, claim: Claim, upload: Upload, content: Content, ids: Ids, now_ms: int
) -> Attached:
    holding = read_holding(tx, member, claim, now_ms)
    found = _find(tx, holding, upload.name)
    if (kept := _noop(holding, upload, found)) is not None:
        return kept
    attachment = _attachment(upload, content, ids, found, unix_s(now_ms))
    records.stage_one(tx, holding.lease.txn_id, member, upload.name, found, attachment)
    if small_id := records.small_content_id(attachment):
        tx.put(records.content_key(member, small_id), content.inline)
    is_new = found.alive is None
    if is_new and _count_after(holding) >= ATTACHMENTS_PER_KEY_MAX:
        raise TooManyAttachments(f"a key has at most {ATTACHMENTS_PER_KEY_MAX} attachments")
    version = _write(tx, holding, found, upload.name, count_change=int(is_new))
    return Attached(Named(upload.name, attachment), version)


def _attachment(upload: Upload, content: Content, ids: Ids, found: Found, now_s: int) -> Attachment:
    """What is overwritten, or comes back after its deletion, keeps its id and its time of creation."""
    earlier = found.alive or found.committed
    return Attachment(
        id=earlier.id if earlier is not None else ids.attachment_id,
        content_type=upload.content_type,
        size_bytes=content.size_bytes,
        sha256=content.sha256,
        content_id=ids.content_id,
        blob=blob_message(content.blob) if content.blob is not None else None,
        created_at_s=earlier.created_at_s if earlier is not None else now_s,
        updated_at_s=now_s,
    )


# -- deletion


def delete(
    tx: Transaction, member: Member, claim: Claim, selector: Selector, now_ms: int
) -> tuple[bool, int]:
    """Whether there was one to delete, and the version as the holder sees it now."""
    holding = read_holding(tx, member, claim, now_ms)
    named = _seen(tx, holding, selector)
    if named is None:
        return False, holding.version
    found = _find(tx, holding, named.name)
    records.stage_one(tx, holding.lease.txn_id, member, named.name, found, None)
    return True, _write(tx, holding, found, named.name, count_change=-1)


def delete_all(tx: Transaction, member: Member, claim: Claim, now_ms: int) -> tuple[int, int]:
    """How many there were to delete, and the version as the holder sees it now."""
    holding = read_holding(tx, member, claim, now_ms)
    count = staging.attachment_count(holding.document, holding.stage)
    if not count:
        return 0, holding.version
    records.drop_staged(tx, holding.lease.txn_id, member, holding.stage)
    staged = staging.cleared(holding.document, holding.stage)
    write_stage(tx, holding, staged)
    return count, staged.version


# -- reads


def listed(tx: Transaction, member: Member, claim: Claim, now_ms: int) -> list[Named]:
    """All that the holder of the lease sees."""
    holding = read_holding(tx, member, claim, now_ms)
    return records.seen_by_holder(tx, holding.lease.txn_id, member, holding.stage)


def selected(tx: Transaction, member: Member, claim: Claim, selector: Selector, now_ms: int) -> Named | None:
    """The one that is meant, as the holder of the lease sees it."""
    return _seen(tx, read_holding(tx, member, claim, now_ms), selector)


def _find(tx: Transaction, holding: Holding, name: str) -> Found:
    return records.find(tx, holding.lease.txn_id, holding.member, holding.stage, name)


def _noop(holding: Holding, upload: Upload, found: Found) -> Attached | None:
    is_removed = holding.stage is not None and holding.stage.is_removed
    if not upload.is_kept or is_removed or found.alive is None:
        return None
    return Attached(Named(upload.name, found.alive), holding.version, is_noop=True)


def _write(tx: Transaction, holding: Holding, found: Found, name: str, *, count_change: int) -> int:
    """The staged version. A decision may have to write a name's record, and delete its stage and its old content."""
    cost_bytes = 0 if found.staged is not None else 3 * staging.WRITE_COST_BYTES + len(name.encode())
    staged = staging.attached(
        holding.document, holding.stage, count_change=count_change, cost_bytes=cost_bytes
    )
    write_stage(tx, holding, staged)
    return staged.version


def _count_after(holding: Holding) -> int:
    return staging.opened(holding.document, holding.stage).attachment_count


def _seen(tx: Transaction, holding: Holding, selector: Selector) -> Named | None:
    """What the holder sees; by name one look, by id a walk through the key's list."""
    if not selector.name:
        seen = records.seen_by_holder(tx, holding.lease.txn_id, holding.member, holding.stage)
        return next(filter(selector.matches, seen), None)
    found = _find(tx, holding, selector.name)
    is_removed = holding.stage is not None and holding.stage.is_removed
    if found.alive is None or is_removed:
        return None
    named = Named(selector.name, found.alive)
    return named if selector.matches(named) else None


def committed(view: View, member: Member, selector: Selector) -> Named | None:
    if not selector.name:
        return next(filter(selector.matches, records.committed_of(view, member)), None)
    attachment = records.ATTACHMENTS.get(view, *member, selector.name)
    if attachment is None:
        return None
    named = Named(selector.name, attachment)
    return named if selector.matches(named) else None
