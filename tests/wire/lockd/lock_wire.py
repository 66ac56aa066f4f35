"""Locks and signals as a client of HTTP sends and hears them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import RawAnswer, raw

ACQUIRE: Final = "/v1/locks/acquire"
POLL_S: Final = 0.01


async def take(wire: Wire, key: str, **asked: object) -> dict[str, Any]:
    """A grant."""
    answer = await wire.post(ACQUIRE, {"key": key, **asked})
    assert answer.status_code == 200, answer.text
    members: dict[str, Any] = answer.json()
    return members


async def release(wire: Wire, grant: dict[str, Any]) -> None:
    answer = await wire.post("/v1/locks/release", {"key": grant["key"], "token": grant["token"]})
    assert answer.json() == {"released": 1}, answer.text


async def shown(wire: Wire, key: str) -> dict[str, Any]:
    members: dict[str, Any] = (await wire.get("/v1/locks/describe", key=key)).json()
    return members


async def until_waiting(wire: Wire, key: str, count: int) -> None:
    """Return when so many wait for a key."""
    while (await shown(wire, key))["waiting"] != count:  # noqa: ASYNC110  # Seen over HTTP only.
        await asyncio.sleep(POLL_S)


def asking(path: str, **members: object) -> bytes:
    body = json.dumps(members).encode()
    return f"POST {path} HTTP/1.1\r\nHost: p\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Signals:
    """An open stream of signals."""

    def __init__(self, answer: RawAnswer) -> None:
        self._answer = answer
        self._text = b""

    async def open(self) -> None:
        head = await self._answer.head()
        assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
        assert b"content-type: text/event-stream" in head.lower()
        assert await self.block() == ": listening"

    async def next(self) -> dict[str, Any]:
        """The next signal; heartbeats do not count."""
        while (block := await self.block()).startswith(":"):
            pass
        _, event, data = block.split("\n")
        assert event == "event: signal"
        members: dict[str, Any] = json.loads(data.removeprefix("data: "))
        return members

    async def has_ended(self) -> bool:
        """In good order."""
        return await self._answer.chunk() == b""

    async def block(self) -> str:
        """The next event or comment."""
        while b"\n\n" not in self._text:
            chunk = await self._answer.chunk()
            assert chunk, "the stream ended"
            self._text += chunk
        block, _, self._text = self._text.partition(b"\n\n")
        return block.decode()


@asynccontextmanager
async def listening(wire: Wire, query: str) -> AsyncIterator[Signals]:
    """A subscriber; leaving the block hangs up."""
    async with raw(wire, f"GET /v1/signals?{query} HTTP/1.1\r\nHost: p\r\n\r\n".encode()) as answer:
        signals = Signals(answer)
        await signals.open()
        yield signals


async def delivered(wire: Wire, channel: str, payload: str) -> int:
    answer = await wire.post("/v1/signals", {"channel": channel, "payload": payload})
    assert answer.status_code == 200, answer.text
    count: int = answer.json()["delivered"]
    return count
