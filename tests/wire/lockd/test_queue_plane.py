"""Queues of planes that are not the usual one: with settings of their own, and over stores that survive their end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import LOOPBACK, url_of
from tests.wire.lockd.conftest import Wire, split_wire
from tests.wire.lockd.queue_wire import deliveries, dequeue, enqueue, take
from tests.wire.lockd.test_leases import refusal

LARGE = b"0123456789abcdef" * 20_000


@asynccontextmanager
async def plane(shape: str, store: str, **settings: Any) -> AsyncIterator[Wire]:
    if shape == "split":
        async with split_wire(store, **settings) as wire:
            yield wire
        return
    app = create_app(GatewaySettings.isolated(store=store, **settings))
    async with (
        running(app, LOOPBACK, options=ServeOptions(drain_grace_s=0)) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=20) as client,
    ):
        yield Wire(client)


@pytest.fixture(params=["one", pytest.param("split", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The shape of a plane, and the store below it."""
    store = str(request.getfixturevalue("postgres_url")) if request.param == "split" else "mem://"
    return str(request.param), store


async def test_a_dequeue_may_be_allowed_to_bring_several_messages(place: tuple[str, str]) -> None:
    async with plane(*place, queue_dequeue_batch_max=3) as wire:
        for _ in range(6):
            await enqueue(wire, "orders")
        plain = await take(wire, "orders")
        two = await take(wire, "orders", page_size=2)
        many = await take(wire, "orders", page_size=64)

    counts = [
        len(deliveries(answer.headers["content-type"], answer.content)) for answer in (plain, two, many)
    ]
    assert counts == [1, 2, 3]


async def test_consumers_beyond_the_limit_are_told_that_the_queue_is_busy(place: tuple[str, str]) -> None:
    async with plane(*place, queue_consumers_max=1, qrf_disabled=True) as wire:
        async with wire.stream("/v1/queue/watch", {"queue": "orders"}):
            waiting = {"queue": "orders", "owner": "w", "wait_seconds": 0}
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{wire.port}") as client:
                await enqueue(wire, "orders")
                async with client.stream("POST", "/v1/queue/subscribe", json=waiting):
                    refused = await take(wire, "orders", wait_seconds=5)

    assert refusal(refused) == (503, "queue_busy")


async def test_times_are_those_of_the_settings(place: tuple[str, str]) -> None:
    async with plane(*place, ttl_s_default="7s", ttl_s_max="20s") as wire:
        await enqueue(wire, "orders")
        await enqueue(wire, "orders")
        plain = await dequeue(wire, "orders")
        long = await dequeue(wire, "orders", visibility_timeout_seconds=1000)

    assert plain.message["visibility_timeout_seconds"] == 7
    assert long.message["visibility_timeout_seconds"] == 20


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("one", "disk"), ("one", "postgres"), pytest.param("split", "postgres", marks=pytest.mark.long)],
)
async def test_what_was_answered_holds_after_the_plane_was_restarted(
    request: pytest.FixtureRequest, tmp_path: Path, shape: str, kind: str
) -> None:
    store = str(request.getfixturevalue("postgres_url")) if kind == "postgres" else f"disk://{tmp_path}/store"
    async with plane(shape, store) as wire:
        for payload in (b"one", LARGE, b"three"):
            await enqueue(wire, "orders", payload, {"X-Correlation-Id": "req-1"}, attributes={"a": 1})
        held = await dequeue(wire, "orders", visibility_timeout_seconds=60)
        late = await enqueue(wire, "late", delay_seconds=1)

    async with plane(shape, store) as wire:
        large = await dequeue(wire, "orders")
        three = await dequeue(wire, "orders")
        empty = await take(wire, "orders")
        acked = await wire.post("/v1/queue/ack", held.resolve())
        gone = await wire.post("/v1/queue/ack", held.resolve())
        due = await dequeue(wire, "late", wait_seconds=20)

    assert (held.payload, large.payload, three.payload) == (b"one", LARGE, b"three")
    assert (large.message["correlation_id"], large.message["attributes"]) == ("req-1", {"a": 1})
    assert refusal(empty) == (409, "waiting")
    assert (acked.status_code, gone.status_code) == (200, 404)
    assert due.message["message_id"] == late["message_id"]
