"""Deliveries without an end, and changes of a queue without an end."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from holdfast.client.aio.queue.arrivals import Arrivals
from holdfast.client.aio.queue.delivery import Delivery
from holdfast.client.aio.queue.intake import Intake
from holdfast.client.aio.queue.live import LiveStream
from holdfast.client.aio.transport import Transport
from holdfast.client.errors import ClientError, QueueEmpty, TransportFailed, UnexpectedAnswer
from holdfast.client.queue.calls import QueueCalls, Taking
from holdfast.client.queue.delivery import ServerClock
from holdfast.client.queue.events import ChangeReader
from holdfast.client.queue.view import QueueChange
from holdfast.client.wire.call import Answer


class Subscription(LiveStream[Delivery]):
    """`async for delivery in subscription`: each is to be resolved, best by `async with delivery`."""

    def __init__(self, transport: Transport, calls: QueueCalls, taking: Taking, intake: Intake) -> None:
        super().__init__(transport)
        self._calls = calls
        self._taking = taking
        self._intake = intake

    async def _read(self) -> AsyncGenerator[Delivery, None]:
        opening = self._calls.subscribe(self._taking, self._prepare)
        try:
            async for answer in self._answers(opening):
                is_empty, is_left = True, False
                try:
                    async with aclosing(self._deliveries(answer)) as deliveries:
                        async for delivery in deliveries:
                            is_empty = False
                            opening.succeeded()
                            yield delivery
                            is_left = is_left or not (delivery.is_resolved or delivery.lost.is_set())
                except (TransportFailed, UnexpectedAnswer) as problem:
                    if self._closed.is_set():
                        return
                    opening.failed(problem)
                else:
                    # The server ends such a stream after `prefetch` messages: there may be more for a
                    # consumer that has resolved them, and none for one that has them all in hand.
                    if self._taking.block_s == 0 and (is_empty or is_left):
                        return
                    opening.ended(is_empty=is_empty)
        except QueueEmpty:
            return  # The time to wait for a message is over.

    async def _deliveries(self, answer: Answer) -> AsyncGenerator[Delivery, None]:
        arrivals = await Arrivals.open(answer)
        try:
            clock = ServerClock(answer, self._calls.channel.monotonic_s)
            while (message := await arrivals.next()) is not None:
                if self._closed.is_set():
                    await self._intake.give_back(message)
                else:
                    yield await self._intake.delivery(message, arrivals, clock)
        except GeneratorExit:
            self.close_soon()
            await self._give_back_rest(arrivals)
            raise
        finally:
            await arrivals.close()

    async def _give_back_rest(self, arrivals: Arrivals) -> None:
        """What was on its way when the consumer stopped need not wait for the end of its visibility."""
        with suppress(ClientError):
            while (message := await arrivals.next()) is not None:
                await self._intake.give_back(message)


class Changes(LiveStream[QueueChange]):
    """`async for change in changes`: the present state at once, then whenever it changes."""

    def __init__(self, transport: Transport, calls: QueueCalls) -> None:
        super().__init__(transport)
        self._calls = calls

    async def _read(self) -> AsyncGenerator[QueueChange, None]:
        opening = self._calls.watch(self._prepare)
        async for answer in self._answers(opening):
            is_empty = True
            try:
                async with aclosing(self._events(answer, ChangeReader().feed)) as changes:
                    async for change in changes:
                        is_empty = False
                        opening.succeeded()
                        yield change
            except TransportFailed as problem:
                if self._closed.is_set():
                    return
                opening.failed(problem)
            else:
                opening.ended(is_empty=is_empty)
