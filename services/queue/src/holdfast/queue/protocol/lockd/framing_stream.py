"""Deliveries as a stream: large payloads piece by piece, and subscriptions, message after message.

Behind every payload its delimiter goes out at once, so that a client sees the end of a message without waiting for
the next one. A delivery counts as sent when more is asked for behind its last byte: then the client took what was
before. One that was not is given back when the client goes away, ready for another consumer at once.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Final

from holdfast.common.errors import Draining, HoldfastError
from holdfast.common.express.message import StreamAnswer
from holdfast.common.logging import get_logger
from holdfast.common.serving.drain import Waits
from holdfast.queue.layer.dispatch.subscription import Subscription
from holdfast.queue.layer.errors import NoMessages
from holdfast.queue.layer.message.types import Delivery
from holdfast.queue.layer.service import QueueService
from holdfast.queue.protocol.lockd.framing import head, headers_of, new_boundary

_WRITE_BYTES: Final = 64 << 10
"""Small messages that are ready together go out together, up to about this size."""

_log = get_logger("api.http.router.queue")


async def parts(
    service: QueueService, boundary: bytes, deliveries: Sequence[Delivery], *, is_batch: bool = False
) -> AsyncGenerator[bytes, None]:
    """Each delivery from behind its boundary up to the next one, which is there already."""
    between = b"\r\n--" + boundary
    sent = 0
    pieces: list[bytes] = []
    pending_bytes = 0
    try:
        for number, delivery in enumerate(deliveries, 1):
            pieces.append(head(boundary, delivery, number - 1 if is_batch else None))
            body = delivery.body
            if body.blob is None:
                pieces.append(body.inline)
            else:
                yield b"".join(pieces)
                pieces, pending_bytes = [], 0
                async with _open(service, delivery) as payload:
                    async for piece in payload:
                        yield piece
            pieces.append(between)
            pending_bytes += body.size_bytes if body.blob is None else _WRITE_BYTES
            if pending_bytes >= _WRITE_BYTES or number == len(deliveries):
                yield b"".join(pieces)
                pieces, pending_bytes = [], 0
                sent = number
    except (GeneratorExit, asyncio.CancelledError):
        await _give_back(service, deliveries[sent:])
        raise


async def _give_back(service: QueueService, unsent: Sequence[Delivery]) -> None:
    if not unsent:
        return
    try:
        await service.give_back(unsent)
    except HoldfastError as error:  # The client is gone; the visibility timeout brings them back.
        _log.warn("queue.give_back.failed", count=len(unsent), reason=error.detail)


@asynccontextmanager
async def _open(service: QueueService, delivery: Delivery) -> AsyncIterator[AsyncIterator[bytes]]:
    payload = service.open_payload(delivery.message.address, delivery.body)
    try:
        yield payload
    finally:
        if isinstance(payload, AsyncGenerator):
            await payload.aclose()


def batch_answer(service: QueueService, deliveries: Sequence[Delivery]) -> StreamAnswer:
    """An answer with payloads that do not fit into memory."""
    boundary = new_boundary()

    async def chunks() -> AsyncGenerator[bytes, None]:
        opening = b"--" + boundary
        async with aclosing(parts(service, boundary, deliveries, is_batch=len(deliveries) > 1)) as pieces:
            async for piece in pieces:
                yield opening + piece
                opening = b""
        yield b"--\r\n"

    return StreamAnswer(200, headers_of(boundary, deliveries[0]), None, chunks())


OnDelivery = Callable[[Sequence[Delivery]], None]


async def subscription_answer(
    service: QueueService, subscription: Subscription, waits: Waits, on_delivery: OnDelivery
) -> StreamAnswer:
    """An answer that goes on; its head, and so any refusal, waits for the first message."""
    try:
        first = await waits.until_drain(subscription.next())
    except BaseException:
        await subscription.aclose()
        raise
    boundary = new_boundary()
    following = partial(_following, subscription, waits)
    chunks = _subscription_chunks(service, subscription, boundary, first, following, on_delivery)
    return StreamAnswer(200, headers_of(boundary, first[0]), None, chunks, is_endless=subscription.is_endless)


async def _subscription_chunks(
    service: QueueService,
    subscription: Subscription,
    boundary: bytes,
    deliveries: list[Delivery],
    following: Callable[[], Awaitable[list[Delivery]]],
    on_delivery: OnDelivery,
) -> AsyncGenerator[bytes, None]:
    opening = b"--" + boundary
    try:
        while deliveries:
            on_delivery(deliveries)
            async with aclosing(parts(service, boundary, deliveries)) as pieces:
                async for piece in pieces:
                    yield opening + piece
                    opening = b""
            deliveries = await following()
        yield b"--\r\n"
    finally:
        await subscription.aclose()


async def _following(subscription: Subscription, waits: Waits) -> list[Delivery]:
    """The next deliveries; none when the stream ends here. Its status is out, so an error can only end it too."""
    try:
        return await waits.until_drain(subscription.next())
    except (NoMessages, Draining):
        return []
    except HoldfastError as error:
        _log.warn("queue.subscribe.ended", reason=error.detail, code=error.code)
        return []
