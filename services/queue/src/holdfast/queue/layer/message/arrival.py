"""Enqueue: messages become durable in one commit, and then the waiting consumers are notified.

What a transaction sends is durable too, but staged: its commit is what the consumers hear of.
"""

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock, end_ms
from holdfast.common.errors import HoldfastError
from holdfast.common.ids import is_xid, uuid7
from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.dispatch.pages import CACHED_MESSAGE_BYTES_MAX
from holdfast.queue.layer.dispatch.window import Entry
from holdfast.queue.layer.errors import BatchTooLarge, InvalidTxn
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message import records, rules, staging
from holdfast.queue.layer.message.deadlines import Deadlines
from holdfast.queue.layer.message.records import Writes, blob_context, keys_of
from holdfast.queue.layer.message.staging import NewStaged
from holdfast.queue.layer.message.types import (
    BATCH_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    EnqueueOrder,
    Message,
    QueueAddress,
)
from holdfast.queue.layer.records_pb2 import MessageState, QueueMessage, QueuePolicy, StagedMessage
from holdfast.storage.errors import InvalidBatch, StorageError
from holdfast.storage.intake import (
    INLINE_BYTES_MAX,
    Content,
    Intake,
    payload_of,
    pieces_of,
    remove_refused,
    remove_unused,
)
from holdfast.storage.port import Store
from holdfast.txn.layer.port import Decider


class Arrival(NamedTuple):
    """A message on its way into the store."""

    address: QueueAddress
    message_id: str
    place: bytes
    message: QueueMessage
    state: MessageState

    def entry(self, revision: int) -> Entry:
        is_small = self.message.ByteSize() <= CACHED_MESSAGE_BYTES_MAX
        return Entry(self.message_id, self.place, revision, self.state, self.message if is_small else None)


class Arrivals:
    """Enqueue, for one message or many."""

    def __init__(
        self,
        store: Store,
        clock: SteadyClock,
        dispatchers: Dispatchers,
        deadlines: Deadlines,
        limits: QueueLimits,
        decider: Decider,
    ) -> None:
        self._store = store
        self._clock = clock
        self._dispatchers = dispatchers
        self._deadlines = deadlines
        self._limits = limits
        self._decider = decider
        self.stored_messages = 0
        """Those staged in a transaction too, whatever becomes of it: another process may decide on that, and would count it
        where nobody looks for what was enqueued."""
        self.stored_bytes = 0
        """Of payloads."""

    def open_intake(self, address: QueueAddress) -> Intake:
        """For a payload that streams; `async with` it, `finish` gives the content for `enqueue`."""
        return Intake(self._store.blobs, blob_context(address))

    async def content_of(self, address: QueueAddress, payload: bytes) -> Content:
        """A payload that is in memory already."""
        if len(payload) <= INLINE_BYTES_MAX:
            return Content(payload, None, len(payload), sha256(payload).digest())
        async with self.open_intake(address) as intake:
            async for piece in pieces_of(payload):
                await intake.write(piece)
            return await intake.finish()

    async def forget(self, contents: Sequence[Content]) -> None:
        """Payloads that no enqueue was given."""
        await remove_unused(self._store.blobs, contents)

    async def enqueue(self, orders: Sequence[tuple[EnqueueOrder, Content]]) -> list[Message]:
        """All in one commit, or none: into their queues, or into the transaction that all of them name. BatchTooLarge
        above BATCH_MAX or the size of one commit. Of those that are refused no payload is left."""
        try:
            messages = await self._enqueue(orders)
        except HoldfastError as error:
            await remove_refused(self._store.blobs, [content for _, content in orders], error)
            raise
        self.stored_messages += len(messages)
        self.stored_bytes += sum([message.payload_bytes for message in messages])
        return messages

    async def _enqueue(self, orders: Sequence[tuple[EnqueueOrder, Content]]) -> list[Message]:
        if len(orders) > BATCH_MAX:
            raise BatchTooLarge(f"at most {BATCH_MAX} messages in one call")
        txn_id = _transaction_of([order for order, _ in orders])
        policies: list[QueuePolicy] = []
        for order, _ in orders:
            queue = self._dispatchers.by_address.get(order.address)
            if queue is None or not queue.is_loaded:
                queue = await self._dispatchers.loaded(order.address)
            policies.append(queue.policy)
        if txn_id:
            return await self._stage(txn_id, orders, policies)
        # From here to the commit nothing waits: the order of ids and times is the order of commits.
        writes = Writes()
        now_ms = self._clock.now_ms()
        arrivals = [
            self._add(writes, order, content, policy, now_ms)
            for (order, content), policy in zip(orders, policies, strict=True)
        ]
        writes.batch.fresh.update(writes.batch.puts)  # Each key holds an id that was minted just now.
        await self._commit(writes, arrivals)
        return [
            rules.message_view(arrival.address, arrival.message_id, arrival.message, arrival.state)
            for arrival in arrivals
        ]

    def _add(
        self, writes: Writes, order: EnqueueOrder, content: Content, policy: QueuePolicy, now_ms: int
    ) -> Arrival:
        message, state = new_message(order, content, policy, self._limits, now_ms)
        message_id = uuid7()
        place = records.add_new(writes, keys_of(order.address), message_id, message, state)
        return Arrival(order.address, message_id, place, message, state)

    async def _stage(
        self,
        txn_id: str,
        orders: Sequence[tuple[EnqueueOrder, Content]],
        policies: Sequence[QueuePolicy],
    ) -> list[Message]:
        """They stay with the transaction; the answer has their times as if it were committed now."""
        now_ms = self._clock.now_ms()
        messages = [
            _new_staged(order, content, policy, self._limits, now_ms)
            for (order, content), policy in zip(orders, policies, strict=True)
        ]
        if failpoint.ARMED:
            failpoint.hit("queue.enqueue.commit")
        bytes_max = self._limits.sent_bytes_max
        try:
            await self._store.transact(
                lambda tx: staging.stage(tx, txn_id, messages, bytes_max, now_ms, self._decider)
            )
        except InvalidBatch as error:
            raise _too_large() from error
        if failpoint.ARMED:
            failpoint.hit("queue.enqueue.answer")
        views = [
            rules.message_view(one.address, one.message_id, one.message, one.staged.state) for one in messages
        ]
        return [view._replace(txn_id=txn_id) for view in views]

    async def _commit(self, writes: Writes, arrivals: Sequence[Arrival]) -> None:
        if failpoint.ARMED:
            failpoint.hit("queue.enqueue.commit")
        try:
            revision = await self._store.commit(writes.batch)
        except asyncio.CancelledError:
            # The commit may still happen, and then the consumers have to be told.
            self._dispatchers.spawn(self._tell_later(arrivals))
            raise
        except InvalidBatch as error:
            raise _too_large() from error
        self._tell(arrivals, revision)
        if failpoint.ARMED:
            failpoint.hit("queue.enqueue.answer")

    def _tell(self, arrivals: Sequence[Arrival], revision: int) -> None:
        for address, group in groupby(arrivals, attrgetter("address")):
            queue = self._dispatchers.by_address.get(address)
            if queue is not None:
                queue.tell([arrival.entry(revision) for arrival in group])
        for arrival in arrivals:
            if arrival.state.deadline_ms:
                self._deadlines.told(arrival.state.deadline_ms)

    async def _tell_later(self, arrivals: Sequence[Arrival]) -> None:
        """All of them came with one commit, or none."""
        try:
            record = await self._store.transact(lambda tx: tx.get(arrivals[0].place), in_commit_order=True)
        except StorageError:
            for arrival in arrivals:
                self._dispatchers.reset(arrival.address)
            return
        if record is not None:
            self._tell(arrivals, record.mod_revision)


def new_message(
    order: EnqueueOrder, content: Content, policy: QueuePolicy, limits: QueueLimits, now_ms: int
) -> tuple[QueueMessage, MessageState]:
    """What a message carries, and its state when it is enqueued now."""
    ttl_s = order.ttl_s or policy.ttl_s
    message = QueueMessage(
        enqueued_at_ms=now_ms,
        visibility_s=order.visibility_s or policy.visibility_s or limits.visibility_s_default,
        content_type=order.content_type,
        attributes=order.attributes,
        payload=payload_of(content),
    )
    state = MessageState(
        max_attempts=order.max_attempts or policy.max_attempts or limits.max_attempts_default,
        deadline_ms=end_ms(now_ms, ttl_s) if ttl_s else 0,
        correlation_id=order.correlation_id,
        priority=max(PRIORITY_MIN, min(PRIORITY_MAX, order.priority)),
        visible_at_ms=rules.visible_from_ms(order.delay_s, now_ms),
    )
    return message, state


def _new_staged(
    order: EnqueueOrder, content: Content, policy: QueuePolicy, limits: QueueLimits, now_ms: int
) -> NewStaged:
    message, state = new_message(order, content, policy, limits, now_ms)
    staged = StagedMessage(
        state=state,
        delay_s=order.delay_s,
        ttl_s=order.ttl_s or policy.ttl_s,
        payload_bytes=message.payload.size_bytes,
    )
    return NewStaged(order.address, uuid7(), message, staged)


def _transaction_of(orders: Sequence[EnqueueOrder]) -> str:
    """The one that all of them name; empty: none."""
    named = {order.txn_id for order in orders}
    if len(named) > 1:
        raise InvalidTxn("the messages of one call are sent by one transaction, or by none")
    txn_id = named.pop() if named else ""
    if txn_id and not is_xid(txn_id):
        raise InvalidTxn("txn_id is no xid")
    return txn_id


def _too_large() -> BatchTooLarge:
    return BatchTooLarge("the messages are more than one commit takes; send fewer at a time")
