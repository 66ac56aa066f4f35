"""A real server on a small file system that a stranger's file fills: readiness, answers and log, before and after."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.system.cli import Server, serving

RESERVE = 64 << 20
TIMEOUT_S = 20


def until(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline_s, "it did not come to pass in time"
        time.sleep(0.05)


def acquire(client: httpx.Client, key: str, ttl_s: int = 60) -> httpx.Response:
    return client.post("/v1/acquire", json={"key": key, "owner": "me", "ttl_seconds": ttl_s})


def publish(client: httpx.Client, key: str) -> None:
    lease = acquire(client, key).json()
    claim = {
        "X-Lease-ID": lease["lease_id"],
        "X-Txn-ID": lease["txn_id"],
        "X-Fencing-Token": str(lease["fencing_token"]),
    }
    updated = client.post(f"/v1/update?key={key}", json={"a": 1}, headers=claim)
    assert updated.status_code == 200, updated.text
    ended = {"key": key, "lease_id": lease["lease_id"], "txn_id": lease["txn_id"]}
    assert client.post("/v1/release", json=ended, headers=claim).status_code == 200


def fill(path: Path) -> None:
    """Leave 30 MiB: there is room, but less than the reserve."""
    usage = os.statvfs(path.parent)
    with path.open("wb") as file:
        file.write(bytes(usage.f_bavail * usage.f_frsize - (30 << 20)))


def log_lines(home: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (home / "server.log").read_text().splitlines() if line[:1] == "{"]


def written_lines(home: Path) -> list[dict[str, str]]:
    return [line for line in log_lines(home) if line["msg"].startswith("storage.writes.")]


def run(folder: Path, home: Path, server: Server) -> None:
    filler = folder / "filler"
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
        publish(client, "orders")
        assert acquire(client, "short", ttl_s=2).status_code == 200
        assert client.get("/readyz").status_code == 200

        fill(filler)
        until(lambda: client.get("/readyz").status_code == 503)
        for number in range(5):
            until(lambda number=number: acquire(client, f"other{number}").status_code == 507)  # type: ignore[misc]
        refused = acquire(client, "another")
        reasons = client.get("/readyz").json()["reasons"]
        assert refused.json()["error"] == "storage_full", refused.text
        assert "less than 64 MiB free" in refused.json()["detail"], refused.text
        assert "less than 64 MiB free" in reasons["store"], reasons
        assert client.post("/v1/get?key=orders&public=1").json() == {"a": 1}
        time.sleep(3)  # The short lease ends now, again and again, and no call is needed for it.
        loud = [line["msg"] for line in log_lines(home) if line["lvl"] in ("warn", "error")]
        loud = [
            message for message in loud if not message.startswith("holdfast.qrf.")
        ]  # The machine is busy.
        assert loud == ["storage.writes.failing"], loud

        filler.unlink()
        until(lambda: client.get("/readyz").status_code == 200)
        assert acquire(client, "more").status_code == 200
        told = [(line["msg"], line["code"]) for line in written_lines(home)]
        assert told == [
            ("storage.writes.failing", "storage_full"),
            ("storage.writes.resumed", "storage_full"),
        ]


def main(folder: Path) -> None:
    home = folder.with_name("home")
    with serving(
        home,
        "--disable-mtls",
        "--listen",
        "127.0.0.1:0",
        "--tcp-listen",
        "off",
        "--store",
        f"disk://{folder}/store",
    ) as server:
        run(folder, home, server)
    sys.stdout.write("refused, told once, read, resumed\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
