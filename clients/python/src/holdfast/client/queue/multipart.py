"""Multipart: the frame of a message on its way out, and a reader without I/O for what comes in.

A part that names its length ends there, without waiting for the delimiter: a live stream sends that one only together
with the next part.
"""

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.client.errors import InvalidArgument, UnexpectedAnswer
from holdfast.client.wire.body import AsyncSource, Body
from holdfast.client.wire.call import integer_of

_BYTES_TYPE: Final = "application/octet-stream"
_HEADER_BYTES_MAX: Final = 16 * 1024
_BOUNDARY: Final = re.compile(r';\s*boundary=(?:"([^"]{1,200})"|([^\s;,"]{1,200}))', re.IGNORECASE)
_NAME: Final = re.compile(r';\s*name="?([^";]{1,100})"?', re.IGNORECASE)


def framed(meta: bytes, source: AsyncSource, *, content_type: str) -> tuple[Body, str]:
    """A body of two parts, `meta` as JSON and the payload as its source gives it; and the type of the whole."""
    if not content_type.isascii() or not content_type.isprintable():
        raise InvalidArgument("a content type has printable ASCII characters only")
    boundary = secrets.token_hex(30)
    before = _before_payload(boundary, meta, content_type)
    return Body(source, before=before, after=_end(boundary)), _type(boundary)


def framed_batch(messages: Iterable[tuple[bytes, bytes]]) -> tuple[Body, str]:
    """The same for several messages, each with its meta and its payload."""
    boundary = secrets.token_hex(30)
    pieces: list[bytes] = []
    for meta, payload in messages:
        pieces += (_before_payload(boundary, meta, _BYTES_TYPE), payload, b"\r\n")
    pieces.append(_end(boundary)[2:])
    return Body(b"".join(pieces)), _type(boundary)


def _before_payload(boundary: str, meta: bytes, content_type: str) -> bytes:
    begin = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="meta"\r\n'
        "Content-Type: application/json\r\n\r\n"
    )
    between = (
        f'\n\r\n--{boundary}\r\nContent-Disposition: form-data; name="payload"\r\n'
        f"Content-Type: {content_type}\r\n\r\n"
    )
    return begin.encode() + meta + between.encode()


def _end(boundary: str) -> bytes:
    return f"\r\n--{boundary}--\r\n".encode()


def _type(boundary: str) -> str:
    return f"multipart/related; boundary={boundary}"


def boundary_of(content_type: str) -> bytes:
    """The boundary of a multipart answer."""
    found = _BOUNDARY.search(content_type) if content_type.lower().startswith("multipart/") else None
    if found is None:
        raise UnexpectedAnswer("an answer that is no multipart stream")
    return (found[1] or found[2]).encode("latin-1", "replace")


@dataclass(frozen=True, slots=True)
class PartStart:
    """A part begins: its name, and its headers in lower case."""

    name: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class PartData:
    """A piece of the part that began last."""

    content: bytes


@dataclass(frozen=True, slots=True)
class PartEnd:
    """The part is complete."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The closing delimiter was there; what follows it is ignored."""


Event = PartStart | PartData | PartEnd | StreamEnd


class MultipartReader:
    """Feed it with bytes as they come, and take events out; None means that it needs more bytes.

    between ──delimiter──▶ headers ──length named──▶ sized ──all there──▶ between
                              └──────no length──────▶ searching ──delimiter──▶ headers
    """

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # The first delimiter has no line break before it.
        self._buffer = bytearray(b"\r\n")
        self._step = self._between
        self._left_bytes = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_event(self) -> Event | None:
        return self._step()

    def _between(self) -> Event | None:
        """After a part of known length, and at the very start, nothing but the delimiter can come."""
        delimiter = self._delimiter
        if not self._buffer.startswith(delimiter):
            if not delimiter.startswith(self._buffer):
                raise UnexpectedAnswer("a multipart stream without its delimiter where it should be")
            return None
        del self._buffer[: len(delimiter)]
        self._step = self._headers
        return self._headers()

    def _headers(self) -> Event | None:
        buffer = self._buffer
        if buffer.startswith(b"--"):
            buffer.clear()
            self._step = self._ended
            return StreamEnd()
        end = buffer.find(b"\r\n\r\n")
        if end < 0 or end > _HEADER_BYTES_MAX:
            if len(buffer) > _HEADER_BYTES_MAX:
                raise UnexpectedAnswer("a multipart stream with a part whose headers are too long")
            return None
        if not buffer.startswith(b"\r\n"):
            raise UnexpectedAnswer("a multipart stream with bytes behind its delimiter")
        headers = _headers_of(bytes(buffer[2:end]))
        del buffer[: end + 4]
        size_bytes = integer_of(headers.get("content-length"))
        self._left_bytes = size_bytes or 0
        self._step = self._searching if size_bytes is None else self._sized
        name = _NAME.search(headers.get("content-disposition", ""))
        return PartStart(name[1] if name else "", headers)

    def _sized(self) -> Event | None:
        if not self._left_bytes:
            self._step = self._between
            return PartEnd()
        if not self._buffer:
            return None
        content = bytes(self._buffer[: self._left_bytes])
        del self._buffer[: self._left_bytes]
        self._left_bytes -= len(content)
        return PartData(content)

    def _searching(self) -> Event | None:
        buffer = self._buffer
        end = buffer.find(self._delimiter)
        # What may be the start of a delimiter is held back until more is known.
        known_bytes = end if end >= 0 else len(buffer) - len(self._delimiter) + 1
        if known_bytes > 0:
            content = bytes(buffer[:known_bytes])
            del buffer[:known_bytes]
            return PartData(content)
        if end < 0:
            return None
        self._step = self._between
        return PartEnd()

    def _ended(self) -> Event | None:
        self._buffer.clear()
        return StreamEnd()


def _headers_of(block: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in block.decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers
