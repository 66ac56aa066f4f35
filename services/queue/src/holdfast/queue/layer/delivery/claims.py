"""Claims: a message, its count of deliveries and its lease change hands in one commit.

A claimer knows the record it claims by its revision, so a claim reads nothing; if another claim was faster, the commit
fails, the record is read again, and the consumer goes on waiting.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.common.ids import new_xid
from holdfast.queue.layer.delivery.endings import Endings
from holdfast.queue.layer.dispatch.dispatcher import Dispatcher
from holdfast.queue.layer.dispatch.window import Entry
from holdfast.queue.layer.message import records, rules
from holdfast.queue.layer.message.records import MESSAGES, Writes
from holdfast.queue.layer.message.rules import Disposition, delivery_view
from holdfast.queue.layer.message.types import Delivery, DequeueOrder
from holdfast.queue.layer.records_pb2 import MessageState, QueueMessage
from holdfast.storage.errors import Conflict, StorageError
from holdfast.storage.port import Store
from holdfast.txn.layer.port import Decider

CLAIM_BYTES_MAX = 8 << 20  # Of what is held in memory for one consumer; large payloads lie in blobs.
READ_ENTRIES_MAX = 32

Carried = list[tuple[Entry, QueueMessage]]


class PendingClaim(NamedTuple):
    """One message on its way to its consumer."""

    entry: Entry
    place: bytes
    state: MessageState
    message: QueueMessage


class Claims:
    """Claims without a transaction of the caller's and without state: the ordinary ones."""

    def __init__(self, store: Store, clock: SteadyClock, endings: Endings, decider: Decider) -> None:
        self._store = store
        self._clock = clock
        self._endings = endings
        self._decider = decider

    async def claim(
        self, queue: Dispatcher, carried: Carried, order: DequeueOrder, visibility_s: int
    ) -> list[Delivery]:
        """All of them in one commit; none if another claim was faster."""
        keys = queue.keys
        now_ms = self._clock.now_ms()
        writes = Writes()
        claims: list[PendingClaim] = []
        for entry, message in carried:
            state = rules.claimed(
                entry.state,
                lease_id=new_xid(),
                txn_id=self._decider.mint(),
                owner=order.owner,
                is_enlisted=False,
                visibility_s=visibility_s,
                now_ms=now_ms,
            )
            writes.expect(entry.key, entry.revision)
            place = records.claim(writes, keys, entry.message_id, entry.key, entry.state, state)
            claims.append(PendingClaim(entry, place, state, message))
        try:
            if not claims or not await self._commit(queue, writes, claims):
                return []
        except asyncio.CancelledError:
            self._endings.undo_soon(queue, [(entry, state.lease_id) for entry, _, state, _ in claims])
            raise
        return [
            delivery_view(queue.address, entry.message_id, message, state)
            for entry, _, state, message in claims
        ]

    async def carried(self, queue: Dispatcher, entries: list[Entry]) -> tuple[Carried, list[Entry]]:
        """The entries that may be delivered, with what they carry; and those that are too much for one claim."""
        carried: Carried = []
        size_bytes = 0
        for start in range(0, len(entries), READ_ENTRIES_MAX):
            for entry, message in await self._read(queue, entries[start : start + READ_ENTRIES_MAX]):
                carried.append((entry, message))
                size_bytes += message.ByteSize()
            if size_bytes >= CLAIM_BYTES_MAX:
                return carried, entries[start + READ_ENTRIES_MAX :]
        return carried, []

    async def _read(self, queue: Dispatcher, entries: Sequence[Entry]) -> Carried:
        missing = [queue.keys.message(entry.message_id) for entry in entries if entry.message is None]
        found = await self._store.get_many(missing) if missing else {}
        now_ms = self._clock.now_ms()
        carried: Carried = []
        for entry in entries:
            message = entry.message
            if message is None:
                record = found.get(queue.keys.message(entry.message_id))
                if record is None:  # Acked or purged while it was on its way out of the window.
                    queue.forget(entry.message_id)
                    continue
                message = MESSAGES.decode(record)
            if rules.disposition(entry.state, now_ms) is not Disposition.READY:
                self._endings.end_soon(queue, entry)
                continue
            carried.append((entry, message))
        return carried

    async def _commit(self, queue: Dispatcher, writes: Writes, claims: Sequence[PendingClaim]) -> bool:
        if failpoint.ARMED:
            failpoint.hit("queue.claim.commit")
        try:
            revision = await self._store.commit(writes.batch)
        except Conflict:
            await queue.read_again([claim.entry for claim in claims])
            return False
        except StorageError:
            queue.reset()
            raise
        for entry, place, state, _ in claims:
            queue.window.taken(entry, place, state, revision)
        queue.set_timer()
        if failpoint.ARMED:
            failpoint.hit("queue.claim.answer")
        return True
