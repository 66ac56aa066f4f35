"""State: documents staged under a lease, published by the decision on its transaction.

The lease is read in the very transaction that stages, so a holder that was overtaken between its check and its write
does not exist.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from typing import TypeVar

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.document import rules, staging
from holdfast.state.layer.document.intake import ExpectedBody, take_document
from holdfast.state.layer.document.staging import ANYTHING, NOTHING, Expectation, View
from holdfast.state.layer.index.writer import IndexWriter
from holdfast.state.layer.records import DOCUMENTS, STAGES
from holdfast.storage.intake import (
    INLINE_BYTES_MAX,
    Content,
    Intake,
    pieces_of,
    remove_refused,
    remove_unused,
)
from holdfast.storage.port import Store, Transaction
from holdfast.storage.port import View as StoreView
from holdfast.storage.records_pb2 import Payload
from holdfast.storage.tables import blob_ref
from holdfast.txn.layer.port import Decision, Member

T = TypeVar("T")


class StateService:
    """The documents of one store."""

    member_prefix: str = ""

    def __init__(self, store: Store, clock: SteadyClock) -> None:
        self._store = store
        self._clock = clock
        self.index = IndexWriter(store)

    # -- reads

    async def get_public(self, member: Member) -> View:
        """What is committed, for every reader; never what is staged."""
        document = await DOCUMENTS.fetch(self._store, *member)
        return staging.committed_view(document or NOTHING)

    async def see_public(self, member: Member, see: Callable[[View], T]) -> T:
        """What `see` makes of that while it is what is committed."""

        def read(records: StoreView) -> T:
            return see(staging.committed_view(DOCUMENTS.get(records, *member) or NOTHING))

        return await self._store.view(read)

    async def get_leased(self, member: Member, claim: Claim, expectation: Expectation = ANYTHING) -> View:
        """What the holder of the lease sees: its own staged changes over what is committed."""
        now_ms = self._clock.now_ms()
        return await self._store.transact(lambda tx: rules.read(tx, member, claim, expectation, now_ms))

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
        now_ms = self._clock.now_ms()

        def update(tx: Transaction) -> View:
            return rules.update(tx, member, claim, content, expectation, now_ms, is_hidden=is_hidden)

        try:
            view = await self._store.transact(update)
        except HoldfastError as error:
            await remove_refused(self._store.blobs, [content], error)
            raise
        if failpoint.ARMED:
            failpoint.hit("update.answer")
        return view

    async def replace(
        self, member: Member, claim: Claim, seen: View, content: Content, is_hidden: bool | None = None
    ) -> View | None:
        """As update, if the holder still sees what it saw; None if it does not."""
        now_ms = self._clock.now_ms()

        def replace(tx: Transaction) -> View | None:
            return rules.replace(tx, member, claim, content, seen, now_ms, is_hidden=is_hidden)

        try:
            view = await self._store.transact(replace)
        except HoldfastError as error:
            await remove_refused(self._store.blobs, [content], error)
            raise
        if view is None:
            await remove_unused(self._store.blobs, [content])
        return view

    async def hide(self, member: Member, claim: Claim, is_hidden: bool, expectation: Expectation) -> View:
        now_ms = self._clock.now_ms()
        return await self._store.transact(
            lambda tx: rules.hide(tx, member, claim, is_hidden, expectation, now_ms)
        )

    async def remove(self, member: Member, claim: Claim, expectation: Expectation) -> tuple[bool, int]:
        """Whether there was something to remove, and the version that its removal will have."""
        now_ms = self._clock.now_ms()
        return await self._store.transact(lambda tx: rules.remove(tx, member, claim, expectation, now_ms))

    # -- the resource manager's side

    def reads(self, txn_id: str, members: Sequence[Member]) -> Sequence[bytes]:
        keys = {self.index.states.key(member.namespace) for member in members}
        for member in members:
            keys |= {STAGES.key(txn_id, *member), DOCUMENTS.key(*member)}
        return list(keys)

    def apply(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int
    ) -> None:
        """Publish or drop what the transaction staged."""
        staging.apply(tx, txn_id, decision, members, now_ms, self.index)

    def keep(
        self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member], now_ms: int
    ) -> int:
        """What is staged lives as long as its lease."""
        return expires_at_ms

    # -- documents that belong to something of another service

    def open_message_state(self, tx: Transaction, member: Member) -> None:
        """A document without content that queries do not show, unless there is one already."""
        rules.open_message_state(tx, member)

    def forget_message_state(self, tx: Transaction, member: Member, txn_id: str, now_ms: int) -> None:
        """The document goes, and all that belongs to it or is staged for it under this transaction."""
        rules.forget_message_state(tx, member, txn_id, now_ms, self.index)

    # -- small parts

    def _intake(self, member: Member) -> Intake:
        return Intake(self._store.blobs, _blob_context(member))


def _blob_context(member: Member) -> str:
    return f"state:{member.namespace}/{member.key}"
