"""State: documents staged under a lease, published by the decision on its transaction.

The lease is read in the very transaction that stages, so a holder that was overtaken between its check and its write
does not exist.
"""

from collections.abc import AsyncIterator, Sequence
from hashlib import sha256

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.attachment import records as attachment_records
from holdfast.state.layer.document import staging
from holdfast.state.layer.document.emptiness import EMPTY, note_emptiness
from holdfast.state.layer.document.holding import STAGE_COSTS, Holding, read_holding, write_stage
from holdfast.state.layer.document.intake import ExpectedBody, take_document
from holdfast.state.layer.document.staging import ANYTHING, NOTHING, Expectation, View
from holdfast.state.layer.index.writer import Change, IndexWriter
from holdfast.state.layer.records import DOCUMENTS, STAGES
from holdfast.state.layer.records_pb2 import Document, Stage
from holdfast.storage.intake import INLINE_BYTES_MAX, Content, Intake, payload_of, pieces_of
from holdfast.storage.port import Store, Transaction
from holdfast.storage.records_pb2 import Payload
from holdfast.storage.tables import blob_ref
from holdfast.txn.layer.port import Decision, Member


class StateService:
    """The documents of one store."""

    def __init__(self, store: Store, clock: SteadyClock) -> None:
        self._store = store
        self._clock = clock
        self.index = IndexWriter(store)

    # -- reads

    async def get_public(self, member: Member) -> View:
        """What is committed, for every reader; never what is staged."""
        document = await DOCUMENTS.fetch(self._store, *member)
        return staging.committed_view(document or NOTHING)

    async def get_leased(self, member: Member, claim: Claim, expectation: Expectation = ANYTHING) -> View:
        """What the holder of the lease sees: its own staged changes over what is committed."""

        def read(tx: Transaction) -> View:
            holding = self._held(tx, member, claim)
            staging.check(expectation, holding.document, holding.stage)
            return staging.staged_view(holding.document, holding.stage)

        return await self._store.transact(read)

    def open_content(self, member: Member, content: Payload) -> AsyncIterator[bytes]:
        """The bytes of a document that lies in a blob."""
        return self._store.blobs.read(blob_ref(content.blob), context=_blob_context(member))

    async def read_whole(self, member: Member, view: View) -> bytes:
        """The document in memory; empty when there is none."""
        if view.content is None or not view.content.HasField("blob"):
            return view.content.inline if view.content is not None else b""
        return b"".join([piece async for piece in self.open_content(member, view.content)])

    # -- content on its way in

    async def take_document(
        self, member: Member, pieces: AsyncIterator[bytes], expected: ExpectedBody, bytes_max: int
    ) -> Content:
        """A document that streams in; nothing is staged yet."""
        return await take_document(self._intake(member), pieces, expected, bytes_max)

    async def content_of(self, member: Member, text: bytes) -> Content:
        """A compacted document in memory; a large one goes to a blob first."""
        if len(text) <= INLINE_BYTES_MAX:
            return Content(text, None, len(text), sha256(text).digest())
        return await self.take_content(member, pieces_of(text))

    async def take_content(self, member: Member, pieces: AsyncIterator[bytes]) -> Content:
        """A document that is compacted already."""
        async with self._intake(member) as intake:
            async for piece in pieces:
                await intake.write(piece)
            return await intake.finish()

    # -- staged changes

    async def update(
        self,
        member: Member,
        claim: Claim,
        content: Content,
        expectation: Expectation,
        is_hidden: bool | None = None,
    ) -> View:
        def update(tx: Transaction) -> View:
            holding = self._held(tx, member, claim)
            staging.check(expectation, holding.document, holding.stage)
            return _stage_content(tx, holding, content, is_hidden)

        view = await self._store.transact(update)
        if failpoint.ARMED:
            failpoint.hit("update.answer")
        return view

    async def replace(
        self, member: Member, claim: Claim, seen: View, content: Content, is_hidden: bool | None = None
    ) -> View | None:
        """As update, if the holder still sees what it saw; None if it does not."""

        def replace(tx: Transaction) -> View | None:
            holding = self._held(tx, member, claim)
            if staging.staged_view(holding.document, holding.stage) != seen:
                return None
            return _stage_content(tx, holding, content, is_hidden)

        return await self._store.transact(replace)

    async def hide(self, member: Member, claim: Claim, is_hidden: bool, expectation: Expectation) -> View:
        def hide(tx: Transaction) -> View:
            holding = self._held(tx, member, claim)
            staging.check(expectation, holding.document, holding.stage)
            staged = staging.hidden(holding.document, holding.stage, is_hidden)
            write_stage(tx, holding, staged)
            return staging.staged_view(holding.document, staged)

        return await self._store.transact(hide)

    async def remove(self, member: Member, claim: Claim, expectation: Expectation) -> tuple[bool, int]:
        """Whether there was something to remove, and the version that its removal will have."""

        def remove(tx: Transaction) -> tuple[bool, int]:
            holding = self._held(tx, member, claim)
            staging.check(expectation, holding.document, holding.stage)
            staged = staging.removed(holding.document, holding.stage)
            if staged is None:
                return False, holding.version
            attachment_records.drop_staged(tx, holding.lease.txn_id, member, holding.stage)
            write_stage(tx, holding, staged)
            return True, staged.version

        return await self._store.transact(remove)

    # -- the resource manager's side

    def reads(self, txn_id: str, members: Sequence[Member]) -> Sequence[bytes]:
        keys = {self.index.states.key(member.namespace) for member in members}
        for member in members:
            keys |= {STAGES.key(txn_id, *member), DOCUMENTS.key(*member)}
        return list(keys)

    def apply(self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member]) -> None:
        """Publish or drop what the transaction staged."""
        is_charged = False
        changes: list[Change] = []
        for member in members:
            stage = STAGES.get(tx, txn_id, *member)
            if stage is None:
                continue
            if not (failpoint.ARMED and failpoint.hit("state.apply.stays_staged")):
                STAGES.delete(tx, txn_id, *member)
            is_charged = is_charged or bool(stage.charged_bytes)
            attachment_records.apply(tx, txn_id, member, stage, decision)
            if decision is Decision.COMMIT:
                document = DOCUMENTS.get(tx, *member) or NOTHING
                published = staging.published(document, stage, self._clock.now_ms() // 1000)
                DOCUMENTS.put(tx, published, *member, blobs=staging.blobs_of(published))
                note_emptiness(tx, member, document, published)
                changes.append(Change(member, document, published))
        if changes:
            self.index.publish(tx, changes)
        if is_charged:
            STAGE_COSTS.delete(tx, txn_id)

    def keep(self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        """What is staged lives as long as its lease."""
        return expires_at_ms

    # -- documents that belong to something of another service

    def open_message_state(self, tx: Transaction, member: Member) -> None:
        """A document without content that queries do not show, unless there is one already."""
        if DOCUMENTS.get(tx, *member) is None:
            DOCUMENTS.put(tx, Document(is_hidden=True), *member)

    def forget_message_state(self, tx: Transaction, member: Member, txn_id: str) -> None:
        """The document goes, and all that belongs to it or is staged for it under this transaction."""
        self.apply(tx, txn_id, Decision.ROLLBACK, [member])
        document = DOCUMENTS.get(tx, *member)
        if document is not None:
            self.forget_document(tx, member, document, txn_id)

    def forget_document(self, tx: Transaction, member: Member, document: Document, txn_id: str) -> None:
        """As a removal, under a transaction id that has staged nothing; and not even the version is left."""
        removal = staging.removed(document, Stage(version=document.version))
        assert removal is not None, "something staged can always be removed"
        STAGES.put(tx, removal, txn_id, *member)
        self.apply(tx, txn_id, Decision.COMMIT, [member])
        DOCUMENTS.delete(tx, *member)
        tx.delete(EMPTY.key(*member))

    # -- small parts

    def _held(self, tx: Transaction, member: Member, claim: Claim) -> Holding:
        return read_holding(tx, member, claim, self._clock.now_ms())

    def _intake(self, member: Member) -> Intake:
        return Intake(self._store.blobs, _blob_context(member))


def _stage_content(tx: Transaction, holding: Holding, content: Content, is_hidden: bool | None) -> View:
    document = holding.document
    staged = staging.updated(document, holding.stage, payload_of(content), content.sha256.hex())
    if is_hidden is not None:
        staged = staging.hidden(document, staged, is_hidden)
    write_stage(tx, holding, staged)
    return staging.staged_view(document, staged)


def _blob_context(member: Member) -> str:
    return f"state:{member.namespace}/{member.key}"
