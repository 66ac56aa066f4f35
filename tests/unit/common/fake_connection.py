"""An express connection without a socket: bytes go in by hand, answers are collected, time is a number."""

import asyncio
import socket
from typing import Any, cast

from fastapi import FastAPI
from uvicorn._types import ASGI3Application
from uvicorn.server import ServerState

from holdfast.common.express.lane import Lane
from holdfast.common.express.limits import Limits
from holdfast.common.express.protocol import bound_to
from holdfast.common.serving.app import parts_of


class FakeTransport(asyncio.Transport):
    """Keeps what was written and what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_reading_paused = False
        self.is_over = False
        self.is_aborted = False
        self.socket: socket.socket | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket if name == "socket" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = self.is_aborted = True

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False


class FakeConnection:
    """One connection of an app; `tick` lets seconds pass."""

    def __init__(self, app: FastAPI, limits: Limits | None = None, *, is_express: bool = True) -> None:
        parts = parts_of(app)
        self.lane = Lane(parts.table, parts.hooks, limits=limits or Limits(), is_express=is_express)
        self._now_s = 100.0
        self.lane.tick(self._now_s, 1_700_000_000.0)
        self.protocol = bound_to(self.lane, cast(ASGI3Application, app), ServerState())()
        self.transport = FakeTransport()
        self.protocol.connection_made(self.transport)

    def tick(self, seconds: float) -> None:
        """Let time pass, long enough for a sweep."""
        self._now_s += seconds
        for _ in range(10):
            self.lane.tick(self._now_s, 1_700_000_000.0 + self._now_s)

    async def feed(self, *pieces: bytes) -> None:
        """Give bytes as a socket would: from the event loop, outside of any task."""
        loop = asyncio.get_running_loop()
        for piece in pieces:
            done = loop.create_future()
            loop.call_soon(self._feed_one, piece, done)
            await done

    def _feed_one(self, piece: bytes, done: "asyncio.Future[None]") -> None:
        self.protocol.data_received(piece)
        done.set_result(None)

    async def settle(self, answers: int) -> bytes:
        """What was written once so many answers are out."""
        for _ in range(10_000):
            if self.transport.written.count(b"HTTP/1.1 ") >= answers or self.transport.is_over:
                break
            await asyncio.sleep(0)
        return self.transport.written
