"""The queue: messages in, deliveries out, and what becomes of them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from holdfast.queue.messages import (
    Acked,
    Availability,
    Body,
    DeadLetter,
    Delivery,
    DequeueOrder,
    EnqueueOrder,
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
from holdfast.storage.intake import Content, Intake


class Subscription(Protocol):
    """A stream of deliveries; holds back while `count_max` of them are neither settled nor expired."""

    async def next(self) -> list[Delivery]:
        """The next ones, at least one. NoMessages: the first did not come within `wait_s`, or, with `wait_s` 0,
        nothing is ready. After the first it waits without limit otherwise."""
        ...

    async def aclose(self) -> None: ...


class QueueService(Protocol):
    """The queues of one store. Every method raises errors of `queue/errors.py` and of storage only."""

    def running(self) -> AbstractAsyncContextManager[None]: ...

    # -- in

    def open_intake(self, address: QueueAddress) -> Intake:
        """For a payload that streams; `async with` it, `finish` gives the content for `enqueue`."""
        ...

    async def content_of(self, address: QueueAddress, payload: bytes) -> Content:
        """A payload that is in memory already."""
        ...

    async def enqueue(self, order: EnqueueOrder, content: Content) -> Message: ...

    async def enqueue_many(self, orders: Sequence[tuple[EnqueueOrder, Content]]) -> list[Message]:
        """All in one commit, or none. BatchTooLarge above BATCH_MAX or the size of one commit."""
        ...

    # -- out

    async def dequeue(self, order: DequeueOrder) -> list[Delivery]:
        """At least one. NoMessages when the caller's patience ends first. Cancelling leaves no lease and no waiter."""
        ...

    def subscribe(self, order: DequeueOrder) -> Subscription: ...

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """They were never sent: ready again at once, in their old place, as if they had not been delivered."""
        ...

    def open_payload(self, address: QueueAddress, body: Body) -> AsyncIterator[bytes]:
        """The bytes of a payload, wherever they lie."""
        ...

    # -- what becomes of a delivery

    async def ack(self, claim: LeaseClaim) -> Acked: ...

    async def ack_many(self, claims: Sequence[LeaseClaim]) -> list[Acked | Exception]:
        """Each for itself: one that is refused does not stop the others."""
        ...

    async def nack(self, order: NackOrder) -> Requeued: ...

    async def extend(self, order: ExtendOrder) -> Extended: ...

    # -- looking

    async def stats(self, address: QueueAddress) -> Stats: ...

    def watch(self, address: QueueAddress) -> AsyncIterator[Availability]:
        """The present state at once, then every change of it."""
        ...

    async def peek(self, address: QueueAddress, limit: int) -> list[tuple[Message, Body]]:
        """What would leave next, in order, without taking it."""
        ...

    # -- dead letters

    async def dead_letters(self, address: QueueAddress, limit: int, after: str = "") -> list[DeadLetter]:
        """In order of message id, from behind `after` on."""
        ...

    async def redrive(self, address: QueueAddress, ids: Sequence[str] | None, limit: int) -> int:
        """Back into the queue with a fresh count of failures; None: the oldest `limit`. Returns how many."""
        ...

    async def purge(self, address: QueueAddress, ids: Sequence[str] | None, limit: int) -> int:
        """Away for ever; None: the oldest `limit`. Returns how many."""
        ...

    # -- policy

    async def policy(self, address: QueueAddress) -> Policy: ...

    async def set_policy(self, address: QueueAddress, policy: Policy) -> Policy: ...

    async def pause(self, address: QueueAddress) -> Policy: ...

    async def resume(self, address: QueueAddress) -> Policy: ...
