"""Consumers: what each one is, when a failed one starts again, and how all of them are told to stop."""

import os
import random
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Generic, TypeVar

from holdfast.client.errors import (
    ClientClosed,
    ClientError,
    Forbidden,
    InvalidArgument,
    NotFound,
    RequestRefused,
)

D = TypeVar("D")

_NOT_RETRYABLE: Final = (RequestRefused, Forbidden, NotFound, InvalidArgument, ClientClosed)
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """A failed consumer starts again at once a few times, then after growing delays."""

    immediate_retries: int = 3
    base_delay_s: float = 0.25
    max_delay_s: float = 300.0
    multiplier: float = 2.0
    jitter_s: float = 0.0
    max_failures: int = 0
    """In a row; one more ends all consumers. 0: any number."""

    def delay_s(self, failures: int, chance: random.Random) -> float:
        """The wait after so many failures in a row."""
        grown = failures - self.immediate_retries - 1
        if grown < 0:
            return 0.0
        # The exponent is bounded: a consumer that fails for ever would overflow a float one day.
        delay_s = min(self.max_delay_s, self.base_delay_s * self.multiplier ** min(grown, 64))
        return max(0.0, delay_s + chance.uniform(-self.jitter_s, self.jitter_s))


@dataclass(frozen=True, slots=True)
class ConsumerEvent:
    """A consumer at a turn of its life; `attempt` counts its starts."""

    name: str
    queue: str
    with_state: bool
    attempt: int
    error: BaseException | None = None
    failures: int = 0
    """In a row, this one included."""


Hook = Callable[[ConsumerEvent], object]


@dataclass(frozen=True, kw_only=True)  # With slots `Consumer[…](…)` fails in Python 3.11.
class Consumer(Generic[D]):
    """One queue and what is done with its messages, one after the other.

    The handler acks or nacks; with `auto_ack` its return acks and its error nacks. What it leaves alone comes again
    when its visibility time is over. `error_handler` may raise to end all consumers.
    """

    queue: str
    handler: Callable[[D], object]
    name: str = ""
    namespace: str | None = None
    owner: str = ""
    prefetch: int = 1
    visibility_s: float | None = None
    close_delay_s: float = 0.0
    with_state: bool = False
    auto_ack: bool = False
    error_handler: Hook | None = None
    on_start: Hook | None = None
    on_stop: Hook | None = None
    restart: RestartPolicy = field(default_factory=RestartPolicy)

    def label(self) -> str:
        return self.name or self.queue

    def owner_or_default(self) -> str:
        """Tells consumers of one process apart."""
        return self.owner or f"consumer-{self.label()}-{socket.gethostname()}-{os.getpid()}-{next(_numbers)}"


class ConsumerFailed(ClientError):
    """A consumer gave up, and with it all others; the cause is the error that it could not get over."""

    def __init__(self, name: str, queue: str, cause: BaseException) -> None:
        super().__init__(f"consumer {name!r} of queue {queue!r} failed: {cause}")
        self.name = name
        self.queue = queue


class HandlerFailed(Exception):
    """Carries the error of a handler or a hook past the checks for errors of the queue."""

    def __init__(self, error: BaseException, delivery: object = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.delivery = delivery
        """What the handler was given."""


class ConsumerLife(Generic[D]):
    """The starts and failures of one consumer. Does no I/O."""

    def __init__(self, consumer: Consumer[D], chance: random.Random) -> None:
        self.consumer = consumer
        self._chance = chance
        self._attempt = 0
        self._failures = 0

    def start(self) -> ConsumerEvent:
        self._attempt += 1
        return self.event()

    def event(self, error: BaseException | None = None) -> ConsumerEvent:
        if isinstance(error, HandlerFailed):
            error = error.error
        consumer = self.consumer
        return ConsumerEvent(
            consumer.label(), consumer.queue, consumer.with_state, self._attempt, error, self._failures
        )

    def succeeded(self) -> None:
        """A message was handled."""
        self._failures = 0

    def failed(self, error: BaseException) -> ConsumerEvent:
        self._failures += 1
        return self.event(error)

    def delay_s(self, error: BaseException) -> float:
        """How long to wait before the next start; ConsumerFailed if there is none after this error."""
        policy = self.consumer.restart
        is_spent = 0 < policy.max_failures < self._failures
        if is_spent or isinstance(error, _NOT_RETRYABLE):
            raise self.gave_up(error)
        return policy.delay_s(self._failures, self._chance)

    def gave_up(self, error: BaseException) -> ConsumerFailed:
        cause = error.error if isinstance(error, HandlerFailed) else error
        failure = ConsumerFailed(self.consumer.label(), self.consumer.queue, cause)
        failure.__cause__ = cause
        return failure


class Stop:
    """Ends consumers from anywhere: another thread, a signal handler, a hook. What is in hand is finished first."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []
        self._is_set = False
        self._lock = threading.RLock()  # A signal handler may come in the middle of `add`.

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        with self._lock:
            self._is_set = True
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    def add(self, callback: Callable[[], None]) -> None:
        """Call it when the time has come, or now if it has."""
        with self._lock:
            self._callbacks.append(callback)
            is_set = self._is_set
        if is_set:
            callback()

    def remove(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._callbacks.remove(callback)
