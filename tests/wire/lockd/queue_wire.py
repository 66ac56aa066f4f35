"""Queues as their clients speak with them: multipart by hand, raw exchanges, and waiting for what becomes due."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.message import Message as Part
from email.parser import BytesParser
from typing import Any, NamedTuple, cast

import httpx

from tests.wire.lockd.conftest import Wire

BOUNDARY = "BOUND1"
MULTIPART = {"Content-Type": f"multipart/related; boundary={BOUNDARY}"}


class Delivered(NamedTuple):
    """One message of an answer."""

    message: dict[str, Any]
    payload: bytes

    def resolve(self, **more: object) -> dict[str, object]:
        """What names this delivery in an ack, nack or extend."""
        names = ("namespace", "queue", "message_id", "lease_id", "txn_id", "fencing_token", "meta_etag")
        return {**{name: self.message[name] for name in names}, **more}

    def resolve_state(self, **more: object) -> dict[str, object]:
        names = ("state_lease_id", "state_fencing_token", "state_etag")
        return self.resolve(**{name: self.message[name] for name in names}, **more)


def part(name: str, content: bytes, content_type: str = "application/octet-stream") -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\nContent-Type: {content_type}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def closed(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def message_body(payload: bytes, **meta: object) -> bytes:
    return closed(part("meta", json.dumps(meta).encode(), "application/json"), part("payload", payload))


async def enqueue(
    wire: Wire, queue: str, payload: bytes = b"", headers: Mapping[str, str] | None = None, **meta: object
) -> dict[str, Any]:
    body = message_body(payload, queue=queue, **meta)
    answer = await wire.post("/v1/queue/enqueue", body, {**MULTIPART, **(headers or {})})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def take(wire: Wire, queue: str, path: str = "/v1/queue/dequeue", **body: object) -> httpx.Response:
    asked = {"queue": queue, "owner": "worker-1", "wait_seconds": -1, **body}
    return await wire.post(path, asked)


async def dequeue(wire: Wire, queue: str, path: str = "/v1/queue/dequeue", **body: object) -> Delivered:
    answer = await take(wire, queue, path, **body)
    assert answer.status_code == 200, answer.text
    (delivered,) = deliveries(answer.headers["content-type"], answer.content)
    return delivered


def deliveries(content_type: str, body: bytes) -> list[Delivered]:
    """Meta and payload in turn, read by a parser that is not ours."""
    whole = BytesParser().parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    parts = whole.get_payload()
    assert isinstance(parts, list)
    boundary = content_type.partition("boundary=")[2].encode()
    contents = [piece.partition(b"\r\n\r\n")[2] for piece in body.split(b"--" + boundary)[1:-1]]
    assert len(contents) == len(parts)
    names = [cast(Part, piece).get_param("name", header="content-disposition") for piece in parts]
    assert names == ["meta", "payload"] * (len(parts) // 2)
    contents = [content.removesuffix(b"\r\n") for content in contents]
    return [
        Delivered(json.loads(meta)["message"], payload)
        for meta, payload in zip(contents[::2], contents[1::2], strict=True)
    ]


class RawAnswer:
    """An answer as it comes off the wire."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def head(self) -> bytes:
        return await self._reader.readuntil(b"\r\n\r\n")

    async def chunk(self) -> bytes:
        """The next HTTP chunk; empty at the end."""
        size_bytes = int(await self._reader.readuntil(b"\r\n"), 16)
        data = await self._reader.readexactly(size_bytes)
        assert await self._reader.readexactly(2) == b"\r\n"
        return data

    async def body(self, head: bytes) -> bytes:
        lines = head.lower().split(b"\r\n")
        if b"transfer-encoding: chunked" in lines:
            chunks = []
            while chunk := await self.chunk():
                chunks.append(chunk)
            return b"".join(chunks)
        lengths = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
        return await self._reader.readexactly(lengths[0] if lengths else 0)


@asynccontextmanager
async def raw(wire: Wire, request: bytes) -> AsyncIterator[RawAnswer]:
    """Send these bytes on a connection of their own; leaving the block hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.port, limit=1 << 24)
    try:
        writer.write(request)
        await writer.drain()
        yield RawAnswer(reader)
    finally:
        writer.close()


async def exchange(wire: Wire, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer to these bytes, without chunks."""
    async with raw(wire, request) as answer:
        head = await answer.head()
        return head, await answer.body(head)


async def until_available(wire: Wire, queue: str, *, is_available: bool = True) -> None:
    """Return when the queue has, or has not, something to deliver."""
    await _until(wire, queue, is_available)


async def until_redeliverable(wire: Wire, queue: str) -> None:
    """Return when the queue, having nothing to deliver, has something again.

    Another node may not have heard of the delivery yet, and calls the message available until it does.
    """
    await _until(wire, queue, False, True)


async def _until(wire: Wire, queue: str, *availability: bool) -> None:
    """Return when one watch has told of each in turn."""
    awaited = list(availability)
    async with wire.stream("/v1/queue/watch", {"queue": queue}) as events:
        async for line in events.aiter_lines():
            if line.startswith("data: ") and json.loads(line[6:])["available"] is awaited[0]:
                awaited.pop(0)
                if not awaited:
                    return
    raise AssertionError(f"the watch ended before it told {awaited}")
