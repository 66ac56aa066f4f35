"""The plane under pressure as its clients see it, served by the lane and by plain ASGI."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings

ACQUIRE = {"key": "orders", "owner": "worker-1", "ttl_seconds": 5, "block_seconds": -1}

# Some memory is always in use, so with these limits the first sample engages the throttle.
ALWAYS_ENGAGED: dict[str, Any] = {
    "qrf_memory_soft_limit_percent": 1e-9,
    "qrf_memory_hard_limit_percent": 1e-9,
    "lsf_sample_interval_s": 0.01,
}


@asynccontextmanager
async def _plane(*, is_express: bool = True, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(GatewaySettings.isolated(store="mem://", **settings))
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    async with running(app, Listener("127.0.0.1:0"), options=options) as server:
        address = server.addresses[0]
        assert isinstance(address, tuple)
        async with httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}", timeout=30) as client:
            yield client


async def _until_engaged(client: httpx.AsyncClient) -> None:
    while "holdfast_qrf_state 2\n" not in (await client.get("/metrics")).text:
        pass


@pytest.mark.parametrize("is_express", [True, False])
async def test_a_refused_acquire_is_answered_as_clients_expect_it(is_express: bool) -> None:
    async with _plane(is_express=is_express, qrf_wait_s_max=0, **ALWAYS_ENGAGED) as client:
        await _until_engaged(client)

        answer = await client.post("/v1/acquire", json=ACQUIRE)

    assert answer.status_code == 429
    assert answer.json() == {
        "error": "throttled",
        "detail": "perimeter defence engaged",
        "retry_after_seconds": 1,
    }
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["x-lockd-qrf-state"] == "engaged"


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/health", "/version", "/metrics", "/v1/describe?key=orders"]
)
async def test_some_endpoints_answer_whatever_the_pressure(path: str) -> None:
    async with _plane(qrf_wait_s_max=0, **ALWAYS_ENGAGED) as client:
        await _until_engaged(client)

        answer = await client.get(path)

    assert answer.status_code == 200


async def test_by_default_a_held_back_request_is_served_later() -> None:
    async with _plane(qrf_engaged_delay_s=0.02, **ALWAYS_ENGAGED) as client:
        await _until_engaged(client)

        answer = await client.post("/v1/acquire", json=ACQUIRE)

    assert answer.status_code == 200


async def test_a_disabled_throttle_lets_everybody_in_and_shows_no_figures() -> None:
    async with _plane(qrf_disabled=True, qrf_wait_s_max=0, **ALWAYS_ENGAGED) as client:
        answer = await client.post("/v1/acquire", json=ACQUIRE)
        metrics = (await client.get("/metrics")).text

    assert answer.status_code == 200
    assert "holdfast_qrf" not in metrics


async def test_the_docs_name_the_refusal() -> None:
    async with _plane() as client:
        paths = (await client.get("/openapi.json")).json()["paths"]

    assert "throttled" in paths["/v1/release"]["post"]["responses"]["429"]["description"]
    assert "429" not in paths["/v1/describe"]["get"]["responses"]
