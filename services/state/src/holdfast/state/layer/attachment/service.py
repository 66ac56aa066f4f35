"""Attachments: named contents beside a document, staged under its lease and published with it."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.ids import uuid7
from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.attachment import records, rules
from holdfast.state.layer.attachment.records import Named
from holdfast.state.layer.attachment.rules import Attached, Ids, Selector, Upload
from holdfast.state.layer.errors import AttachmentNotFound, AttachmentTooLarge
from holdfast.state.layer.records_pb2 import Attachment
from holdfast.storage.intake import Intake, remove_refused, remove_unused
from holdfast.storage.port import Store
from holdfast.storage.tables import blob_ref
from holdfast.txn.layer.port import Member

READ_ATTEMPTS_MAX = 8


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
        ids = Ids(content_id=uuid7(), attachment_id=uuid7())
        async with Intake(self._store.blobs, _context(member, ids.content_id)) as intake:
            async for piece in pieces:
                if upload.bytes_max is not None and intake.size_bytes + len(piece) > upload.bytes_max:
                    raise AttachmentTooLarge("attachment exceeds max_bytes")
                await intake.write(piece)
            content = await intake.finish()
        if failpoint.ARMED:
            failpoint.hit("attach.stage")
        now_ms = self._clock.now_ms()
        try:
            attached = await self._store.transact(
                lambda tx: rules.stage(tx, member, claim, upload, content, ids, now_ms)
            )
        except HoldfastError as error:
            await remove_refused(self._store.blobs, [content], error)
            raise
        if attached.is_noop:
            await remove_unused(self._store.blobs, [content])
        return attached

    async def _taken(self, member: Member, claim: Claim, upload: Upload) -> Attached | None:
        now_ms = self._clock.now_ms()
        return await self._store.transact(lambda tx: rules.taken(tx, member, claim, upload, now_ms))

    # -- deletion

    async def delete(self, member: Member, claim: Claim, selector: Selector) -> tuple[bool, int]:
        """Whether there was one to delete, and the version as the holder sees it now."""
        now_ms = self._clock.now_ms()
        return await self._store.transact(lambda tx: rules.delete(tx, member, claim, selector, now_ms))

    async def delete_all(self, member: Member, claim: Claim) -> tuple[int, int]:
        """How many there were to delete, and the version as the holder sees it now."""
        now_ms = self._clock.now_ms()
        return await self._store.transact(lambda tx: rules.delete_all(tx, member, claim, now_ms))

    # -- reads; without a claim: what is committed, for every reader

    async def list(self, member: Member, claim: Claim | None) -> list[Named]:
        if claim is None:
            return await self._store.view(lambda view: records.committed_of(view, member))
        now_ms = self._clock.now_ms()
        return await self._store.transact(lambda tx: rules.listed(tx, member, claim, now_ms))

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
            return await self._store.view(lambda view: rules.committed(view, member, selector))
        now_ms = self._clock.now_ms()
        return await self._store.transact(lambda tx: rules.selected(tx, member, claim, selector, now_ms))

    async def _small_content(self, member: Member, attachment: Attachment) -> bytes | None:
        small_id = records.small_content_id(attachment)
        if not small_id:
            return b""
        record = await self._store.get(records.content_key(member, small_id))
        return None if record is None else record.value


def _context(member: Member, content_id: str) -> str:
    return f"attachment:{member.namespace}/{member.key}/{content_id}"
