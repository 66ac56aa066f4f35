"""Documents of unused keys are removed; the records that removals leave are deleted some time later.

Two walks. One over the leases: each key with a document has one, it is small, and its time is that of the last use. One over
the list of removed documents. The lease of the key itself is forgotten by the leases service, once no document is left.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from holdfast.common.clock import SteadyClock
from holdfast.common.ids import new_xid
from holdfast.leases.layer.records import LEASES, member_of
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.leases.layer.retention import Retention
from holdfast.state.layer.attachment import records as attachment_records
from holdfast.state.layer.document import rules
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.records import DOCUMENTS, EMPTY, is_empty
from holdfast.state.layer.records_pb2 import Document
from holdfast.state.metrics import RetentionMetrics
from holdfast.storage.maintenance.janitor import STEP_RECORDS, Janitor
from holdfast.storage.port import Record, Store, Transaction
from holdfast.txn.layer.lifetime import is_message_there, message_of_state
from holdfast.txn.layer.port import Member

AT_ONCE_MAX: Final = 16  # Each document is a commit of its own; together they share a sync.


class DocumentRetention:
    """Both walks over one store."""

    def __init__(
        self,
        store: Store,
        state: StateService,
        clock: SteadyClock,
        retention: Retention,
        metrics: RetentionMetrics,
    ) -> None:
        self._store = store
        self._index = state.index
        self._clock = clock
        self._retention = retention
        self._metrics = metrics
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        pace = retention.pace
        self._janitors: list[Janitor] = []
        if retention.document_s:
            self._janitors.append(
                Janitor(
                    store,
                    "documents",
                    LEASES.bounds(),
                    self.visit_leases,
                    pace=pace,
                    now_ms=clock.now_ms,
                )
            )
        if retention.key_s:
            self._janitors.append(
                Janitor(store, "removed", EMPTY.bounds(), self.visit_removed, pace=pace, now_ms=clock.now_ms)
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for janitor in self._janitors:
                await stack.enter_async_context(janitor.running())
            yield

    async def walk(self) -> int:
        """One pass of each, if it is time for it; how many documents and remains of documents are gone."""
        return sum([await janitor.walk() for janitor in self._janitors])

    # -- documents

    async def visit_leases(self, records: Sequence[Record]) -> int:
        now_ms = self._clock.now_ms()
        idle = [
            member_of(record.key)
            for record in records
            if _is_idle(LEASES.decode(record), self._retention.document_s, now_ms)
        ]
        freed = await asyncio.gather(*map(self._remove_alone, idle))
        removed = [freed_bytes for freed_bytes in freed if freed_bytes is not None]
        self._metrics.documents.inc(len(removed))
        self._metrics.freed_bytes.inc(sum(removed))
        return len(removed)

    async def _remove_alone(self, member: Member) -> int | None:
        # Here, because the function may run more than once and must then read the same keys.
        txn_id = new_xid()
        async with self._at_once:
            now_ms = self._clock.now_ms()
            return await self._store.transact(lambda tx: self._remove(tx, member, txn_id, now_ms))

    def _remove(self, tx: Transaction, member: Member, txn_id: str, now_ms: int) -> int | None:
        """The bytes that are free now; None: there is no document, or its key is in use."""
        document = DOCUMENTS.get(tx, *member)
        if document is None or is_empty(document):
            return None
        if not _is_unused(tx, member, document, self._retention.document_s, now_ms):
            return None
        attachments = attachment_records.committed_of(tx, member) if document.attachment_count else []
        rules.forget_document(tx, member, document, txn_id, now_ms, self._index)
        return document.content.size_bytes + sum(named.attachment.size_bytes for named in attachments)

    # -- what removals leave

    async def visit_removed(self, records: Sequence[Record]) -> int:
        members = [member_of(record.key) for record in records]
        count = 0
        for start in range(0, len(members), STEP_RECORDS):
            count += await self._forget_step(members[start : start + STEP_RECORDS])
        return count

    async def _forget_step(self, members: Sequence[Member]) -> int:
        now_ms = self._clock.now_ms()
        return await self._store.transact(
            lambda tx: _forget_removed(tx, members, self._retention.key_s, now_ms)
        )


def _forget_removed(tx: Transaction, members: Sequence[Member], retention_s: float, now_ms: int) -> int:
    # One round trip instead of two for each.
    tx.get_many([table.key(*member) for member in members for table in (DOCUMENTS, LEASES)])
    count = 0
    for member in members:
        document = DOCUMENTS.get(tx, *member)
        if document is None or not is_empty(document):
            tx.delete(EMPTY.key(*member))  # A stray entry: it would be looked at for ever.
        elif _is_unused(tx, member, document, retention_s, now_ms):
            DOCUMENTS.delete(tx, *member)
            tx.delete(EMPTY.key(*member))
            count += 1
    return count


def _is_unused(tx: Transaction, member: Member, document: Document, retention_s: float, now_ms: int) -> bool:
    """Read in the commit that acts on it: an acquire of the key meanwhile makes that a conflict."""
    if not _is_past(document.updated_at_s, retention_s, now_ms):
        return False
    lease = LEASES.get(tx, *member)
    if lease is not None and not _is_idle(lease, retention_s, now_ms):
        return False
    place = message_of_state(member)
    return place is None or not is_message_there(tx, place)


def _is_idle(lease: Lease, retention_s: float, now_ms: int) -> bool:
    """It is not held, so no transaction has staged anything for it."""
    return not lease.lease_id and _is_past(lease.updated_at_s, retention_s, now_ms)


def _is_past(updated_at_s: int, retention_s: float, now_ms: int) -> bool:
    return updated_at_s + retention_s <= now_ms / 1000
