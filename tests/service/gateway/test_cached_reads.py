"""A public read that is answered from memory is guarded, held back, counted and traced as one that is not."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import NamedTuple

import httpx
import pytest

from holdfast.common.errors import HoldfastError
from holdfast.common.express.execution import Gate, Hooks
from holdfast.common.express.message import Request
from holdfast.common.express.route import Route
from holdfast.common.serving.app import parts_of
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.common.telemetry.tracing import Span, Tracer
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import LOOPBACK, url_of
from tests.wire.lockd.conftest import Wire

CACHED, READ_FIRST = "/v1/get?key=page&public=1", "/v1/get?public=1&key=page"


class Plane(NamedTuple):
    server: PlaneServer
    hooks: Hooks
    wire: Wire
    client: httpx.AsyncClient

    async def read(self, target: str = CACHED) -> httpx.Response:
        return await self.client.post(target)

    async def hits(self) -> float:
        return await self.figure("holdfast_state_cache_hits_total ")

    async def figure(self, name: str) -> float:
        (line,) = [line for line in (await self.wire.metrics()).splitlines() if line.startswith(name)]
        return float(line.split()[-1])


class Refused(HoldfastError):
    """For the tests alone."""

    code, status = "refused_by_the_test", 403


class Shut(Gate):
    """Lets nobody in."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = False

    def look(self, request: Request) -> Awaitable[None] | None:
        raise Refused("too much work")


@asynccontextmanager
async def plane_with(*, is_express: bool) -> AsyncIterator[Plane]:
    app = create_app(GatewaySettings.isolated(store="mem://", qrf_disabled=True))
    options = ServeOptions(is_express=is_express, drain_grace_s=5)
    async with (
        running(app, LOOPBACK, options=options) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=20) as client,
    ):
        plane = Plane(server, parts_of(app).hooks, Wire(client), client)
        lease = await plane.wire.acquire("page")
        assert (await plane.wire.update(lease, b'{"n":1}')).status_code == 200
        assert (await plane.wire.release(lease)).status_code == 200
        for _ in range(3):
            assert (await plane.read()).json() == {"n": 1}
        hits = await plane.hits()
        assert (await plane.read()).json() == {"n": 1}
        assert await plane.hits() == hits + 1
        yield plane


@pytest.fixture(params=["lane", "asgi"])
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[Plane]:
    """It has a document in memory, as it is answered."""
    async with plane_with(is_express=request.param == "lane") as plane:
        yield plane


def told(answer: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    """All but what is another one each time."""
    own = ("date", "x-correlation-id")
    return (
        answer.status_code,
        answer.content,
        {name: value for name, value in answer.headers.items() if name not in own},
    )


async def test_a_caller_who_may_not_read_gets_nothing_from_memory(plane: Plane) -> None:
    def identify(route: Route, request: Request) -> None:
        if route.path == "/v1/get":
            raise Refused("you may not")

    plane.hooks.identify = identify
    answers = [await plane.read(CACHED), await plane.read(READ_FIRST)]
    plane.hooks.identify = None

    assert [told(answer) for answer in answers] == [told(answers[1])] * 2
    assert answers[0].status_code == 403
    assert b'"n"' not in answers[0].content
    assert (await plane.read()).status_code == 200


async def test_back_pressure_holds_a_read_from_memory_back(plane: Plane) -> None:
    gate = Shut()
    gates = plane.hooks.gates
    plane.hooks.gates = {**gates, "/v1/get": gate}
    answers = [await plane.read(CACHED), await plane.read(READ_FIRST)]
    plane.hooks.gates = gates

    assert [told(answer) for answer in answers] == [told(answers[1])] * 2
    assert answers[0].json()["error"] == "refused_by_the_test"
    assert (gate.entered, gate.left) == (2, 2)


async def test_a_server_that_drains_answers_from_memory_as_it_answers_otherwise(plane: Plane) -> None:
    lease = await plane.wire.acquire("held")  # It waits for the holder.
    plane.server.request_stop()
    while "shutdown-imminent" not in (await plane.client.get("/healthz")).headers:
        pass  # Each look is a round trip, which lets the server go on.

    cached, other = await plane.read(CACHED), await plane.read(READ_FIRST)
    assert (await plane.wire.release(lease)).status_code == 200

    assert told(cached) == told(other)
    assert (cached.status_code, cached.headers["shutdown-imminent"]) == (200, "true")


async def test_a_read_from_memory_is_counted(plane: Plane) -> None:
    name = 'holdfast_http_requests_total{route="/v1/get",method="POST",status="200"}'
    before = await plane.figure(name)

    for _ in range(5):
        await plane.read()

    assert await plane.figure(name) == before + 5


async def test_a_read_from_memory_is_traced(plane: Plane) -> None:
    spans: list[Span] = []
    plane.hooks.tracer = Tracer(1.0, spans.append)
    answers = [await plane.read(CACHED), await plane.read(READ_FIRST)]
    plane.hooks.tracer = None

    assert [answer.status_code for answer in answers] == [200, 200]
    assert [(span.route, span.path, span.status) for span in spans] == [("/v1/get", "/v1/get", 200)] * 2
