"""A queue of the plane: messages in, deliveries out."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from holdfast.client.aio.concurrency import Pending, pending
from holdfast.client.aio.queue.arrivals import Payload
from holdfast.client.aio.queue.dead_letters import DeadLetters
from holdfast.client.aio.queue.delivery import Delivery
from holdfast.client.aio.queue.intake import Intake
from holdfast.client.aio.queue.subscription import Changes, Subscription
from holdfast.client.aio.renewer import Renewer
from holdfast.client.aio.transport import Transport
from holdfast.client.queue.batch import AckResult, NewMessage, ack_many, enqueue_many
from holdfast.client.queue.calls import QueueCalls, Taking
from holdfast.client.queue.message import CONTENT_TYPE_DEFAULT, Enqueued, Message, Outgoing
from holdfast.client.queue.view import QueuePolicy, QueueStats, StoredMessage
from holdfast.client.wire.body import AsyncSource
from holdfast.client.wire.retry import RETRIES_DEFAULT


class Queue:
    """`client.queue("orders")`. Making one costs nothing; a queue exists as soon as it is used."""

    def __init__(self, transport: Transport, renewer: Renewer, calls: QueueCalls) -> None:
        self._transport = transport
        self._renewer = renewer
        self._calls = calls

    def _intake(self, close_delay_s: float = 0.0) -> Intake:
        return Intake(self._transport, self._renewer, self._calls, close_delay_s=close_delay_s)

    @property
    def name(self) -> str:
        return self._calls.name

    @property
    def namespace(self) -> str:
        return self._calls.namespace

    # In

    async def enqueue(
        self,
        payload: AsyncSource = b"",
        *,
        content_type: str = CONTENT_TYPE_DEFAULT,
        attributes: dict[str, Any] | None = None,
        delay_s: float = 0.0,
        visibility_s: float | None = None,
        ttl_s: float | None = None,
        max_attempts: int | None = None,
        priority: int = 0,
        txn_id: str = "",
        correlation_id: str = "",
    ) -> Enqueued:
        """Send a message: bytes, text, a file or a stream. When this returns, it will not be lost.

        With `txn_id` the commit of that transaction sends it, and its rollback drops it; see `session.enqueue`.
        """
        message = Outgoing(
            payload=payload,
            content_type=content_type,
            attributes=attributes or {},
            delay_s=delay_s,
            visibility_s=visibility_s,
            ttl_s=ttl_s,
            max_attempts=max_attempts,
            priority=priority,
        )
        return await self._transport.run(self._calls.enqueue(message, correlation_id, txn_id=txn_id))

    async def enqueue_many(
        self, messages: Iterable[NewMessage], *, txn_id: str = "", correlation_id: str = ""
    ) -> list[Enqueued]:
        """Send messages that are in memory, up to 1000 and 4 MiB in one commit: of those all or none are taken.

        They are bytes, text, or `Outgoing` with all that `enqueue` takes.
        """
        return await self._transport.run(enqueue_many(self._calls, messages, correlation_id, txn_id=txn_id))

    # Out

    def dequeue(
        self,
        *,
        block_s: float | None = None,
        visibility_s: float | None = None,
        owner: str | None = None,
        txn_id: str = "",
        close_delay_s: float = 0.0,
        retries: int = RETRIES_DEFAULT,
    ) -> Pending[Delivery]:
        """Take a message: `async with queue.dequeue() as delivery` acks it at the end, or nacks it when the block raises.

        Waits up to `block_s` (None: for ever, 0: not at all), then raises QueueEmpty.
        """
        taking = Taking(
            owner=owner or self._calls.options.owner_or_default(),
            block_s=block_s,
            visibility_s=visibility_s,
            txn_id=txn_id,
            retries=retries,
        )
        return pending(lambda: self._take(taking, close_delay_s))

    def dequeue_with_state(
        self,
        *,
        block_s: float | None = None,
        visibility_s: float | None = None,
        owner: str | None = None,
        txn_id: str = "",
        close_delay_s: float = 0.0,
        retries: int = RETRIES_DEFAULT,
    ) -> Pending[Delivery]:
        """`dequeue` with a note that stays with the message over redeliveries: `delivery.state`."""
        taking = Taking(
            owner=owner or self._calls.options.owner_or_default(),
            block_s=block_s,
            visibility_s=visibility_s,
            txn_id=txn_id,
            retries=retries,
            with_state=True,
        )
        return pending(lambda: self._take(taking, close_delay_s))

    async def _take(self, taking: Taking, close_delay_s: float) -> Delivery:
        answer = await self._transport.run(self._calls.dequeue(taking))
        return await self._intake(close_delay_s).only(answer)

    async def dequeue_batch(
        self,
        count_max: int,
        *,
        block_s: float | None = None,
        visibility_s: float | None = None,
        owner: str | None = None,
        close_delay_s: float = 0.0,
        retries: int = RETRIES_DEFAULT,
    ) -> list[Delivery]:
        """Take up to so many messages at once, their payloads included; none came in time: an empty list."""
        taking = Taking(
            owner=owner or self._calls.options.owner_or_default(),
            block_s=block_s,
            visibility_s=visibility_s,
            count_max=count_max,
            retries=retries,
        )
        answer = await self._transport.run(self._calls.dequeue_or_none(taking))
        if answer is None:
            return []
        return await self._intake(close_delay_s).all(answer)

    def subscribe(
        self,
        *,
        prefetch: int = 1,
        block_s: float | None = None,
        visibility_s: float | None = None,
        owner: str | None = None,
        with_state: bool = False,
        close_delay_s: float = 0.0,
        retries: int | None = None,
    ) -> Subscription:
        """`async for delivery in queue.subscribe()`: messages as they come, over one connection, which is renewed.

        `prefetch` is how many may be on their way or in hand at a time. `block_s=0` ends when nothing is ready;
        with seconds it ends when none came for so long after connecting. `retries` bounds failures in a row.
        """
        taking = Taking(
            owner=owner or self._calls.options.owner_or_default(),
            block_s=block_s,
            visibility_s=visibility_s,
            count_max=prefetch,
            with_state=with_state,
            retries=retries,
        )
        return Subscription(self._transport, self._calls, taking, self._intake(close_delay_s))

    def attach(self, message: Message) -> Delivery:
        """A delivery that was taken elsewhere, to be resolved here; it has no payload."""
        claim = self._calls.claim(message)
        payload = Payload(message, _no_chunks(), bytes_max=0)
        return self._intake().of(claim, payload)

    async def ack_many(self, deliveries: Iterable[Delivery]) -> list[AckResult]:
        """Ack deliveries of this queue, up to 1000 in one commit; each result stands for itself."""
        claims = [delivery.claim for delivery in deliveries]
        return await self._transport.run(ack_many(self._calls, claims))

    # Looking

    async def stats(self) -> QueueStats:
        """Consumers, and the message that is next."""
        return await self._transport.run(self._calls.stats())

    async def peek(self, limit: int = 1, *, payloads: bool = False) -> list[StoredMessage]:
        """What would leave next, in order, without taking it: up to 100 messages."""
        return await self._transport.run(self._calls.peek(limit, payloads=payloads))

    def watch(self) -> Changes:
        """`async for change in queue.watch()`: whether a message can be had, now and whenever that changes."""
        return Changes(self._transport, self._calls)

    @property
    def dead_letters(self) -> DeadLetters:
        """Messages that used up their attempts."""
        return DeadLetters(self._transport, self._calls)

    # Rules

    async def policy(self) -> QueuePolicy:
        """What holds for messages that do not say otherwise."""
        return await self._transport.run(self._calls.policy())

    async def set_policy(
        self,
        *,
        visibility_s: float | None = None,
        max_attempts: int | None = None,
        ttl_s: float | None = None,
        deliveries_per_s: float | None = None,
    ) -> QueuePolicy:
        """Change what is given; 0 goes back to the server's own value, or to no limit."""
        flow = self._calls.policy(
            visibility_s=visibility_s,
            max_attempts=max_attempts,
            ttl_s=ttl_s,
            deliveries_per_s=deliveries_per_s,
        )
        return await self._transport.run(flow)

    async def pause(self) -> QueuePolicy:
        """Deliver nothing until `resume`; messages still come in."""
        return await self._transport.run(self._calls.pause(is_paused=True))

    async def resume(self) -> QueuePolicy:
        """Deliver again."""
        return await self._transport.run(self._calls.pause(is_paused=False))


async def _no_chunks() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk
