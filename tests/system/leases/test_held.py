"""Thousands of leases held by one client in one process: none is lost while its server runs."""

import asyncio
import os
import signal

import pytest

from holdfast.client.aio.client import AsyncClient
from holdfast.client.testing.server import TestServer
from tests.system.leases.held import calls_by_route, hold_many


@pytest.mark.parametrize(
    ("leases", "ttl_s", "seconds", "store"),
    [
        (2_000, 10.0, 15.0, "mem://"),
        pytest.param(3_000, 10.0, 15.0, "mem://", marks=pytest.mark.long),
        pytest.param(10_000, 30.0, 300.0, "disk", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
async def test_no_lease_of_thousands_is_lost(leases: int, ttl_s: float, seconds: float, store: str) -> None:
    async with TestServer(store=store) as server:
        seen = await hold_many(server, leases, ttl_s, seconds)

    assert (seen.acquired, seen.lost, seen.swept) == (leases, 0, 0), seen
    assert seen.renewals >= leases, seen


async def test_a_server_that_stands_still_for_seconds_is_not_flooded_afterwards() -> None:
    """Its calls time out while it stands still; what failed together has to come back together."""
    async with TestServer() as server, AsyncClient(server.url) as client:
        sessions = await asyncio.gather(
            *(client.acquire(f"held/{number}", ttl_s=24, block_s=None) for number in range(500))
        )
        await asyncio.sleep(11.0)  # Shortly before the renewals are due.
        os.kill(server.pid, signal.SIGSTOP)
        await asyncio.sleep(
            7.0
        )  # Longer than a call waits for its answer, shorter than the rest of the leases.
        os.kill(server.pid, signal.SIGCONT)
        await asyncio.sleep(8.0)
        calls = await calls_by_route(server)
        lost = sum(session.lost.is_set() for session in sessions)

    assert lost == 0
    assert calls.get("/v1/keepalive", 0) + calls.get("/v1/keepalive/batch", 0) < 100, calls
