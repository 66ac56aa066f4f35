"""Many leases held by one client in one process: how many of them are lost, and what holding them costs.

`python -m tests.system.leases.held --leases 10000 --ttl 30 --seconds 300` prints the figures of clients/python/README.md.
"""

import argparse
import asyncio
import time
from typing import NamedTuple

import httpx
import psutil

from holdfast.client.aio.client import AsyncClient
from holdfast.client.aio.session import Session
from holdfast.client.options import ClientOptions
from holdfast.client.testing.server import TestServer


class Figures(NamedTuple):
    """What one run saw."""

    acquired: int
    lost: int
    swept: int
    """Leases that the server ended because their time was over."""
    acquire_s: float
    held_s: float
    renewals: int
    client_cpu_s: float
    server_cpu_s: float

    def __str__(self) -> str:
        return (
            f"{self.acquired} leases acquired in {self.acquire_s:.1f} s and held for {self.held_s:.0f} s: "
            f"{self.lost} lost, {self.swept} ended by the server, {self.renewals} renewals; "
            f"CPU while held: client {self.client_cpu_s / self.held_s:.1%}, "
            f"server {self.server_cpu_s / self.held_s:.1%} of one core"
        )


async def hold_many(server: TestServer, leases: int, ttl_s: float, seconds: float) -> Figures:
    """Acquire all of them at once, hold them for so long, count what is left."""
    async with AsyncClient(server.url, options=ClientOptions(close_timeout_s=0.1)) as client:
        began_s = time.monotonic()
        sessions: list[Session] = await asyncio.gather(
            *(client.acquire(f"held/{number}", ttl_s=ttl_s, block_s=None) for number in range(leases))
        )
        acquired_s = time.monotonic()
        own_cpu_s, server_cpu_s = time.process_time(), _cpu_s(server)
        before = await _metrics(server)
        await asyncio.sleep(seconds)
        own_cpu_s, server_cpu_s = time.process_time() - own_cpu_s, _cpu_s(server) - server_cpu_s
        after = await _metrics(server)
        held_s = time.monotonic() - acquired_s
        lost = sum(session.lost.is_set() for session in sessions)
    renewals = after["renewed"] - before["renewed"]
    acquire_s = acquired_s - began_s
    return Figures(
        leases, lost, int(after["swept"]), acquire_s, held_s, int(renewals), own_cpu_s, server_cpu_s
    )


def _cpu_s(server: TestServer) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


async def _metrics(server: TestServer) -> dict[str, float]:
    lines = await _shown(server)

    def total(name: str) -> float:
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    return {
        "renewed": total('holdfast_lease_keepalive_total{namespace="default",result="ok"}'),
        "swept": total("holdfast_sweep_lease_cleared_total"),
    }


async def calls_by_route(server: TestServer) -> dict[str, int]:
    """How many calls the server has answered, by path."""
    calls: dict[str, int] = {}
    for line in await _shown(server):
        if line.startswith("holdfast_http_requests_total{"):
            path = line.partition('route="')[2].partition('"')[0]
            calls[path] = calls.get(path, 0) + int(float(line.rsplit(" ", 1)[1]))
    return calls


async def _shown(server: TestServer) -> list[str]:
    async with httpx.AsyncClient(base_url=server.direct_url) as client:
        return (await client.get("/metrics")).text.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", type=int, default=10_000)
    parser.add_argument("--ttl", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--store", default="disk")
    asked = parser.parse_args()
    with TestServer(store=asked.store) as server:
        figures = asyncio.run(hold_many(server, asked.leases, asked.ttl, asked.seconds))
    print(figures)  # noqa: T201 - what it was run for


if __name__ == "__main__":
    main()
