"""Consumers in threads: each listens to its queue, and starts again when it fails."""

import random
import threading
from collections.abc import Callable, Sequence

from holdfast.client.consumer import (
    Consumer,
    ConsumerEvent,
    ConsumerFailed,
    ConsumerLife,
    HandlerFailed,
    Stop,
)
from holdfast.client.errors import ClientError
from holdfast.client.sync.delivery import Delivery
from holdfast.client.sync.queue import Queue
from holdfast.client.sync.subscription import Subscription

QueueOf = Callable[[Consumer[Delivery]], Queue]


def run_consumers(consumers: Sequence[Consumer[Delivery]], queue_of: QueueOf, stop: Stop | None) -> None:
    """Blocks until all have ended: after a stop without a word, after a failure with that."""
    stop = stop or Stop()
    ended = Stop()
    stop.add(ended.set)
    loops = [_Loop(consumer, queue_of(consumer), ended) for consumer in consumers]
    try:
        for loop in loops:
            loop.thread.start()
        for loop in loops:
            loop.thread.join()
    except BaseException:
        ended.set()
        for loop in loops:
            if loop.thread.ident is not None:
                loop.thread.join()
        raise
    finally:
        stop.remove(ended.set)
    for loop in loops:
        if loop.failure is not None:
            raise loop.failure


class _Loop:
    """One consumer; a failure that it can't get over ends all."""

    def __init__(self, consumer: Consumer[Delivery], queue: Queue, stop: Stop) -> None:
        self.failure: ConsumerFailed | None = None
        self.thread = threading.Thread(
            target=self._run, name=f"holdfast.consumer.{consumer.label()}", daemon=True
        )
        self._consumer = consumer
        self._life = ConsumerLife(consumer, random.Random())
        self._owner = consumer.owner_or_default()
        self._queue = queue
        self._stop = stop
        self._stopped = threading.Event()

    def _run(self) -> None:
        self._stop.add(self._stopped.set)
        try:
            delay_s = 0.0
            while not self._stopped.wait(delay_s):
                delay_s = self._restart()
        except ConsumerFailed as failure:
            self.failure = failure
        except Exception as error:  # noqa: BLE001  # The edge of the thread: who waits for it is told.
            self.failure = self._life.gave_up(error)
        finally:
            self._stop.remove(self._stopped.set)
            if self.failure is not None:
                self._stop.set()

    def _restart(self) -> float:
        """One start; how long to wait before the next."""
        error: BaseException | None = None
        try:
            _call(self._consumer.on_start, self._life.start())
            self._listen_once()
        except (ClientError, HandlerFailed) as problem:
            error = problem
        try:
            _call(self._consumer.on_stop, self._life.event(error))
        except HandlerFailed as problem:
            error = error or problem
        if error is None or self._stopped.is_set():
            return 0.0
        try:
            _call(self._consumer.error_handler, self._life.failed(error))
        except HandlerFailed as problem:
            raise self._life.gave_up(problem) from problem.error
        return self._life.delay_s(error)

    def _listen_once(self) -> None:
        """A message whose handler failed goes back when the stream is closed: else the next would come down it."""
        try:
            self._listen()
        except HandlerFailed as failure:
            if self._consumer.auto_ack and isinstance(failure.delivery, Delivery):
                failure.delivery.fail(failure.error)
            raise

    def _listen(self) -> None:
        consumer = self._consumer
        subscription = self._queue.subscribe(
            prefetch=consumer.prefetch,
            visibility_s=consumer.visibility_s,
            owner=self._owner,
            with_state=consumer.with_state,
            close_delay_s=consumer.close_delay_s,
            retries=0,
        )
        self._stop.add(subscription.close)
        try:
            with subscription:
                self._handle_all(subscription)
        finally:
            self._stop.remove(subscription.close)

    def _handle_all(self, subscription: Subscription) -> None:
        for delivery in subscription:
            if self._stopped.is_set():
                delivery.nack(intent="defer")  # It came too late to be begun.
                return
            self._handle(delivery)
            self._life.succeeded()

    def _handle(self, delivery: Delivery) -> None:
        try:
            with delivery.kept():
                self._consumer.handler(delivery)
                if delivery.lost_because is not None:
                    raise delivery.lost_because
                if self._consumer.auto_ack and not delivery.is_settled:
                    delivery.ack()
        except Exception as error:
            raise HandlerFailed(error, delivery) from error


def _call(hook: Callable[[ConsumerEvent], object] | None, event: ConsumerEvent) -> None:
    if hook is None:
        return
    try:
        hook(event)
    except Exception as error:
        raise HandlerFailed(error) from error
