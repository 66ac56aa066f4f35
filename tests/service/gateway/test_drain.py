"""The gateway of a split plane stops: what would never end by itself is ended as the plane in one process ends it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import httpx
import pytest

from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import LOOPBACK, gateway_before, url_of, with_identity
from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import enqueue, raw
from tests.wire.lockd.test_queue_streams import request, subscribed, until_consumers

TIMEOUT_S = 20
CUT = "shutdown.requests.cut"


class Front(NamedTuple):
    """A gateway, its clients' way in, and the way past it to the services."""

    server: PlaneServer
    wire: Wire
    behind: Wire


@pytest.fixture(params=["lane", "asgi"])
async def front(request: pytest.FixtureRequest) -> AsyncIterator[Front]:
    plane = with_identity(create_app(GatewaySettings.isolated(store="mem://", qrf_disabled=True)))
    async with (
        running(plane, LOOPBACK, options=ServeOptions(drain_grace_s=0)) as services,
        gateway_before(url_of(services), is_express=request.param == "lane", qrf_disabled=True) as gateway,
        httpx.AsyncClient(base_url=url_of(gateway), timeout=TIMEOUT_S) as client,
        httpx.AsyncClient(base_url=url_of(services), timeout=TIMEOUT_S) as client_behind,
    ):
        yield Front(gateway, Wire(client), Wire(client_behind))


async def until_ended(server: PlaneServer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await server.lane.is_empty.wait()


async def test_a_subscription_ends_with_its_delimiter_and_is_over_behind_too(
    front: Front, capsys: pytest.CaptureFixture[str]
) -> None:
    await enqueue(front.wire, "orders", b"one")
    async with asyncio.timeout(TIMEOUT_S), subscribed(front.wire) as stream:
        await stream.open()
        await stream.next()

        front.server.request_stop()

        await stream.end()
        await until_consumers(front.behind, 0)
    await until_ended(front.server)
    assert CUT not in capsys.readouterr().err


async def test_a_message_that_has_begun_is_passed_on_to_its_end(front: Front) -> None:
    payload = b"0123456789abcdef" * 1_000_000
    await enqueue(front.wire, "orders", payload)
    async with asyncio.timeout(TIMEOUT_S), subscribed(front.wire) as stream:
        await stream.open()

        front.server.request_stop()

        assert (await stream.next()).payload == payload
        await stream.end()


async def test_a_watch_ends_after_a_whole_event(front: Front) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        front.wire.stream("/v1/queue/watch", {"queue": "orders"}) as answer,
    ):
        lines = answer.aiter_lines()
        begun = [await anext(lines) for _ in range(4)]

        front.server.request_stop()

        assert begun[-1] == ""
        assert [line async for line in lines] == []


@pytest.mark.parametrize("path", ["/v1/queue/subscribe", "/v1/queue/dequeue"])
async def test_a_waiter_for_a_message_is_refused_as_draining(front: Front, path: str) -> None:
    async with asyncio.timeout(TIMEOUT_S), raw(front.wire, request(path)) as waiting:
        await until_consumers(front.behind, 1)

        front.server.request_stop()

        head = await waiting.head()
        told = json.loads(await waiting.body(head))
        await until_consumers(front.behind, 0)

    assert head.startswith(b"HTTP/1.1 503 ")
    assert told["error"] == "shutdown_draining"
    assert told["retry_after_seconds"] >= 1


async def test_a_waiter_for_a_lease_is_refused_as_draining_and_leaves_no_waiter(
    front: Front, capsys: pytest.CaptureFixture[str]
) -> None:
    held = await front.behind.acquire("orders")
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        body = {"key": "orders", "owner": "other", "ttl_seconds": 30, "block_seconds": 3600}
        waiting = tasks.create_task(front.wire.post("/v1/acquire", body))
        await _until_one_waits(front.behind)

        front.server.request_stop()

    assert (waiting.result().status_code, waiting.result().json()["error"]) == (503, "shutdown_draining")
    await front.behind.release(held)
    again = await front.behind.acquire("orders", block_seconds=-1)
    assert again.token > held.token
    await until_ended(front.server)
    assert CUT not in capsys.readouterr().err


async def _until_one_waits(wire: Wire) -> None:
    """Each look is a round trip to the server, which lets it go on."""
    while "holdfast_lease_waiters 1" not in await wire.metrics():
        pass
