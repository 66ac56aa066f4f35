"""Deliveries as they come in one open answer, and the payload of each."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

from holdfast.client.aio.stream import save
from holdfast.client.errors import InvalidArgument, TransportFailed, UnexpectedAnswer
from holdfast.client.queue.delivery_reader import Arrival, DeliveryReader, Event, PayloadEnd
from holdfast.client.queue.message import Message
from holdfast.client.queue.multipart import PartData, StreamEnd, boundary_of
from holdfast.client.wire.call import Answer
from holdfast.client.wire.connection import check_size, mapped_errors


class Arrivals:
    """Read in order: a payload that is not read is dropped when the next delivery is asked for."""

    def __init__(self, answer: Answer, boundary: bytes) -> None:
        assert answer.response is not None, "the answer is open"
        assert answer.endpoint is not None, "an answer knows its endpoint"
        self._response = answer.response
        self._endpoint = answer.endpoint
        self._reader = DeliveryReader(boundary)
        self._chunks = self._response.aiter_raw()
        self._number = 0
        self._is_in_payload = False

    @classmethod
    async def open(cls, answer: Answer) -> "Arrivals":
        try:
            return cls(answer, boundary_of(answer.headers.get("content-type", "")))
        except UnexpectedAnswer:
            assert answer.response is not None, "the answer is open"
            await answer.response.aclose()
            raise

    async def next(self) -> Message | None:
        """The next delivery; None when the stream is at its end."""
        if self._is_in_payload:
            async for _ in self.payload():
                pass
        event = await self._event()
        if isinstance(event, StreamEnd):
            return None
        if not isinstance(event, Arrival):
            raise UnexpectedAnswer("a delivery without its message")
        self._number += 1
        self._is_in_payload = True
        return event.message

    def payload(self) -> AsyncIterator[bytes]:
        """The payload of the delivery that came last, in pieces."""
        return self._pieces(self._number)

    async def _pieces(self, number: int) -> AsyncIterator[bytes]:
        while self._is_in_payload or number != self._number:
            if number != self._number:
                raise InvalidArgument("a payload is read before the next delivery is asked for")
            event = await self._event()
            if isinstance(event, PartData):
                yield event.content
            else:
                self._end_payload(event)

    def _end_payload(self, event: Event) -> None:
        if not isinstance(event, PayloadEnd):
            raise UnexpectedAnswer("a delivery whose payload has no end")
        self._is_in_payload = False

    async def _event(self) -> Event:
        while (event := self._reader.next_event()) is None:
            with mapped_errors(self._endpoint):
                chunk = await anext(self._chunks, None)
            if chunk is None:
                raise TransportFailed(f"{self._endpoint.name}: the stream was cut off")
            self._reader.feed(chunk)
        return event

    async def finish(self) -> None:
        """Read to the end of an answer that has one, so that its connection can be used again."""
        while await self.next() is not None:
            pass
        with mapped_errors(self._endpoint):
            async for _ in self._chunks:
                pass
        await self.close()

    async def close(self) -> None:
        """Hang up; what was not read is dropped."""
        await self._response.aclose()


class Payload:
    """The content of a message: read it whole, or once in pieces."""

    def __init__(self, message: Message, chunks: AsyncIterator[bytes], *, bytes_max: int) -> None:
        self.content_type = message.content_type
        self.size_bytes = message.payload_bytes
        self._chunks = chunks
        self._bytes_max = bytes_max
        self._content: bytes | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._content is not None:
            yield self._content
        else:
            async for chunk in self._chunks:
                yield chunk

    async def read(self) -> bytes:
        """All of it; it stays here to be read again."""
        if self._content is None:
            content = bytearray()
            async for chunk in self._chunks:
                content += chunk
                check_size(len(content), self._bytes_max)
            self._content = bytes(content)
        return self._content

    async def json(self) -> Any:
        """All of it, decoded."""
        return json.loads(await self.read())

    async def save_to(self, target: Path | IO[bytes]) -> int:
        """Write all of it to a file, and give its size."""
        return await save(self, target)
