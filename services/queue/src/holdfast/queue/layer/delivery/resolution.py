"""What a consumer does with its delivery: ack, nack, extend. Each is one commit, with everything that follows from it.

The lease is judged in the very transaction that acts on it. An ack of the ordinary kind needs no transaction: what this
process remembers of the lease is enough to accept it, because the commit expects it to be true.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock, unix_s
from holdfast.common.errors import HoldfastError
from holdfast.queue.layer.delivery.endings import Endings
from holdfast.queue.layer.delivery.transaction_binding import TransactionBinding, check_state_etag
from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.dispatch.window import Entry, Place
from holdfast.queue.layer.errors import MessageLeaseMismatch, MessageNotFound
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message import records, rules
from holdfast.queue.layer.message.records import TAKEN, Writes, keys_of, member_of_message
from holdfast.queue.layer.message.types import (
    Acked,
    Extended,
    ExtendOrder,
    LeaseClaim,
    NackIntent,
    NackOrder,
    Requeued,
)
from holdfast.queue.layer.records_pb2 import MessageState
from holdfast.storage.errors import Conflict
from holdfast.storage.port import Store, Transaction
from holdfast.txn.layer.port import Decision


class Settlements:
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
        """The caller went away; nobody is left to be told how the commit ended."""
        queue = self._dispatchers.find(claim.address)
        if queue is not None:
            self._dispatchers.spawn(queue.read_again([entry]))

    def _known(self, claim: LeaseClaim, now_ms: int) -> Entry | None:
        """What is remembered of the delivery, if that is enough to accept the claim."""
        queue = self._dispatchers.find(claim.address)
        entry = None if queue is None else queue.window.get(claim.message_id)
        if entry is None or entry.place is not Place.OUT:
            return None
        state = entry.state
        is_plain = not (state.is_enlisted or state.has_state or claim.state)
        return entry if is_plain and rules.is_claim_right(claim, state, now_ms) else None

    async def _ack_read(self, claim: LeaseClaim) -> str:
        seen_correlation_id = ""

        def ack(tx: Transaction) -> str:
            nonlocal seen_correlation_id
            try:
                state = self._held(tx, claim)
            except MessageNotFound:
                if self._binding.is_committed(tx, claim.txn_id):
                    return seen_correlation_id
                raise
            seen_correlation_id = state.correlation_id
            check_state_etag(claim)
            address, message_id = claim.address, claim.message_id
            keys = keys_of(address)
            records.remove(tx, keys, message_id, keys.taken(message_id), state)
            if state.is_enlisted:
                self._binding.decide(tx, state.txn_id, Decision.COMMIT)
            self._binding.forget_state(tx, address, message_id, state)
            tx.after_commit(lambda _: self._dispatchers.forget(address, message_id))
            return state.correlation_id

        return await self._store.transact(ack)

    # -- nack

    async def nack(self, order: NackOrder) -> Requeued:
        rest: Callable[[], Awaitable[None]] | None = None

        def nack(tx: Transaction) -> Requeued:
            nonlocal rest
            state = self._held(tx, order.claim)
            rules.check_etag(order.claim, state)
            now_ms = self._clock.now_ms()
            ready = rules.requeued(
                state,
                visible_at_ms=rules.visible_from_ms(order.delay_s, now_ms),
                last_error=order.last_error,
                is_failure=order.intent is NackIntent.FAILURE,
            )
            address, message_id = order.claim.address, order.claim.message_id
            records.leave(tx, keys_of(address), message_id, state)
            rest = self._binding.abandon(tx, state.txn_id) if state.is_enlisted else None
            kept = Decision.COMMIT if order.claim.state is not None else Decision.ROLLBACK
            self._binding.release_state(tx, address, message_id, state, kept)
            self._endings.free(tx, address, message_id, ready)
            return Requeued(rules.etag(ready), ready.correlation_id)

        if failpoint.ARMED:
            failpoint.hit("queue.nack.commit")
        requeued = await self._store.transact(nack)
        if rest is not None:
            with suppress(HoldfastError):  # The message is nacked; the others follow when their time is over.
                await rest()
        if failpoint.ARMED:
            failpoint.hit("queue.nack.answer")
        return requeued

    # -- extend

    async def extend(self, order: ExtendOrder) -> Extended:
        claim = order.claim
        keys = keys_of(claim.address)

        def extend(tx: Transaction) -> MessageState:
            state = self._held(tx, claim)
            rules.check_etag(claim, state)
            asked_s = min(order.extend_by_s or state.visibility_s, self._limits.visibility_s_max)
            kept = rules.extended(state, asked_s, self._clock.now_ms())
            if claim.state is not None:
                self._binding.extend_state(tx, claim, claim.state, kept.expires_at_ms)
            if kept.is_enlisted:
                member = member_of_message(claim.address, claim.message_id)
                self._binding.keep(tx, kept.txn_id, kept.expires_at_ms, but=member)
            place = records.take(tx, keys, claim.message_id, keys.taken(claim.message_id), kept)
            tx.after_commit(
                lambda revision: self._dispatchers.tell(
                    claim.address, [Entry(claim.message_id, place, revision, kept)]
                )
            )
            return kept

        kept = await self._store.transact(extend)
        expires_at_s = unix_s(kept.expires_at_ms)
        state_expires_at_s = expires_at_s if claim.state is not None else 0
        return Extended(
            expires_at_s, kept.visibility_s, rules.etag(kept), state_expires_at_s, kept.correlation_id
        )

    # -- small parts

    def _held(self, tx: Transaction, claim: LeaseClaim) -> MessageState:
        keys = keys_of(claim.address)
        state = TAKEN.get(tx, *claim.address, claim.message_id)
        if state is None:
            if tx.get(keys.message(claim.message_id)) is None:
                raise MessageNotFound("message already removed")
            raise MessageLeaseMismatch("the message is not delivered to anybody; dequeue it again")
        rules.check_claim(claim, state, self._clock.now_ms())
        return state
