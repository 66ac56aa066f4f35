"""The queue: messages in, deliveries out, and what becomes of them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.queue.layer.delivery import enlistment
from holdfast.queue.layer.delivery.claims import Claims
from holdfast.queue.layer.delivery.endings import Endings
from holdfast.queue.layer.delivery.resolution import Resolutions
from holdfast.queue.layer.delivery.transaction_binding import Dependencies, TransactionBinding
from holdfast.queue.layer.delivery.transactional_claims import TransactionalClaims
from holdfast.queue.layer.dispatch.consumers import Consumers
from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.dispatch.feed import Feed
from holdfast.queue.layer.dispatch.subscription import Subscription
from holdfast.queue.layer.inspection import Inspection
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.arrival import Arrivals
from holdfast.queue.layer.message.changes import Changes
from holdfast.queue.layer.message.dead_letters import DeadLetters
from holdfast.queue.layer.message.deadlines import Deadlines
from holdfast.queue.layer.message.policies import Policies
from holdfast.queue.layer.message.records import blob_context
from holdfast.queue.layer.message.types import (
    Acked,
    Availability,
    Body,
    DeadLetter,
    Delivery,
    DequeueOrder,
    Extended,
    ExtendOrder,
    LeaseClaim,
    Message,
    NackOrder,
    Policy,
    QueueAddress,
    Requeued,
    Stats,
)
from holdfast.storage.port import Store, Transaction
from holdfast.txn.layer.port import Decision, Member


class QueueService:
    """The queues of one store. Every method raises errors of `queue/errors.py` and of storage only."""

    member_prefix: str = "q/"

    def __init__(
        self, store: Store, clock: SteadyClock, dependencies: Dependencies, limits: QueueLimits | None = None
    ) -> None:
        limits = limits or QueueLimits()
        binding = TransactionBinding(dependencies)
        self._store = store
        self._binding = binding
        self._clock = clock
        self._endings = Endings(store, clock, binding)
        self._dispatchers = Dispatchers(store, clock, self._endings.expired, limits)
        self._endings.dispatchers = self._dispatchers
        self._deadlines = Deadlines(store, clock, self._endings)
        self._endings.on_deadline = self._deadlines.told
        self.arrivals = Arrivals(
            store, clock, self._dispatchers, self._deadlines, limits, dependencies.decider
        )
        claims = Claims(store, clock, self._endings, dependencies.decider)
        transactional_claims = TransactionalClaims(store, clock, self._endings, binding, dependencies.decider)
        self._consumers = Consumers(self._dispatchers, claims, transactional_claims, limits)
        self._resolutions = Resolutions(store, clock, self._dispatchers, self._endings, binding, limits)
        self._inspection = Inspection(store, clock, self._dispatchers)
        self._dead_letters = DeadLetters(store, clock, self._endings, binding)
        self._policies = Policies(store, self._dispatchers, limits.visibility_s_max)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End what is past its TTL, and follow other processes, for the length of the block."""
        feed = Feed(self._store, self._dispatchers)
        async with feed.running(), self._deadlines.following():
            self._dispatchers.spawn(self._deadlines.run())
            try:
                with self._clock.stepping(self._clock_stepped):
                    yield
            finally:
                await self._dispatchers.close()

    def _clock_stepped(self) -> None:
        """A message that was to become visible or to end later may be due now."""
        self._deadlines.look_again()
        for queue in list(self._dispatchers):
            queue.clock_stepped()

    # -- levels, for the metrics

    @property
    def consumers(self) -> int:
        return self._consumers.total

    @property
    def waiters(self) -> int:
        return sum(queue.waiting_consumers for queue in self._dispatchers)

    @property
    def pending(self) -> int:
        """Messages in memory that no consumer holds."""
        return sum(len(queue.window) - queue.window.out for queue in self._dispatchers)

    @property
    def in_flight(self) -> int:
        return sum(queue.window.out for queue in self._dispatchers)

    # -- out

    async def dequeue(self, order: DequeueOrder) -> list[Delivery]:
        """At least one. NoMessages when the caller's patience ends first. Cancelling leaves no lease and no waiter."""
        return await self._consumers.dequeue(order)

    def subscribe(self, order: DequeueOrder) -> Subscription:
        return Subscription(self._consumers, order)

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """They were never sent: ready again at once, in their old place, as if they had not been delivered."""
        for delivery in deliveries:
            message = delivery.message
            await self.give_back_unsent(message.address, message.message_id, delivery.lease_id)

    async def give_back_unsent(self, address: QueueAddress, message_id: str, lease_id: str) -> None:
        """One of them, if it is still held by that lease."""
        await self._endings.give_back(address, message_id, lease_id)

    def give_back_soon(self, deliveries: Sequence[Delivery]) -> None:
        """The same, for a caller that cannot wait for it."""
        self._dispatchers.spawn(self.give_back(deliveries))

    async def open_payload(self, address: QueueAddress, body: Body) -> AsyncIterator[bytes]:
        """The bytes of a payload, wherever they lie."""
        if body.blob is None:
            yield body.inline
            return
        async for piece in self._store.blobs.read(body.blob, context=blob_context(address)):
            yield piece

    # -- what becomes of a delivery

    async def ack(self, claim: LeaseClaim) -> Acked:
        return await self._resolutions.ack(claim)

    async def ack_many(self, claims: Sequence[LeaseClaim]) -> list[Acked | HoldfastError]:
        """Each for itself: one that is refused does not stop the others."""
        known = await self._resolutions.ack_known(claims)
        if known is not None:
            return list(known)
        named = [await self._resolutions.with_transaction(claim) for claim in claims]
        return [await self._ack_or_refusal(claim) for claim in named]

    async def _ack_or_refusal(self, claim: LeaseClaim) -> Acked | HoldfastError:
        try:
            return await self._resolutions.ack(claim)
        except HoldfastError as refusal:
            return refusal

    async def nack(self, order: NackOrder) -> Requeued:
        return await self._resolutions.nack(order)

    async def extend(self, order: ExtendOrder) -> Extended:
        return await self._resolutions.extend(order)

    # -- looking

    async def stats(self, address: QueueAddress) -> Stats:
        return await self._inspection.stats(address)

    def watch(self, address: QueueAddress) -> AsyncIterator[Availability]:
        """The present state at once, then every change of it."""
        return self._inspection.watch(address)

    async def peek(self, address: QueueAddress, limit: int) -> list[tuple[Message, Body]]:
        """What would leave next, in order, without taking it."""
        return await self._inspection.peek(address, limit)

    # -- dead letters

    async def dead_letters(self, address: QueueAddress, limit: int, after: str = "") -> list[DeadLetter]:
        """In order of message id, from behind `after` on."""
        return await self._dead_letters.list(address, limit, after)

    async def redrive(self, address: QueueAddress, ids: Sequence[str] | None, limit: int) -> int:
        """Back into the queue with a fresh count of failures; None: the oldest `limit`. Returns how many."""
        return await self._dead_letters.redrive(address, ids, limit)

    async def purge(self, address: QueueAddress, ids: Sequence[str] | None, limit: int) -> int:
        """Away for ever; None: the oldest `limit`. Returns how many."""
        return await self._dead_letters.purge(address, ids, limit)

    # -- policy

    async def policy(self, address: QueueAddress) -> Policy:
        return await self._policies.get(address)

    async def set_policy(self, address: QueueAddress, policy: Policy) -> Policy:
        return await self._policies.set(address, policy)

    async def pause(self, address: QueueAddress) -> Policy:
        """Nothing leaves any more; everything else goes on."""
        return await self._policies.pause(address, is_paused=True)

    async def resume(self, address: QueueAddress) -> Policy:
        return await self._policies.pause(address, is_paused=False)

    # -- the resource manager's side

    def reads(self, txn_id: str, members: Sequence[Member]) -> Sequence[bytes]:
        return enlistment.reads(txn_id, members)

    def apply(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int
    ) -> None:
        """Commit acks the deliveries of a transaction and publishes what it sends; rollback gives back and drops."""
        changes = Changes()
        enlistment.apply(tx, txn_id, decision, members, now_ms, self._binding, changes)
        self._endings.follow(tx, changes)

    def keep(
        self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member], now_ms: int
    ) -> int:
        """The messages of a transaction stay with it until then at least."""
        changes = Changes()
        last_ms = enlistment.keep(tx, txn_id, expires_at_ms, members, now_ms, changes)
        self._endings.follow(tx, changes)
        return last_ms
