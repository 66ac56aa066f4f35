"""The summaries of large documents in the store: which are wanted, which are there, and what they say."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from holdfast.common.logging import get_logger
from holdfast.leases.layer.records import member_of
from holdfast.state.layer.index.plan import Plan
from holdfast.state.layer.index.summary import Summary
from holdfast.state.layer.records import DOCUMENTS, is_large
from holdfast.state.layer.records_pb2 import Document, IndexPending, IndexSummary
from holdfast.storage.intake import INLINE_BYTES_MAX, Content, Intake, payload_of
from holdfast.storage.keys import next_key
from holdfast.storage.port import Store, Transaction
from holdfast.storage.tables import Table, blob_ref
from holdfast.txn.layer.port import Member

SUMMARIES = Table("indexsummary", IndexSummary)
PENDING = Table("indexinfo", IndexPending)  # Below what the index builder watches anyway.
_PENDING: Final = "pending"
_CACHED_BYTES_MAX: Final = 32 << 20

_log = get_logger("state.index")


def pending_member(key: bytes) -> Member | None:
    """Whose pending record this is; None: it is none."""
    start, end = PENDING.bounds(_PENDING)
    return member_of(key) if start <= key < end else None


class Summaries:
    """Of one store. A summary that is not there yet, or is another document's, lets everything through."""

    def __init__(self, store: Store, entry_format: str) -> None:
        self._store = store
        self._format = entry_format
        self._known: OrderedDict[str, Summary] = OrderedDict()
        self._known_bytes = 0
        self.on_wanted: Callable[[Member], None] = lambda member: None

    # -- in the commit that publishes

    def want(self, tx: Transaction, member: Member) -> None:
        PENDING.put(tx, IndexPending(), _PENDING, *member)
        tx.after_commit(lambda _: self.on_wanted(member))

    def forget(self, tx: Transaction, member: Member) -> None:
        """There is no large document any more."""
        SUMMARIES.delete(tx, *member)
        PENDING.delete(tx, _PENDING, *member)

    # -- queries

    async def may_match(self, member: Member, document: Document, plan: Plan) -> bool:
        if plan is None or not is_large(document):
            return True
        summary = self._known.get(document.etag)
        if summary is None:
            summary = await self._read(member, document.etag)
        else:
            self._known.move_to_end(document.etag)
        return summary is None or summary.may_match(plan)

    async def _read(self, member: Member, etag: str) -> Summary | None:
        found = await SUMMARIES.fetch(self._store, *member)
        if found is None or (found.etag, found.format) != (etag, self._format):
            return None
        content = found.content
        if not content.HasField("blob"):
            encoded = content.inline
        else:
            pieces = self._store.blobs.read(blob_ref(content.blob), context=_blob_context(member))
            encoded = b"".join([piece async for piece in pieces])
        try:
            summary = Summary(encoded)
        except DecodeError as error:
            _log.warn("index.summary.damaged", namespace=member.namespace, key=member.key, reason=str(error))
            return None
        self._keep(etag, summary)
        return summary

    def _keep(self, etag: str, summary: Summary) -> None:
        if etag not in self._known:
            self._known[etag] = summary
            self._known_bytes += summary.size_bytes
        while self._known_bytes > _CACHED_BYTES_MAX:
            _, dropped = self._known.popitem(last=False)
            self._known_bytes -= dropped.size_bytes

    # -- making them

    async def wanted(self, after: Member | None, limit: int) -> Sequence[Member]:
        """Up to `limit` of the documents that have no summary yet."""
        start = None if after is None else next_key(PENDING.key(_PENDING, *after))
        rows = await PENDING.fetch_range(self._store, _PENDING, limit=limit, start=start)
        return [Member(str(row.parts[1]), str(row.parts[2])) for row in rows]

    async def is_wanted(self, member: Member) -> bool:
        return await PENDING.fetch(self._store, _PENDING, *member) is not None

    async def has(self, member: Member, etag: str) -> bool:
        found = await SUMMARIES.fetch(self._store, *member)
        return found is not None and (found.etag, found.format) == (etag, self._format)

    async def drop_wanted(self, member: Member, etag: str) -> None:
        """There is a summary of this document already."""

        def drop(tx: Transaction) -> None:
            document = DOCUMENTS.get(tx, *member)
            if document is not None and document.etag == etag:
                PENDING.delete(tx, _PENDING, *member)

        await self._store.transact(drop)

    async def put(self, member: Member, etag: str, encoded: bytes) -> bool:
        """Whether the document is still the one that the summary was made of."""
        async with Intake(self._store.blobs, _blob_context(member)) as intake:
            for start in range(0, len(encoded), INLINE_BYTES_MAX):
                await intake.write(encoded[start : start + INLINE_BYTES_MAX])
            content = await intake.finish()

            def put(tx: Transaction) -> bool:
                document = DOCUMENTS.get(tx, *member)
                if document is not None and is_large(document) and document.etag != etag:
                    return False  # The commit that replaced it wants a summary of its own.
                PENDING.delete(tx, _PENDING, *member)
                if document is not None and is_large(document):
                    self._put(tx, member, etag, content)
                return True

            return await self._store.transact(put)

    def _put(self, tx: Transaction, member: Member, etag: str, content: Content) -> None:
        blobs = () if content.blob is None else (content.blob.id,)
        summary = IndexSummary(etag=etag, format=self._format, content=payload_of(content))
        SUMMARIES.put(tx, summary, *member, blobs=blobs)


def _blob_context(member: Member) -> str:
    return f"index:{member.namespace}/{member.key}"
