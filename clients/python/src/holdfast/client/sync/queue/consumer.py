# Generated from aio/queue/consumer.py by generate_sync.py: change that, then run `make sync-client`.
"""Consumers in threads: each listens to its queue, and starts again when it fails."""

import random
from collections.abc import Callable, Sequence

from holdfast.client.errors import ClientError
from holdfast.client.queue.consumer import (
    Consumer,
    ConsumerEvent,
    ConsumerFailed,
    ConsumerLife,
    HandlerFailed,
    Stop,
)
from holdfast.client.sync.concurrency import Event, is_set_within, result_of, run_together, run_until
from holdfast.client.sync.queue.delivery import Delivery
from holdfast.client.sync.queue.queue import Queue
from holdfast.client.sync.queue.subscription import Subscription

QueueOf = Callable[[Consumer[Delivery]], Queue]


def run_consumers(consumers: Sequence[Consumer[Delivery]], queue_of: QueueOf, stop: Stop | None) -> None:
    """Returns when all have ended: after a stop without a word, after a failure with that."""
    run_together([_Loop(consumer, queue_of(consumer)) for consumer in consumers], stop or Stop())


class _Loop:
    """One consumer; a failure that it can't get over ends all."""

    def __init__(self, consumer: Consumer[Delivery], queue: Queue) -> None:
        self.label = f"consumer.{consumer.label()}"
        self._consumer = consumer
        self._life = ConsumerLife(consumer, random.Random())
        self._owner = consumer.owner_or_default()
        self._queue = queue
        self._stopped = Event()
        self._subscription: Subscription | None = None
        self._in_hand: Delivery | None = None

    def end(self) -> None:
        """Begin nothing more; what is in hand is finished."""
        self._stopped.set()
        if self._subscription is not None:
            self._subscription.close_soon()

    def run(self) -> None:
        """Raises ConsumerFailed when it can't go on, for any reason."""
        try:
            delay_s = 0.0
            while not is_set_within(self._stopped, delay_s):
                delay_s = self._restart()
        except ConsumerFailed:
            raise
        except Exception as error:
            raise self._life.gave_up(error) from error

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
        except Exception:
            raise  # Of the stream: nothing is in hand.
        except BaseException as interruption:  # Cancelled, or the process is to end.
            if self._consumer.auto_ack and self._in_hand is not None:
                self._in_hand.fail(interruption)
            raise

    def _listen(self) -> None:
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
        with self._subscription as subscription:
            self._handle_all(subscription)

    def _handle_all(self, subscription: Subscription) -> None:
        for delivery in subscription:
            if self._stopped.is_set():
                delivery.nack(intent="defer")  # It came too late to be begun.
                return
            self._in_hand = delivery
            self._handle(delivery)
            self._in_hand = None
            self._life.succeeded()

    def _handle(self, delivery: Delivery) -> None:
        try:
            with delivery.kept():
                run_until(
                    delivery.lost,
                    lambda: result_of(self._consumer.handler(delivery)),
                    lambda: delivery.lost_because,
                )
                if delivery.lost_because is not None:
                    raise delivery.lost_because
                if self._consumer.auto_ack and not delivery.is_resolved:
                    delivery.ack()
        except Exception as error:
            raise HandlerFailed(error, delivery) from error


def _call(hook: Callable[[ConsumerEvent], object] | None, event: ConsumerEvent) -> None:
    if hook is None:
        return
    try:
        result_of(hook(event))
    except Exception as error:
        raise HandlerFailed(error) from error
