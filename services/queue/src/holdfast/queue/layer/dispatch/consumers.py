"""Consumers: how one waits for its deliveries, alone or as a stream."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.common.ids import is_xid
from holdfast.queue.layer.delivery.claims import Claims
from holdfast.queue.layer.delivery.transactional_claims import TransactionalClaims
from holdfast.queue.layer.dispatch.dispatcher import Dispatcher
from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.dispatch.window import Entry
from holdfast.queue.layer.errors import InvalidTxn, NoMessages, QueueBusy
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.types import BATCH_MAX, Delivery, DequeueOrder


class Consumers:
    """The consumers that ask this process for messages."""

    def __init__(
        self,
        dispatchers: Dispatchers,
        claims: Claims,
        transactional_claims: TransactionalClaims,
        limits: QueueLimits,
    ) -> None:
        self._dispatchers = dispatchers
        self._claims = claims
        self._transactional_claims = transactional_claims
        self._limits = limits
        self.total = 0

    async def dequeue(self, order: DequeueOrder) -> list[Delivery]:
        """At least one delivery; NoMessages when the caller's patience ends first."""
        queue = await self.opened(order)
        deliveries = await self.ready(queue, order)
        if deliveries:
            return deliveries
        if order.wait_s == 0:
            raise NoMessages("no messages available")
        queue = await self.opened(order)  # An idle queue may have been forgotten while a claim failed.
        with self.counted(queue):
            return await self.awaited(queue, order)

    async def opened(self, order: DequeueOrder) -> Dispatcher:
        if order.txn_id and not is_xid(order.txn_id):
            raise InvalidTxn("txn_id is no xid")
        return await self._dispatchers.loaded(order.address)

    async def ready(self, queue: Dispatcher, order: DequeueOrder) -> list[Delivery]:
        """What may leave at once; nothing if others wait already."""
        deliveries = await self._at_hand(queue, order)
        if not deliveries and order.wait_s == 0 and await queue.look_in_store():
            return await self._at_hand(queue, order)
        return deliveries

    async def _at_hand(self, queue: Dispatcher, order: DequeueOrder) -> list[Delivery]:
        if queue.is_full:
            raise QueueBusy("too many messages are delivered and not acknowledged", retry_after_s=1)
        while entries := await queue.take(_count_max(order)):
            if deliveries := await self._claim(queue, entries, order):
                return deliveries
        return []

    async def awaited(self, queue: Dispatcher, order: DequeueOrder) -> list[Delivery]:
        """What comes when it is this consumer's turn."""
        loop = asyncio.get_running_loop()
        until_s = None if order.wait_s is None else loop.time() + order.wait_s
        while True:
            entries = await _turn(queue, order, until_s)
            if deliveries := await self._claim(queue, entries, order):
                return deliveries

    @contextmanager
    def counted(self, queue: Dispatcher) -> Iterator[None]:
        if self.total >= self._limits.consumers_max:
            raise QueueBusy("too many consumers", retry_after_s=1)
        self.total += 1
        queue.consumers += 1
        try:
            yield
        finally:
            self.total -= 1
            queue.consumers -= 1

    async def _claim(self, queue: Dispatcher, entries: list[Entry], order: DequeueOrder) -> list[Delivery]:
        asked_s = order.visibility_s or queue.policy.visibility_s or self._limits.visibility_s_default
        visibility_s = min(asked_s, self._limits.visibility_s_max)
        is_transactional = bool(order.txn_id) or order.with_state
        claims = self._transactional_claims if is_transactional else self._claims
        try:
            carried, surplus = await self._claims.carried(queue, entries)
        except BaseException:  # On any error: what was handed out and not claimed must not be lost.
            queue.put_back(entries)
            raise
        if surplus:
            queue.put_back(surplus)
        try:
            return await claims.claim(queue, carried, order, visibility_s) if carried else []
        except asyncio.CancelledError:
            raise  # The claim is undone as soon as its outcome is known.
        except BaseException:
            queue.put_back([entry for entry, _ in carried])
            raise


async def _turn(queue: Dispatcher, order: DequeueOrder, until_s: float | None) -> list[Entry]:
    waiter = queue.join(_count_max(order))
    turn = waiter.turn
    timer = None
    if until_s is not None:
        refusal = NoMessages("no messages available", retry_after_s=order.wait_s)
        timer = asyncio.get_running_loop().call_at(until_s, _give_up, turn, refusal)
    try:
        return await turn
    except BaseException:
        queue.leave(waiter)
        raise
    finally:
        if timer is not None:
            timer.cancel()


def _give_up(turn: asyncio.Future[list[Entry]], refusal: NoMessages) -> None:
    if not turn.done():
        turn.set_exception(refusal)


def _count_max(order: DequeueOrder) -> int:
    # The state of a message is its own, so stateful deliveries go one by one.
    return 1 if order.with_state else max(1, min(order.count_max, BATCH_MAX))
