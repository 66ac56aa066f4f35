"""What clients are told while a server drains."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import RawAnswer, raw


@pytest.fixture(params=["lane", "asgi"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[tuple[PlaneServer, Wire]]:
    app = create_app(GatewaySettings.isolated(store="mem://"))
    options = ServeOptions(is_express=request.param == "lane", drain_grace_s=5)
    async with running(app, Listener("127.0.0.1:0"), options=options) as server:
        address = server.addresses[0]
        assert isinstance(address, tuple)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{address[1]}", timeout=20) as client:
            yield server, Wire(client)


def acquiring(block_s: int) -> bytes:
    asked = json.dumps({"key": "orders", "owner": "other", "ttl_seconds": 30, "block_seconds": block_s})
    head = f"POST /v1/acquire HTTP/1.1\r\nHost: p\r\nContent-Length: {len(asked)}\r\n\r\n"
    return (head + asked).encode()


async def until_waiters(wire: Wire, count: int) -> None:
    """Each look is a round trip to the server, which lets it go on."""
    while f"holdfast_lease_waiters {count}" not in await wire.metrics():
        pass


async def answered(answer: RawAnswer) -> tuple[bytes, dict[str, Any]]:
    head = await answer.head()
    told: dict[str, Any] = json.loads(await answer.body(head))
    return head, told


async def test_whoever_waits_for_a_lease_is_sent_elsewhere_at_once(server: tuple[PlaneServer, Wire]) -> None:
    plane, wire = server
    lease = await wire.acquire("orders")
    async with raw(wire, acquiring(0)) as first, raw(wire, acquiring(600)) as second:
        await until_waiters(wire, 2)

        plane.request_stop()
        refused = [await answered(first), await answered(second)]
        released = await wire.release(lease)

    for head, told in refused:
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"shutdown-imminent: true" in head
        assert told["error"] == "shutdown_draining"
        assert f"retry-after: {told['retry_after_seconds']}\r\n".encode() in head
    assert released.json() == {"released": True}
