"""Attachments: named contents beside a document, staged under its lease and published with it."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock, unix_s
from holdfast.common.ids import uuid7
from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.attachment import records
from holdfast.state.layer.attachment.records import ATTACHMENTS_PER_KEY_MAX, Found, Named
from holdfast.state.layer.document import staging
from holdfast.state.layer.document.holding import Holding, read_holding, write_stage
from holdfast.state.layer.errors import AttachmentNotFound, AttachmentTooLarge, TooManyAttachments
from holdfast.state.layer.records_pb2 import Attachment
from holdfast.storage.intake import Content, Intake
from holdfast.storage.port import Store, Transaction, View
from holdfast.storage.tables import blob_message, blob_ref
from holdfast.txn.layer.port import Member

READ_ATTEMPTS_MAX = 8


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


class Download(NamedTuple):
    """An attachment on its way out: `inline`, unless it lies in a blob."""

    named: Named
    inline: bytes


class AttachmentService:
    """The attachments of one store."""

    def __init__(self, store: Store, clock: SteadyClock) -> None:
        self._store = store
        self._clock = clock

    # -- upload

    async def put(
        self, member: Member, claim: Claim, upload: Upload, pieces: AsyncIterator[bytes]
    ) -> Attached:
        """Stage one. The lease is checked before the first piece is read, and again when all of them are here."""
        if (taken := await self._taken(member, claim, upload)) is not None:
            return taken
        content_id = uuid7()
        async with Intake(self._store.blobs, _context(member, content_id)) as intake:
            async for piece in pieces:
                if upload.bytes_max is not None and intake.size_bytes + len(piece) > upload.bytes_max:
                    raise AttachmentTooLarge("attachment exceeds max_bytes")
                await intake.write(piece)
            content = await intake.finish()
        if failpoint.ARMED:
            failpoint.hit("attach.stage")
        return await self._stage(member, claim, upload, content_id, content)

    async def _taken(self, member: Member, claim: Claim, upload: Upload) -> Attached | None:
        def look(tx: Transaction) -> Attached | None:
            holding = self._held(tx, member, claim)
            return _noop(holding, upload, _find(tx, holding, upload.name))

        return await self._store.transact(look)

    async def _stage(
        self, member: Member, claim: Claim, upload: Upload, content_id: str, content: Content
    ) -> Attached:
        def stage(tx: Transaction) -> Attached:
            holding = self._held(tx, member, claim)
            found = _find(tx, holding, upload.name)
            if (taken := _noop(holding, upload, found)) is not None:
                return taken
            attachment = self._attachment(upload, content_id, content, found)
            records.stage_one(tx, holding.lease.txn_id, member, upload.name, found, attachment)
            if small_id := records.small_content_id(attachment):
                tx.put(records.content_key(member, small_id), content.inline)
            is_new = found.alive is None
            if is_new and _count_after(holding) >= ATTACHMENTS_PER_KEY_MAX:
                raise TooManyAttachments(f"a key has at most {ATTACHMENTS_PER_KEY_MAX} attachments")
            version = _write(tx, holding, found, upload.name, count_change=int(is_new))
            return Attached(Named(upload.name, attachment), version)

        return await self._store.transact(stage)

    def _attachment(self, upload: Upload, content_id: str, content: Content, found: Found) -> Attachment:
        """What is overwritten, or comes back after its deletion, keeps its id and its birthday."""
        earlier = found.alive or found.committed
        now_s = unix_s(self._clock.now_ms())
        return Attachment(
            id=earlier.id if earlier is not None else uuid7(),
            content_type=upload.content_type,
            size_bytes=content.size_bytes,
            sha256=content.sha256,
            content_id=content_id,
            blob=blob_message(content.blob) if content.blob is not None else None,
            created_at_s=earlier.created_at_s if earlier is not None else now_s,
            updated_at_s=now_s,
        )

    # -- deletion

    async def delete(self, member: Member, claim: Claim, selector: Selector) -> tuple[bool, int]:
        """Whether there was one to delete, and the version as the holder sees it now."""

        def delete(tx: Transaction) -> tuple[bool, int]:
            holding = self._held(tx, member, claim)
            named = _seen(tx, holding, selector)
            if named is None:
                return False, holding.version
            found = _find(tx, holding, named.name)
            records.stage_one(tx, holding.lease.txn_id, member, named.name, found, None)
            return True, _write(tx, holding, found, named.name, count_change=-1)

        return await self._store.transact(delete)

    async def delete_all(self, member: Member, claim: Claim) -> tuple[int, int]:
        """How many there were to delete, and the version as the holder sees it now."""

        def delete(tx: Transaction) -> tuple[int, int]:
            holding = self._held(tx, member, claim)
            count = staging.attachment_count(holding.document, holding.stage)
            if not count:
                return 0, holding.version
            records.drop_staged(tx, holding.lease.txn_id, member, holding.stage)
            staged = staging.cleared(holding.document, holding.stage)
            write_stage(tx, holding, staged)
            return count, staged.version

        return await self._store.transact(delete)

    # -- reads; without a claim: what is committed, for everybody

    async def list(self, member: Member, claim: Claim | None) -> list[Named]:
        if claim is None:
            return await self._store.view(lambda view: records.committed_of(view, member))

        def seen(tx: Transaction) -> list[Named]:
            holding = self._held(tx, member, claim)
            return records.seen_by_holder(tx, holding.lease.txn_id, member, holding.stage)

        return await self._store.transact(seen)

    async def get(self, member: Member, claim: Claim | None, selector: Selector) -> Download:
        for _ in range(READ_ATTEMPTS_MAX):
            named = await self._selected(member, claim, selector)
            if named is None:
                break
            inline = await self._small_content(member, named.attachment)
            if inline is not None:
                return Download(named, inline)
            # It was replaced between the two reads: look again.
        raise AttachmentNotFound("attachment not found")

    def open_content(self, member: Member, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes of an attachment that lies in a blob."""
        return self._store.blobs.read(
            blob_ref(attachment.blob), context=_context(member, attachment.content_id)
        )

    async def _selected(self, member: Member, claim: Claim | None, selector: Selector) -> Named | None:
        if claim is None:
            return await self._store.view(lambda view: _committed(view, member, selector))

        def selected(tx: Transaction) -> Named | None:
            return _seen(tx, self._held(tx, member, claim), selector)

        return await self._store.transact(selected)

    async def _small_content(self, member: Member, attachment: Attachment) -> bytes | None:
        small_id = records.small_content_id(attachment)
        if not small_id:
            return b""
        record = await self._store.get(records.content_key(member, small_id))
        return None if record is None else record.value

    def _held(self, tx: Transaction, member: Member, claim: Claim) -> Holding:
        return read_holding(tx, member, claim, self._clock.now_ms())


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


def _committed(view: View, member: Member, selector: Selector) -> Named | None:
    if not selector.name:
        return next(filter(selector.matches, records.committed_of(view, member)), None)
    attachment = records.ATTACHMENTS.get(view, *member, selector.name)
    if attachment is None:
        return None
    named = Named(selector.name, attachment)
    return named if selector.matches(named) else None


def _context(member: Member, content_id: str) -> str:
    return f"attachment:{member.namespace}/{member.key}/{content_id}"
