"""Answers that give something away: it is taken back when the client is gone before it was sent."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.common.express.message import HandOver, Request, StreamAnswer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.undo import CALL_OFF
from holdfast.common.serving.app import build_app
from tests.unit.common.fake_connection import FakeConnection

REQUEST = b"POST /%b HTTP/1.1\r\nHost: p\r\nContent-Length: 0\r\n\r\n"


class Giver:
    """Gives by both kinds of answers, and notes what came back."""

    def __init__(self) -> None:
        self.returned: list[str] = []
        self.more = asyncio.Event()
        self.router = ExpressRouter()
        self.router.add("/whole", self.whole)
        self.router.add("/stream", self.stream)
        self.router.add("/wait", self.wait)

    async def whole(self, request: Request, body: None) -> HandOver:
        return HandOver(200, b"gift", [], lambda: self.returned.append("whole"))

    async def wait(self, request: Request, body: None) -> HandOver:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.returned.append("wait")
            raise
        raise AssertionError("nobody sets it")

    async def stream(self, request: Request, body: None) -> StreamAnswer:
        return StreamAnswer(200, [], None, self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            yield b"gift"
            await self.more.wait()
        except (GeneratorExit, asyncio.CancelledError):
            self.returned.append("stream")
            raise


@pytest.fixture
def peer() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def connected(giver: Giver, ours: socket.socket, *, is_express: bool) -> FakeConnection:
    connection = FakeConnection(build_app("test", express_routers=[giver.router]), is_express=is_express)
    connection.transport.socket = ours
    return connection


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
@pytest.mark.parametrize("kind", ["whole", "stream"])
async def test_a_client_that_is_there_gets_it(
    peer: tuple[socket.socket, socket.socket], kind: str, is_express: bool
) -> None:
    giver = Giver()
    connection = connected(giver, peer[0], is_express=is_express)

    await connection.feed(REQUEST % kind.encode())
    written = await connection.settle(1)

    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"gift" in written or kind == "stream"
    assert giver.returned == []


@pytest.mark.parametrize(
    ("kind", "is_express"),
    [("whole", True), ("whole", False), ("stream", True)],
    ids=["lane", "asgi", "stream"],
)
async def test_what_a_client_that_is_gone_would_have_got_is_taken_back(
    peer: tuple[socket.socket, socket.socket], kind: str, is_express: bool
) -> None:
    giver = Giver()
    connection = connected(giver, peer[0], is_express=is_express)
    peer[1].close()

    await connection.feed(REQUEST % kind.encode())
    for _ in range(100):
        await asyncio.sleep(0)

    assert giver.returned == [kind]
    assert connection.transport.written == b"" or not is_express


@pytest.mark.parametrize("kind", ["wait", "stream"])
async def test_a_request_that_is_called_off_ends_behind_what_was_sent(
    peer: tuple[socket.socket, socket.socket], kind: str
) -> None:
    giver = Giver()
    connection = connected(giver, peer[0], is_express=True)
    await connection.feed(REQUEST % kind.encode())
    for _ in range(20):
        await asyncio.sleep(0)

    await connection.feed(CALL_OFF)
    for _ in range(20):
        await asyncio.sleep(0)

    assert giver.returned == [kind]
    assert (b"gift" in connection.transport.written) is (kind == "stream")
    assert connection.transport.is_over
    assert not connection.transport.is_aborted  # What was written may still be on its way.


async def test_a_request_that_is_called_off_as_soon_as_it_began_ends_too(
    peer: tuple[socket.socket, socket.socket],
) -> None:
    giver = Giver()
    connection = connected(giver, peer[0], is_express=True)

    await connection.feed(REQUEST % b"wait" + CALL_OFF)
    for _ in range(20):
        await asyncio.sleep(0)

    assert giver.returned == ["wait"]
    assert connection.transport.is_over
    assert connection.transport.written == b""


async def test_an_answer_that_was_given_is_not_called_off(
    peer: tuple[socket.socket, socket.socket],
) -> None:
    giver = Giver()
    connection = connected(giver, peer[0], is_express=True)
    await connection.feed(REQUEST % b"whole")
    await connection.settle(1)

    await connection.feed(CALL_OFF)

    assert connection.transport.written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert giver.returned == []
    assert not connection.transport.is_over
