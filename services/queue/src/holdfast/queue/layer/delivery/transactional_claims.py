"""Claims that bind more than a message: to a transaction of the caller's, or to the lease on its state. One commit too."""

import asyncio
from collections.abc import Callable

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock, unix_s
from holdfast.common.ids import new_xid
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.queue.layer.delivery import rules as delivery_rules
from holdfast.queue.layer.delivery.claims import Carried
from holdfast.queue.layer.delivery.endings import Endings
from holdfast.queue.layer.delivery.rules import Ids, Known, Overtaken
from holdfast.queue.layer.delivery.transaction_binding import TransactionBinding, state_etag
from holdfast.queue.layer.dispatch.dispatcher import Dispatcher
from holdfast.queue.layer.dispatch.window import Entry
from holdfast.queue.layer.message.rules import delivery_view
from holdfast.queue.layer.message.types import Delivery, DequeueOrder, StateLease
from holdfast.queue.layer.records_pb2 import MessageState, QueueMessage
from holdfast.storage.errors import StorageError
from holdfast.storage.port import Store, Transaction
from holdfast.txn.layer.port import Decider, LeaseHeld


class TransactionalClaims:
    """Claims by transaction: what they bind has to be read."""

    def __init__(
        self,
        store: Store,
        clock: SteadyClock,
        endings: Endings,
        binding: TransactionBinding,
        decider: Decider,
    ) -> None:
        self._store = store
        self._clock = clock
        self._endings = endings
        self._binding = binding
        self._decider = decider

    async def claim(
        self, queue: Dispatcher, carried: Carried, order: DequeueOrder, visibility_s: int
    ) -> list[Delivery]:
        """All of them; none if another claim was faster, or the state is held."""
        ids = [Ids(new_xid(), order.txn_id or self._decider.mint()) for _ in carried]
        state_lease_ids = [new_xid() if order.with_state else "" for _ in carried]
        now_ms = self._clock.now_ms()

        def claim(tx: Transaction) -> list[Delivery]:
            deliveries: list[Delivery] = []
            for (entry, message), minted, state_lease_id in zip(carried, ids, state_lease_ids, strict=True):
                state = self._claimed(tx, queue, entry, order, minted, visibility_s, now_ms)
                lease = self._state_lease(tx, queue, entry, state, state_lease_id, now_ms)
                deliveries.append(self._delivery(queue, entry, message, state, lease))
            return deliveries

        entries = [entry for entry, _ in carried]
        try:
            return await self._committed(queue, entries, claim)
        except asyncio.CancelledError:
            lease_ids = [minted.lease_id for minted in ids]
            self._endings.undo_soon(queue, list(zip(entries, lease_ids, strict=True)))
            raise

    async def _committed(
        self, queue: Dispatcher, entries: list[Entry], claim: Callable[[Transaction], list[Delivery]]
    ) -> list[Delivery]:
        if failpoint.ARMED:
            failpoint.hit("queue.claim.commit")
        try:
            deliveries = await self._store.transact(claim)
        except Overtaken:
            await queue.read_again(entries)
        except LeaseHeld as held:
            await self._endings.defer(queue, entries, held.expires_at_ms)
        except StorageError:
            queue.reset()
            raise
        else:
            if failpoint.ARMED:
                failpoint.hit("queue.claim.answer")
            return deliveries
        return []

    def _claimed(
        self,
        tx: Transaction,
        queue: Dispatcher,
        entry: Entry,
        order: DequeueOrder,
        ids: Ids,
        visibility_s: int,
        now_ms: int,
    ) -> MessageState:
        known = Known(entry.message_id, entry.key, entry.revision, entry.state)
        place, state = delivery_rules.claim(
            tx, queue.address, known, order, ids, visibility_s, now_ms, self._binding
        )
        tx.after_commit(lambda revision: queue.taken(entry, place, state, revision))
        return state

    def _state_lease(
        self,
        tx: Transaction,
        queue: Dispatcher,
        entry: Entry,
        state: MessageState,
        lease_id: str,
        now_ms: int,
    ) -> Lease | None:
        if not lease_id:
            return None
        return self._binding.grant_state(tx, queue.address, entry.message_id, state, lease_id, now_ms)

    def _delivery(
        self, queue: Dispatcher, entry: Entry, message: QueueMessage, state: MessageState, lease: Lease | None
    ) -> Delivery:
        state_lease = None
        if lease is not None:
            state_lease = StateLease(
                state_etag(entry.message_id),
                lease.lease_id,
                unix_s(lease.expires_at_ms),
                lease.fencing_token,
                lease.txn_id,
            )
        return delivery_view(queue.address, entry.message_id, message, state, state_lease)
