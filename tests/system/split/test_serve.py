"""`holdfast serve gateway|leases|state|queue|txn` as real processes: any order of starting, any of them lost."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.system.cli import TIMEOUT_S
from tests.system.split.program import SERVICES, SplitProgram


@pytest.fixture
def plane(tmp_path: Path, postgres_url: str) -> Iterator[SplitProgram]:
    with ExitStack() as stack:
        yield SplitProgram(tmp_path, postgres_url, stack)


def test_processes_start_in_any_order_and_a_lost_one_shows_until_it_is_back(plane: SplitProgram) -> None:
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


def test_a_gateway_with_open_streams_ends_them_and_itself_in_order(plane: SplitProgram) -> None:
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
