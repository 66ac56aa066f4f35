"""Deliveries without an end, and changes of a queue without an end."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from holdfast.client.aio.arrivals import Arrivals
from holdfast.client.aio.delivery import Delivery
from holdfast.client.aio.intake import Intake
from holdfast.client.aio.live import LiveStream, StreamClosed
from holdfast.client.aio.transport import Transport
from holdfast.client.call import Answer
from holdfast.client.connection import mapped_errors
from holdfast.client.delivery import ServerClock
from holdfast.client.errors import QueueEmpty, TransportFailed, UnexpectedAnswer
from holdfast.client.queue import QueueCalls, Taking
from holdfast.client.queue_events import ChangeReader
from holdfast.client.queue_view import QueueChange


class Subscription(LiveStream):
    """`async for delivery in subscription`: each is to be settled, best by `async with delivery`."""

    def __init__(self, transport: Transport, calls: QueueCalls, taking: Taking, intake: Intake) -> None:
        super().__init__(transport)
        self._calls = calls
        self._taking = taking
        self._intake = intake

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        opening = self._calls.subscribe(self._taking, lambda call: None)
        try:
            async for answer in self._answers(opening):
                is_empty = True
                try:
                    async with aclosing(self._deliveries(answer)) as deliveries:
                        async for delivery in deliveries:
                            is_empty = False
                            opening.succeeded()
                            yield delivery
                except (TransportFailed, UnexpectedAnswer) as problem:
                    opening.failed(problem)
                else:
                    if self._taking.block_s == 0:
                        return
                    opening.ended(is_empty=is_empty)
        except (QueueEmpty, StreamClosed):
            return  # The time to wait for a message is over, or nobody listens any longer.

    async def _deliveries(self, answer: Answer) -> AsyncGenerator[Delivery, None]:
        arrivals = await Arrivals.open(answer)
        try:
            clock = ServerClock(answer, self._calls.channel.monotonic_s)
            while (delivery := await self._unless_closed(self._next(arrivals, clock))) is not None:
                yield delivery
        finally:
            await arrivals.close()

    async def _next(self, arrivals: Arrivals, clock: ServerClock) -> Delivery | None:
        message = await arrivals.next()
        return None if message is None else await self._intake.delivery(message, arrivals, clock)


class Changes(LiveStream):
    """`async for change in changes`: the present state at once, then whenever it changes."""

    def __init__(self, transport: Transport, calls: QueueCalls) -> None:
        super().__init__(transport)
        self._calls = calls

    async def __aiter__(self) -> AsyncIterator[QueueChange]:
        opening = self._calls.watch(lambda call: None)
        try:
            async for answer in self._answers(opening):
                is_empty = True
                try:
                    async with aclosing(self._changes(answer)) as changes:
                        async for change in changes:
                            is_empty = False
                            opening.succeeded()
                            yield change
                except TransportFailed as problem:
                    opening.failed(problem)
                else:
                    opening.ended(is_empty=is_empty)
        except StreamClosed:
            return

    async def _changes(self, answer: Answer) -> AsyncGenerator[QueueChange, None]:
        assert answer.response is not None, "the answer is open"
        assert answer.endpoint is not None, "an answer knows its endpoint"
        reader = ChangeReader()
        chunks = answer.response.aiter_raw()
        try:
            while True:
                with mapped_errors(answer.endpoint):
                    chunk = await self._unless_closed(anext(chunks, None))
                if chunk is None:
                    return
                for change in reader.feed(chunk):
                    yield change
        finally:
            await answer.response.aclose()
