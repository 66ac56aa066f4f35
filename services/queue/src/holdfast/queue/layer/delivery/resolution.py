"""What a consumer does with its delivery: ack, nack, extend. Each is one commit, with everything that follows from it.

The lease is judged in the very transaction that acts on it. An ack of the ordinary kind needs no transaction: what this
process remembers of the lease is enough to accept it, because the commit expects it to be true.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock, unix_s
from holdfast.common.errors import HoldfastError
from holdfast.queue.layer.delivery import rules as delivery_rules
from holdfast.queue.layer.delivery.endings import Endings
from holdfast.queue.layer.delivery.rules import Nacked
from holdfast.queue.layer.delivery.transaction_binding import TransactionBinding
from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.dispatch.window import Entry, EntryStatus
from holdfast.queue.layer.errors import MessageNotFound
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message import records, rules
from holdfast.queue.layer.message.changes import Changes
from holdfast.queue.layer.message.records import TAKEN, Writes, keys_of
from holdfast.queue.layer.message.types import (
    Acked,
    Extended,
    ExtendOrder,
    LeaseClaim,
    NackOrder,
    Requeued,
)
from holdfast.queue.layer.records_pb2 import MessageState
from holdfast.storage.errors import Conflict
from holdfast.storage.port import Store, Transaction


class Resolutions:
    """The deliveries of one store."""

    def __init__(
        self,
        store: Store,
        clock: SteadyClock,
        dispatchers: Dispatchers,
        endings: Endings,
        binding: TransactionBinding,
        limits: QueueLimits,
    ) -> None:
        self._store = store
        self._clock = clock
        self._dispatchers = dispatchers
        self._endings = endings
        self._binding = binding
        self._limits = limits

    # -- ack

    async def ack(self, claim: LeaseClaim) -> Acked:
        if failpoint.ARMED:
            failpoint.hit("queue.ack.commit")
        known = await self._ack_known([claim])
        correlation_id = known[0] if known is not None else await self._ack_read(claim)
        if failpoint.ARMED:
            failpoint.hit("queue.ack.answer")
        return Acked(correlation_id)

    async def ack_known(self, claims: Sequence[LeaseClaim]) -> list[Acked] | None:
        """All of them in one commit, if all are known to be held; else none."""
        known = await self._ack_known(claims)
        return None if known is None else [Acked(correlation_id) for correlation_id in known]

    async def with_transaction(self, claim: LeaseClaim) -> LeaseClaim:
        """Named before the first ack of a transaction removes all its messages, and with them what they belong to."""
        if claim.txn_id:
            return claim
        state = await TAKEN.fetch(self._store, *claim.address, claim.message_id)
        if state is None or not state.is_enlisted or state.lease_id != claim.lease_id:
            return claim
        return claim._replace(txn_id=state.txn_id)

    async def _ack_known(self, claims: Sequence[LeaseClaim]) -> list[str] | None:
        if len({(claim.address, claim.message_id) for claim in claims}) < len(claims):
            return None  # The second one finds nothing, and has to be told so.
        now_ms = self._clock.now_ms()
        writes = Writes()
        correlation_ids: list[str] = []
        entries: list[Entry] = []
        for claim in claims:
            entry = self._known(claim, now_ms)
            if entry is None:
                return None
            entries.append(entry)
            writes.expect(entry.key, entry.revision)
            keys = keys_of(claim.address)
            records.remove(writes, keys, claim.message_id, entry.key, entry.state)
            correlation_ids.append(entry.state.correlation_id)
        try:
            await self._store.commit(writes.batch)
        except Conflict:
            return None
        except asyncio.CancelledError:
            for claim, entry in zip(claims, entries, strict=True):
                self._look_again_later(claim, entry)
            raise
        for claim in claims:
            self._dispatchers.forget(claim.address, claim.message_id)
        return correlation_ids

    def _look_again_later(self, claim: LeaseClaim, entry: Entry) -> None:
        """The caller went away, so the outcome of the commit is read back from the store."""
        queue = self._dispatchers.find(claim.address)
        if queue is not None:
            self._dispatchers.spawn(queue.read_again([entry]))

    def _known(self, claim: LeaseClaim, now_ms: int) -> Entry | None:
        """What is remembered of the delivery, if that is enough to accept the claim."""
        queue = self._dispatchers.find(claim.address)
        entry = None if queue is None else queue.window.get(claim.message_id)
        if entry is None or entry.status is not EntryStatus.OUT:
            return None
        state = entry.state
        is_plain = not (state.is_enlisted or state.has_state or claim.state)
        return entry if is_plain and rules.is_claim_right(claim, state, now_ms) else None

    async def _ack_read(self, claim: LeaseClaim) -> str:
        seen_correlation_id = ""
        now_ms = self._clock.now_ms()

        def ack(tx: Transaction) -> str:
            nonlocal seen_correlation_id
            try:
                state = delivery_rules.held(tx, claim, now_ms)
            except MessageNotFound:
                if self._binding.is_committed(tx, claim.txn_id):
                    return seen_correlation_id
                raise
            # Before the leader of a cluster decides: the next run may find the message acked.
            seen_correlation_id = state.correlation_id
            changes = Changes()
            delivery_rules.ack(tx, claim, state, now_ms, self._binding, changes)
            self._endings.follow(tx, changes)
            return state.correlation_id

        return await self._store.transact(ack)

    # -- nack

    async def nack(self, order: NackOrder) -> Requeued:
        now_ms = self._clock.now_ms()

        def nack(tx: Transaction) -> Nacked:
            changes = Changes()
            nacked = delivery_rules.nack(tx, order, now_ms, self._binding, changes)
            self._endings.follow(tx, changes)
            return nacked

        if failpoint.ARMED:
            failpoint.hit("queue.nack.commit")
        requeued, rest = await self._store.transact(nack)
        if rest is not None:
            with suppress(HoldfastError):  # The message is nacked; the others follow when their time is over.
                await rest()
        if failpoint.ARMED:
            failpoint.hit("queue.nack.answer")
        return requeued

    # -- extend

    async def extend(self, order: ExtendOrder) -> Extended:
        claim = order.claim
        visibility_s_max = self._limits.visibility_s_max

        now_ms = self._clock.now_ms()

        def extend(tx: Transaction) -> MessageState:
            changes = Changes()
            kept = delivery_rules.extend(tx, order, visibility_s_max, now_ms, self._binding, changes)
            self._endings.follow(tx, changes)
            return kept

        kept = await self._store.transact(extend)
        expires_at_s = unix_s(kept.expires_at_ms)
        state_expires_at_s = expires_at_s if claim.state is not None else 0
        return Extended(
            expires_at_s, kept.visibility_s, rules.etag(kept), state_expires_at_s, kept.correlation_id
        )
