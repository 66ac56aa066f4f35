"""A subscription: a consumer that keeps its place in the wait queue, with a bound on its unresolved deliveries."""

import asyncio
from contextlib import ExitStack

from holdfast.queue.layer.dispatch.consumers import Consumers
from holdfast.queue.layer.errors import NoMessages
from holdfast.queue.layer.message.types import Delivery, DequeueOrder


class Subscription:
    """A stream of deliveries; holds back while `count_max` of them are neither resolved nor expired."""

    def __init__(self, consumers: Consumers, order: DequeueOrder) -> None:
        self._consumers = consumers
        self._order = order
        self._is_first = True
        self._unresolved: set[str] = set()
        self._room = asyncio.Event()
        self._stack = ExitStack()

    @property
    def is_endless(self) -> bool:
        """Whether it waits for more, however long that takes."""
        return self._order.wait_s != 0

    async def next(self) -> list[Delivery]:
        """The next ones, at least one. NoMessages: the first did not come within `wait_s`, or, with `wait_s` 0,
        nothing may leave now. After the first it waits without limit otherwise."""
        await self._wait_for_room()
        order = self._order._replace(count_max=self._order.count_max - len(self._unresolved))
        if not self._is_first and order.wait_s:
            order = order._replace(wait_s=None)
        deliveries = await self._deliveries(order)
        self._is_first = False
        return deliveries

    async def _wait_for_room(self) -> None:
        while len(self._unresolved) >= self._order.count_max:
            if self._order.wait_s == 0:  # Its client may read to the end before it resolves anything.
                raise NoMessages("no messages available")
            self._room.clear()
            await self._room.wait()

    async def _deliveries(self, order: DequeueOrder) -> list[Delivery]:
        queue = await self._consumers.opened(order)
        if self._is_first:
            self._stack.close()
            self._stack.enter_context(self._consumers.counted(queue))
        deliveries = await self._consumers.ready(queue, order)
        if not deliveries and order.wait_s == 0:
            raise NoMessages("no messages available")
        deliveries = deliveries or await self._consumers.awaited(queue, order)
        for delivery in deliveries:
            entry = queue.window.get(delivery.message.message_id)
            if entry is not None:
                entry.stream = self
                self._unresolved.add(entry.message_id)
        return deliveries

    def ended(self, message_id: str) -> None:
        """A delivery of this stream was resolved, or its time is over."""
        self._unresolved.discard(message_id)
        self._room.set()

    async def aclose(self) -> None:
        """Nothing more is asked for. What was delivered stays with its consumer until it is resolved or expires."""
        self._stack.close()
