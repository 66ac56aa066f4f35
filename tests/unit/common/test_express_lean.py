"""What a connection costs that comes with one request and goes: its worker serves the next one, and nothing of it stays."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from uvicorn._types import ASGI3Application
from uvicorn.server import ServerState

from holdfast.common.express.lane import Lane
from holdfast.common.express.message import Answer, Request
from holdfast.common.express.protocol import ExpressProtocol, bound_to
from holdfast.common.express.router import ExpressRouter
from holdfast.common.serving.app import build_app, parts_of
from tests.unit.common.fake_connection import FakeTransport

GET = b"GET /%b HTTP/1.1\r\nHost: p\r\n\r\n"


class Office:
    """A lane and the connections it had; `seen` are the tasks that its requests ran in."""

    def __init__(self) -> None:
        self.seen: list[asyncio.Task[Any] | None] = []
        self.cancelled = 0
        self.more = asyncio.Event()
        router = ExpressRouter()
        router.add("/quick", self.quick, methods=("GET",))
        router.add("/wait", self.wait, methods=("GET",))
        app = build_app("test", express_routers=[router])
        self.lane = Lane(parts_of(app).table)
        self.lane.tick(1.0, 1_700_000_000.0)
        self._protocol_class = bound_to(self.lane, cast(ASGI3Application, app), ServerState())

    async def quick(self, request: Request, body: None) -> Answer:
        self.seen.append(asyncio.current_task())
        return Answer(200, b"fine")

    async def wait(self, request: Request, body: None) -> Answer:
        self.seen.append(asyncio.current_task())
        try:
            await self.more.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Answer(200, b"fine")

    async def connect(self, path: bytes) -> tuple[ExpressProtocol, FakeTransport]:
        """A connection that has sent its request, from the loop, as a socket does."""
        protocol, transport = self._protocol_class(), FakeTransport()
        begun = asyncio.get_running_loop().create_future()

        def begin() -> None:
            protocol.connection_made(transport)
            protocol.data_received(GET % path)
            begun.set_result(None)

        asyncio.get_running_loop().call_soon(begin)
        await begun
        return protocol, transport


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    office = Office()
    yield office
    office.lane.begin_close()
    await asyncio.sleep(0.01)


async def test_a_worker_serves_one_connection_after_the_other(office: Office) -> None:
    for _ in range(3):
        protocol, transport = await office.connect(b"quick")
        assert transport.written.endswith(b"fine")
        protocol.connection_lost(None)

    assert office.seen[0] is not None
    assert office.seen == [office.seen[0]] * 3


async def test_connections_at_once_have_workers_of_their_own(office: Office) -> None:
    first, _ = await office.connect(b"quick")
    second, _ = await office.connect(b"quick")

    assert office.seen[0] is not office.seen[1]
    first.connection_lost(None)
    second.connection_lost(None)


async def test_what_a_lost_connection_waits_for_is_cancelled_and_its_worker_is_not_used_again(
    office: Office,
) -> None:
    protocol, transport = await office.connect(b"wait")
    protocol.connection_lost(None)
    await asyncio.sleep(0.01)
    next_protocol, next_transport = await office.connect(b"quick")

    assert office.cancelled == 1
    assert transport.written == b""
    assert next_transport.written.endswith(b"fine")
    assert office.seen[0] is not office.seen[1]
    next_protocol.connection_lost(None)


async def test_a_worker_that_waited_for_one_connection_serves_the_next(office: Office) -> None:
    protocol, transport = await office.connect(b"wait")
    office.more.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert transport.written.endswith(b"fine")
    protocol.connection_lost(None)

    next_protocol, _ = await office.connect(b"quick")

    assert office.seen[0] is office.seen[1]
    next_protocol.connection_lost(None)


async def test_a_lane_that_closes_leaves_no_task_behind(office: Office) -> None:
    before = asyncio.all_tasks()
    protocol, _ = await office.connect(b"quick")
    protocol.connection_lost(None)
    late, _ = await office.connect(b"quick")

    office.lane.begin_close()
    late.connection_lost(None)
    await asyncio.sleep(0.01)

    assert asyncio.all_tasks() <= before
    assert office.lane.is_empty.is_set()


@pytest.mark.parametrize(
    "request_line", [b"GET /quick HTTP/1.1", b"GET  /quick HTTP/1.1", b"GET /none HTTP/1.1"]
)
async def test_a_connection_that_is_over_needs_no_collector(office: Office, request_line: bytes) -> None:
    protocol, transport = await office.connect(b"quick")
    protocol.data_received(request_line + b"\r\nHost: p\r\nTE: x\r\n\r\n")
    for _ in range(20):
        await asyncio.sleep(0)
    gc.collect()
    gc.disable()
    try:
        protocol.connection_lost(None)
        transport.close()
        await asyncio.sleep(0.01)
        del protocol, transport
        await asyncio.sleep(0)
        left = [one for one in gc.get_objects() if isinstance(one, ExpressProtocol)]
    finally:
        gc.enable()
    assert left == []


def test_a_connection_has_no_room_for_more_than_it_needs() -> None:
    lane = Lane({})
    bound = bound_to(lane, cast(ASGI3Application, None), ServerState())

    assert bound.__dictoffset__ == 0
