"""Consumers in tasks: each listens to its queue, and starts again when it fails."""

import asyncio
import inspect
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.client.aio.delivery import Delivery
from holdfast.client.aio.queue import Queue
from holdfast.client.aio.subscription import Subscription
from holdfast.client.consumer import (
    Consumer,
    ConsumerEvent,
    ConsumerFailed,
    ConsumerLife,
    HandlerFailed,
    Stop,
)
from holdfast.client.errors import ClientError

QueueOf = Callable[[Consumer[Delivery]], Queue]


async def run_consumers(
    consumers: Sequence[Consumer[Delivery]], queue_of: QueueOf, stop: Stop | None
) -> None:
    """Returns when all have ended: after a stop without a word, after a failure with that."""
    stop = stop or Stop()
    running = asyncio.get_running_loop()
    loops = [_Loop(consumer, queue_of(consumer)) for consumer in consumers]

    def end_all() -> None:
        for loop in loops:
            loop.end()

    def end_from_anywhere() -> None:
        running.call_soon_threadsafe(end_all)

    stop.add(end_from_anywhere)
    tasks = [asyncio.create_task(loop.run(), name=f"holdfast.consumer.{loop.label}") for loop in loops]
    try:
        for ended in asyncio.as_completed(tasks):
            try:
                await ended
            except ConsumerFailed:
                end_all()
    finally:
        stop.remove(end_from_anywhere)
        await _cancel(tasks)
    for task in tasks:
        task.result()


async def _cancel(tasks: "Sequence[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


class _Loop:
    """One consumer; a failure that it can't get over ends all."""

    def __init__(self, consumer: Consumer[Delivery], queue: Queue) -> None:
        self.label = consumer.label()
        self._consumer = consumer
        self._life = ConsumerLife(consumer, random.Random())
        self._owner = consumer.owner_or_default()
        self._queue = queue
        self._stopped = asyncio.Event()
        self._subscription: Subscription | None = None
        self._in_hand: Delivery | None = None

    def end(self) -> None:
        """Begin nothing more; what is in hand is finished."""
        self._stopped.set()
        if self._subscription is not None:
            self._subscription.close_soon()

    async def run(self) -> None:
        while not self._stopped.is_set():
            delay_s = await self._restart()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._stopped.wait()

    async def _restart(self) -> float:
        """One start; how long to wait before the next."""
        error: BaseException | None = None
        try:
            await _call(self._consumer.on_start, self._life.start())
            await self._listen_once()
        except (ClientError, HandlerFailed) as problem:
            error = problem
        try:
            await _call(self._consumer.on_stop, self._life.event(error))
        except HandlerFailed as problem:
            error = error or problem
        if error is None or self._stopped.is_set():
            return 0.0
        try:
            await _call(self._consumer.error_handler, self._life.failed(error))
        except HandlerFailed as problem:
            raise self._life.gave_up(problem) from problem.error
        return self._life.delay_s(error)

    async def _listen_once(self) -> None:
        """A message whose handler failed goes back when the stream is closed: else the next would come down it."""
        try:
            await self._listen()
        except HandlerFailed as failure:
            if self._consumer.auto_ack and isinstance(failure.delivery, Delivery):
                await failure.delivery.fail(failure.error)
            raise
        except asyncio.CancelledError as cancelled:
            if self._consumer.auto_ack and self._in_hand is not None:
                await self._in_hand.fail(cancelled)
            raise

    async def _listen(self) -> None:
        consumer = self._consumer
        self._subscription = self._queue.subscribe(
            prefetch=consumer.prefetch,
            visibility_s=consumer.visibility_s,
            owner=self._owner,
            with_state=consumer.with_state,
            close_delay_s=consumer.close_delay_s,
            retries=0,
        )
        if self._stopped.is_set():
            return
        async with self._subscription as subscription:
            await self._handle_all(subscription)

    async def _handle_all(self, subscription: Subscription) -> None:
        async for delivery in subscription:
            if self._stopped.is_set():
                await delivery.nack(intent="defer")  # It came too late to be begun.
                return
            self._in_hand = delivery
            await self._handle(delivery)
            self._in_hand = None
            self._life.succeeded()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            async with delivery.kept():
                await self._while_ours(delivery)
                if self._consumer.auto_ack and not delivery.is_settled:
                    await delivery.ack()
        except Exception as error:
            raise HandlerFailed(error, delivery) from error

    async def _while_ours(self, delivery: Delivery) -> None:
        """Run the handler, and cancel it when the delivery is lost."""
        handled = self._consumer.handler(delivery)
        if not inspect.isawaitable(handled):
            return
        running = asyncio.ensure_future(handled)
        lost = asyncio.ensure_future(delivery.lost.wait())
        try:
            await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            if not running.done():
                running.cancel()
                await asyncio.wait({running})
        if delivery.lost_because is not None and (running.cancelled() or running.exception() is None):
            raise delivery.lost_because
        running.result()


async def _call(hook: Callable[[ConsumerEvent], object] | None, event: ConsumerEvent) -> None:
    if hook is None:
        return
    try:
        called = hook(event)
        if inspect.isawaitable(called):
            await called
    except Exception as error:
        raise HandlerFailed(error) from error
