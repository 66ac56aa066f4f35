"""`holdfast serve gateway|leases|state|queue|txn` as real processes: any order of starting, any of them lost."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.infra.program import free_port
from tests.system.cli import TIMEOUT_S, Server, serving

SERVICES: Final = ("leases", "state", "queue", "txn")
SECRET: Final = "a secret for the tests alone"


@dataclass(slots=True)
class SplitPlane:
    """The processes of one plane; each may be started and killed by itself."""

    home: Path
    store_url: str
    stack: ExitStack
    ports: dict[str, int] = field(
        default_factory=lambda: {role: free_port() for role in ("gateway", *SERVICES)}
    )
    servers: dict[str, Server] = field(default_factory=dict[str, Server])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['gateway']}"

    def start(self, role: str) -> None:
        peers = [
            word
            for service in SERVICES
            for word in (f"--peer-{service}", f"http://127.0.0.1:{self.ports[service]}")
        ]
        flags = (role, "--listen", f"127.0.0.1:{self.ports[role]}", *peers)
        store = () if role == "gateway" else ("--store", self.store_url)
        secret = {"HOLDFAST_INTERNAL_SECRET": SECRET}
        self.servers[role] = self.stack.enter_context(serving(self.home, *flags, *store, **secret))

    def kill(self, role: str) -> None:
        self.servers[role].stop(signal.SIGKILL)

    def readiness(self) -> dict[str, str]:
        answer = httpx.get(f"{self.url}/readyz", timeout=TIMEOUT_S)
        reasons: dict[str, str] = {} if answer.status_code == 200 else answer.json()["reasons"]
        return reasons

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline_s, self.readiness()
            time.sleep(0.05)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, headers=headers, timeout=TIMEOUT_S)


@pytest.fixture
def plane(tmp_path: Path, postgres_url: str) -> Iterator[SplitPlane]:
    with ExitStack() as stack:
        yield SplitPlane(tmp_path, postgres_url, stack)


def test_processes_start_in_any_order_and_a_lost_one_shows_until_it_is_back(plane: SplitPlane) -> None:
    plane.start("gateway")
    assert set(plane.readiness()) == set(SERVICES)
    refused = plane.post("/v1/acquire", {"key": "orders", "owner": "worker", "ttl_seconds": 5})
    assert (refused.status_code, refused.json()["error"]) == (503, "upstream_unavailable")

    for role in ("queue", "txn", "state", "leases"):
        plane.start(role)
    plane.until(lambda: plane.readiness() == {})
    lease = plane.post("/v1/acquire", {"key": "orders", "owner": "worker", "ttl_seconds": 30}).json()
    claim = {
        "X-Lease-ID": lease["lease_id"],
        "X-Txn-ID": lease["txn_id"],
        "X-Fencing-Token": str(lease["fencing_token"]),
    }
    assert plane.post("/v1/update?key=orders", {"state": "open"}, claim).status_code == 200

    plane.kill("leases")
    plane.until(lambda: "leases" in plane.readiness())
    assert "cannot be reached" in plane.readiness()["leases"]

    plane.start("leases")
    plane.until(lambda: plane.readiness() == {})
    ended = {"key": "orders", "lease_id": lease["lease_id"], "txn_id": lease["txn_id"]}
    assert plane.post("/v1/release", ended, claim).json() == {"released": True}
    assert plane.post("/v1/get?key=orders&public=1", None).json() == {"state": "open"}


def test_a_gateway_with_open_streams_ends_them_and_itself_in_order(plane: SplitPlane) -> None:
    for role in ("gateway", *SERVICES):
        plane.start(role)
    plane.until(lambda: plane.readiness() == {})
    watch = httpx.stream("POST", f"{plane.url}/v1/queue/watch", json={"queue": "orders"}, timeout=TIMEOUT_S)

    with watch as events:
        lines = events.iter_lines()
        begun = [next(lines) for _ in range(4)]
        status = plane.servers["gateway"].stop()
        rest = list(lines)

    assert (begun[1], begun[-1]) == ("event: queue_watch", "")
    assert rest == []
    assert status == 0
    assert "shutdown.requests.cut" not in (plane.home / "server.log").read_text()
