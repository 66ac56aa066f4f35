"""Retention as an operator turns it on: in one process, split, and with two processes on one database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import LOOPBACK, gateway_before, url_of
from tests.infra.split import split_services

QUICK = ServeOptions(drain_grace_s=0)
FORGETFUL: dict[str, Any] = {
    "retention_keys_s": "1s",
    "retention_s": "1s",
    "disk_janitor_interval_s": "500ms",
}
TIMEOUT_S = 60
SHAPES = ("mem", "disk", "postgres", "two on postgres", "split")


@asynccontextmanager
async def _plane(store: str) -> AsyncIterator[str]:
    settings = GatewaySettings.isolated(store=store, qrf_disabled=True, **FORGETFUL)
    async with running(create_app(settings), LOOPBACK, options=QUICK) as server:
        yield url_of(server)


@pytest.fixture(params=SHAPES)
async def urls(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[str]]:
    shape = request.param
    stores = {"mem": "mem://", "disk": f"disk://{tmp_path}/store"}
    store = stores[shape] if shape in stores else request.getfixturevalue("postgres_url")
    async with AsyncExitStack() as stack:
        if shape == "split":
            peers = await stack.enter_async_context(split_services(store, **FORGETFUL))
            front = await stack.enter_async_context(gateway_before(qrf_disabled=True, **peers))
            yield [url_of(front)]
        else:
            count = 2 if shape.startswith("two") else 1
            yield [await stack.enter_async_context(_plane(store)) for _ in range(count)]


async def test_a_key_goes_with_its_document_and_its_token_does_not_come_back(urls: list[str]) -> None:
    async with (
        httpx.AsyncClient(base_url=urls[0], timeout=30) as client,
        httpx.AsyncClient(base_url=urls[-1], timeout=30) as other,
    ):
        first = await _acquire(client)
        headers = {
            "X-Lease-ID": first["lease_id"],
            "X-Txn-ID": first["txn_id"],
            "X-Fencing-Token": str(first["fencing_token"]),
        }
        (await client.post("/v1/update?key=job", content=b'{"a":1}', headers=headers)).raise_for_status()
        await _release(client, first)

        again = await _created_again(other)

    assert again["version"] == 0
    assert again["fencing_token"] == first["fencing_token"] + 1


async def _created_again(client: httpx.AsyncClient) -> dict[str, Any]:
    """As soon as it does not exist any more."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            answer = await client.post("/v1/acquire", json=_BODY | {"if_not_exists": True})
            if answer.status_code == 200:
                return answer.json()  # type: ignore[no-any-return]
            assert answer.json()["error"] == "already_exists"
            await asyncio.sleep(0.2)


_BODY = {"key": "job", "owner": "worker", "ttl_seconds": 30, "block_seconds": -1}


async def _acquire(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.post("/v1/acquire", json=_BODY)
    return answer.raise_for_status().json()  # type: ignore[no-any-return]


async def _release(client: httpx.AsyncClient, lease: dict[str, Any]) -> None:
    body = {name: lease[name] for name in ("key", "lease_id", "txn_id")}
    headers = {"X-Fencing-Token": str(lease["fencing_token"])}
    (await client.post("/v1/release", json=body, headers=headers)).raise_for_status()
