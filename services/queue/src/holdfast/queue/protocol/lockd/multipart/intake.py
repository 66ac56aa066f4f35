"""Messages on their way in as multipart: meta parts become orders, payload parts stream to where payloads are kept."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Final, NamedTuple, Protocol

from holdfast.common.errors import InvalidBody
from holdfast.queue.layer.errors import BatchTooLarge
from holdfast.queue.layer.message.types import BATCH_MAX, Body, EnqueueOrder, QueueAddress
from holdfast.queue.layer.service import QueueService
from holdfast.queue.protocol.lockd.fields import META_BYTES_MAX
from holdfast.queue.protocol.lockd.multipart.reader import (
    MultipartError,
    MultipartReader,
    PartBegin,
    PartEnd,
    plain_batch,
)
from holdfast.storage.intake import Content, Intake
from holdfast.storage.port import BATCH_BYTES_MAX

META: Final = "meta"
BATCH_PARTS_MAX: Final = 2 * BATCH_MAX + 2
AHEAD_BYTES_MAX: Final = 1 << 20
"""Of a batch: up to here it is collected, because taking it apart in one go costs a fraction."""
_UNADDRESSED: Final = QueueAddress("", "")

OrderOf = Callable[[bytes], EnqueueOrder]
"""Makes an order of the text of a meta part, or refuses it."""

Arrival = tuple[EnqueueOrder, Content]


class Parts(Protocol):
    """What becomes of the parts of a body."""

    async def begin(self, name: str) -> None: ...

    async def write(self, data: bytes) -> None: ...

    async def end(self) -> None: ...


async def take_message(
    service: QueueService, boundary: bytes, pieces: AsyncIterator[bytes], order_of: OrderOf
) -> Arrival:
    """The one message of a body. Nothing is kept of a refused one."""
    reader = MultipartReader(boundary)
    async with AsyncExitStack() as stack:
        parts = OneMessage(service, stack, order_of)
        await _read(reader, pieces, parts)
        if not reader.parts:
            parts.order_without_meta()
        reader.finish()
        return await parts.finish()


async def take_batch(
    service: QueueService, boundary: bytes, pieces: AsyncIterator[bytes], order_of: OrderOf
) -> list[Arrival]:
    """All messages of a body: a meta part each, and behind it its payload, if it has one."""
    begun = await _begun(pieces)
    plain = plain_batch(begun.body, boundary) if begun.is_whole else None
    if plain:
        return await _take_plain(service, plain, order_of)
    reader = MultipartReader(boundary, parts_max=BATCH_PARTS_MAX)
    async with AsyncExitStack() as stack:
        parts = ManyMessages(service, stack, order_of)
        await _read(reader, begun.again(pieces), parts)
        reader.finish()
        return await parts.finish()


class _Begun(NamedTuple):
    """A body as far as it was read ahead."""

    body: bytes
    is_whole: bool

    async def again(self, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        yield self.body
        if not self.is_whole:
            async for piece in rest:
                yield piece


async def _begun(pieces: AsyncIterator[bytes]) -> _Begun:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > AHEAD_BYTES_MAX:
            return _Begun(bytes(body), is_whole=False)
    return _Begun(bytes(body), is_whole=True)


async def _take_plain(
    service: QueueService, messages: list[tuple[bytes, bytes]], order_of: OrderOf
) -> list[Arrival]:
    if len(messages) > BATCH_MAX:
        raise _too_many()
    orders: dict[bytes, EnqueueOrder] = {}  # The messages of a batch often differ in their payloads only.
    arrivals: list[Arrival] = []
    try:
        for meta, payload in messages:
            order = orders.get(meta)
            if order is None:
                order = orders[meta] = order_of(meta)
            arrivals.append((order, await service.arrivals.content_of(order.address, payload)))
    except BaseException:
        await service.arrivals.forget([content for _, content in arrivals])
        raise
    return arrivals


def _too_many() -> BatchTooLarge:
    return BatchTooLarge(f"a batch has at most {BATCH_MAX} messages")


async def _read(reader: MultipartReader, pieces: AsyncIterator[bytes], parts: Parts) -> None:
    async for piece in pieces:
        for event in reader.feed(piece):
            match event:
                case PartBegin(name):
                    await parts.begin(name)
                case PartEnd():
                    await parts.end()
                case bytes():
                    await parts.write(event)


class OneMessage:
    """The first part that is not meta is the payload, with any name in any place; other parts are dropped."""

    def __init__(self, service: QueueService, stack: AsyncExitStack, order_of: OrderOf) -> None:
        self._service = service
        self._stack = stack
        self._order_of = order_of
        self._order: EnqueueOrder | None = None
        self._payload: Intake | None = None
        self._payload_address = _UNADDRESSED
        self._open: MetaText | Intake | None = None

    async def begin(self, name: str) -> None:
        self._open = None
        if name == META:
            if self._order is not None:
                raise MultipartError("multipart: a message has one meta part")
            self._open = MetaText()
        elif self._payload is None:
            if self._order is not None:
                self._payload_address = self._order.address
            self._payload = self._service.arrivals.open_intake(self._payload_address)
            self._open = await self._stack.enter_async_context(self._payload)

    async def write(self, data: bytes) -> None:
        if self._open is not None:
            await self._open.write(data)

    async def end(self) -> None:
        if isinstance(self._open, MetaText):
            self._order = self._order_of(self._open.text)
        self._open = None

    def order_without_meta(self) -> EnqueueOrder:
        """The query alone may name the queue."""
        return self._order or self._order_of(b"")

    async def finish(self) -> Arrival:
        order = self.order_without_meta()
        if self._payload is None:
            return order, await self._service.arrivals.content_of(order.address, b"")
        content = await self._payload.finish()
        if content.blob is not None and self._payload_address != order.address:
            content = await self._moved(content, order.address)
        return order, content

    async def _moved(self, content: Content, address: QueueAddress) -> Content:
        """A large payload that came in front of its meta: blobs are bound to their queue, so it is written again."""
        body = Body(content.inline, content.blob, content.size_bytes)
        async with self._service.arrivals.open_intake(address) as intake:
            async for piece in self._service.open_payload(self._payload_address, body):
                await intake.write(piece)
            moved = await intake.finish()
        await self._service.arrivals.forget([content])
        return moved


class ManyMessages:
    """Meta, payload, meta, payload: here the order of parts says what belongs together."""

    def __init__(self, service: QueueService, stack: AsyncExitStack, order_of: OrderOf) -> None:
        self._service = service
        self._stack = stack
        self._order_of = order_of
        self._arrivals: list[Arrival] = []
        self._order: EnqueueOrder | None = None
        self._open: MetaText | Intake | None = None
        self._inline_bytes = 0

    async def begin(self, name: str) -> None:
        if name == META:
            await self._end_message()
            if len(self._arrivals) >= BATCH_MAX:
                raise _too_many()
            self._open = MetaText()
        elif self._order is None:
            raise MultipartError("multipart: a payload needs its meta part in front of it")
        else:
            self._open = await self._stack.enter_async_context(
                self._service.arrivals.open_intake(self._order.address)
            )

    async def write(self, data: bytes) -> None:
        assert self._open is not None
        await self._open.write(data)

    async def end(self) -> None:
        part, self._open = self._open, None
        if isinstance(part, MetaText):
            self._order = self._order_of(part.text)
        elif part is not None:
            self._arrive(await part.finish())

    async def finish(self) -> list[Arrival]:
        await self._end_message()
        if not self._arrivals:
            raise InvalidBody("a batch has at least one message")
        return self._arrivals

    async def _end_message(self) -> None:
        if self._order is not None:
            self._arrive(await self._service.arrivals.content_of(self._order.address, b""))

    def _arrive(self, content: Content) -> None:
        assert self._order is not None
        self._inline_bytes += len(content.inline) + len(self._order.attributes)
        if self._inline_bytes > BATCH_BYTES_MAX:
            raise BatchTooLarge(f"the messages of a batch have at most {BATCH_BYTES_MAX} bytes together")
        self._arrivals.append((self._order, content))
        self._order = None


class MetaText:
    """The text of a meta part, while it is of a size that can be meant."""

    def __init__(self) -> None:
        self.text = b""

    async def write(self, data: bytes) -> None:
        if len(self.text) + len(data) > META_BYTES_MAX:
            raise InvalidBody(f"meta is larger than {META_BYTES_MAX} bytes")
        self.text += data
