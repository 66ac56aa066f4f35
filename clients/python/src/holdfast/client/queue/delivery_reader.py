"""Deliveries out of a multipart answer, without I/O: a message, then its payload in pieces, then the next one."""

from dataclasses import dataclass
from typing import Final

from holdfast.client.errors import UnexpectedAnswer
from holdfast.client.queue.message import Message
from holdfast.client.queue.multipart import MultipartReader, PartData, PartEnd, PartStart, StreamEnd

_META_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message is here, and its payload follows."""

    message: Message


@dataclass(frozen=True, slots=True)
class PayloadEnd:
    """The payload is complete."""


Event = Arrival | PartData | PayloadEnd | StreamEnd


class DeliveryReader:
    """Parts are `meta` and `payload` in turns; anything else is no delivery."""

    def __init__(self, boundary: bytes) -> None:
        self._parts = MultipartReader(boundary)
        self._meta = bytearray()
        self._message: Message | None = None
        self._is_in_meta = False

    def feed(self, data: bytes) -> None:
        self._parts.feed(data)

    def next_event(self) -> Event | None:
        """None when more bytes are needed."""
        while (event := self._parts.next_event()) is not None:
            if isinstance(event, PartStart):
                arrived = self._start(event)
                if arrived is not None:
                    return arrived
            elif isinstance(event, StreamEnd):
                return event
            elif not self._is_in_meta:
                return PayloadEnd() if isinstance(event, PartEnd) else event
            else:
                self._read_meta(event)
        return None

    def _start(self, part: PartStart) -> Arrival | None:
        expected = "meta" if self._message is None else "payload"
        if part.name != expected:
            raise UnexpectedAnswer(f"a delivery with a part {part.name!r} where {expected!r} was expected")
        self._is_in_meta = self._message is None
        if self._message is None:
            return None
        message, self._message = self._message, None
        return Arrival(message)

    def _read_meta(self, event: PartData | PartEnd) -> None:
        if isinstance(event, PartData):
            self._meta += event.content
            if len(self._meta) > _META_BYTES_MAX:
                raise UnexpectedAnswer("a delivery whose meta part is too large")
            return
        self._message = Message.decode(bytes(self._meta))
        self._meta.clear()
