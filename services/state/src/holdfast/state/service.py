"""State: documents staged under a lease, published by the decision on its transaction.

The lease is read in the very transaction that stages, so a holder that was overtaken between its check and its write
does not exist.
"""

from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.state import staging
from holdfast.state.staging import NOTHING, Expectation, View
from holdfast.storage.layers import DOCUMENTS, LEASES, STAGES
from holdfast.storage.layers_pb2 import Document, Lease, Stage
from holdfast.storage.leasing import Claim, Current, KeyRefusal, check_claim
from holdfast.storage.port import Store, Transaction
from holdfast.storage.records_pb2 import Payload
from holdfast.storage.resource import Decision, Member
from holdfast.storage.tables import blob_message, blob_ref

INLINE_BYTES_MAX = 64 << 10


class Content(NamedTuple):
    """A compacted document on its way in: in its record, or in a blob that is already durable."""

    payload: Payload
    etag: str
    size_bytes: int


class StateService:
    """The documents of one store."""

    def __init__(self, store: Store, clock: SteadyClock) -> None:
        self._store = store
        self._clock = clock

    # -- reads

    async def get_public(self, member: Member) -> View:
        """What is committed, for everybody; never what somebody has staged."""
        document = await DOCUMENTS.get(self._store, *member)
        return staging.committed_view(document or NOTHING)

    async def get_leased(self, member: Member, claim: Claim) -> View:
        """What the holder of the lease sees: its own staged changes over what is committed."""

        async def read(tx: Transaction) -> View:
            _, document, stage = await self._read(tx, member, claim)
            return staging.staged_view(document, stage)

        return await self._store.transact(read)

    def open_content(self, member: Member, payload: Payload) -> AsyncIterator[bytes]:
        """The bytes of a document that lies in a blob."""
        return self._store.blobs.read(blob_ref(payload.blob), context=_blob_context(member))

    # -- content on its way in

    async def content_of(self, member: Member, text: bytes) -> Content:
        """A compacted document in memory; a large one goes to a blob first."""
        etag = sha256(text).hexdigest()
        if len(text) <= INLINE_BYTES_MAX:
            return Content(Payload(inline=text, size_bytes=len(text)), etag, len(text))
        async with self._store.blobs.create(context=_blob_context(member)) as writer:
            await writer.write(text)
            ref = await writer.finish()
        return Content(Payload(blob=blob_message(ref), size_bytes=len(text)), etag, len(text))

    # -- staged changes

    async def update(
        self,
        member: Member,
        claim: Claim,
        content: Content,
        expectation: Expectation,
        is_hidden: bool | None = None,
    ) -> View:
        def change(document: Document, stage: Stage | None) -> Stage:
            staged = staging.updated(document, stage, content.payload, content.etag)
            return staged if is_hidden is None else staging.hidden(document, staged, is_hidden)

        async def update(tx: Transaction) -> View:
            lease, document, stage = await self._read(tx, member, claim)
            staging.check(expectation, document, stage)
            staged = change(document, stage)
            self._stage(tx, member, lease, staged)
            return staging.staged_view(document, staged)

        view = await self._store.transact(update)
        if failpoint.ARMED:
            failpoint.hit("update.answer")
        return view

    async def hide(self, member: Member, claim: Claim, is_hidden: bool, expectation: Expectation) -> View:
        async def hide(tx: Transaction) -> View:
            lease, document, stage = await self._read(tx, member, claim)
            staging.check(expectation, document, stage)
            staged = staging.hidden(document, stage, is_hidden)
            self._stage(tx, member, lease, staged)
            return staging.staged_view(document, staged)

        return await self._store.transact(hide)

    async def remove(self, member: Member, claim: Claim, expectation: Expectation) -> tuple[bool, int]:
        """Whether there was something to remove, and the version that its removal will have."""

        async def remove(tx: Transaction) -> tuple[bool, int]:
            lease, document, stage = await self._read(tx, member, claim)
            staging.check(expectation, document, stage)
            staged = staging.removed(document, stage)
            if staged is None:
                return False, document.version
            self._stage(tx, member, lease, staged)
            return True, staged.version

        return await self._store.transact(remove)

    # -- the resource manager's side

    async def apply(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member]
    ) -> None:
        """Publish or drop what the transaction staged."""
        for member in members:
            stage = await STAGES.get(tx, txn_id, *member)
            if stage is None:
                continue
            STAGES.delete(tx, txn_id, *member)
            if decision is Decision.COMMIT:
                document = await DOCUMENTS.get(tx, *member) or NOTHING
                published = staging.published(document, stage, self._clock.now_ms() // 1000)
                DOCUMENTS.put(tx, published, *member, blobs=staging.blobs_of(published))

    # -- small parts

    async def _read(
        self, tx: Transaction, member: Member, claim: Claim
    ) -> tuple[Lease, Document, Stage | None]:
        lease = await LEASES.get(tx, *member)
        document = await DOCUMENTS.get(tx, *member) or NOTHING
        try:
            held = check_claim(claim, lease, self._clock.now_ms())
        except KeyRefusal as refusal:
            refusal.current = Current.of(document)
            raise
        return held, document, await STAGES.get(tx, held.txn_id, *member)

    def _stage(self, tx: Transaction, member: Member, lease: Lease, stage: Stage) -> None:
        STAGES.put(tx, stage, lease.txn_id, *member, blobs=staging.blobs_of(stage))


def _blob_context(member: Member) -> str:
    return f"state:{member.namespace}/{member.key}"
