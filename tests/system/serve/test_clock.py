"""Processes whose machine has a wrong clock: on a PostgreSQL that they share, and on a disk after a restart."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.cli import TIMEOUT_S, Server, serving

PROGRAM = str(Path(__file__).with_name("wrong_clock.py"))
HOUR_S = 3600


@contextmanager
def plane(home: Path, store: str, *flags: str, wrong_s: float = 0) -> Iterator[Server]:
    home.mkdir(exist_ok=True)
    set_clock(home, wrong_s)
    flags = ("--listen", "127.0.0.1:0", "--store", store, *flags)
    with serving(home, sys.executable, PROGRAM, str(home / "wrong_s"), "serve", *flags) as server:
        yield server


def set_clock(home: Path, wrong_s: float) -> None:
    new = home / "wrong_s.new"
    new.write_text(str(wrong_s))
    new.rename(home / "wrong_s")


def acquire(server: Server, owner: str, ttl_s: int, block_s: int = -1) -> httpx.Response:
    body: dict[str, Any] = {"key": "k", "owner": owner, "ttl_seconds": ttl_s, "block_seconds": block_s}
    return httpx.post(f"{server.url}/v1/acquire", json=body, timeout=TIMEOUT_S)


def get(server: Server, path: str) -> httpx.Response:
    return httpx.get(server.url + path, timeout=TIMEOUT_S)


@pytest.mark.parametrize("wrong_s", [HOUR_S, -HOUR_S])
def test_a_process_with_a_wrong_clock_takes_no_live_lease(
    tmp_path: Path, postgres_url: str, wrong_s: int
) -> None:
    with (
        plane(tmp_path / "right", postgres_url) as right,
        plane(tmp_path / "wrong", postgres_url, "--clock-skew-max", "0", wrong_s=wrong_s) as wrong,
    ):
        held = acquire(right, "holder", 60).json()

        refused = acquire(wrong, "thief", 60)

        assert refused.status_code == 409
        keepalive = {"key": "k", "lease_id": held["lease_id"], "txn_id": held["txn_id"], "ttl_seconds": 60}
        kept = httpx.post(
            f"{wrong.url}/v1/keepalive", json=keepalive, headers={"X-Fencing-Token": "1"}, timeout=TIMEOUT_S
        )
        assert kept.status_code == 200
        assert abs(kept.json()["expires_at_unix"] - time.time() - 60) < 30


def test_beyond_the_bound_a_process_refuses_to_serve_until_its_clock_is_right(
    tmp_path: Path, postgres_url: str
) -> None:
    with plane(tmp_path, postgres_url, wrong_s=HOUR_S) as server:
        ready = get(server, "/readyz")
        call = acquire(server, "worker", 60)

        assert ready.status_code == 503
        assert re.search(r"this machine is 3[56]\d\d\.\d s ahead of", ready.json()["reasons"]["clock"])
        assert ready.headers["x-holdfast-clock"].startswith("skew 3")
        assert (call.status_code, call.json()["error"]) == (503, "clock_skew")
        assert "--clock-skew-max 30s" in call.json()["detail"]
        assert get(server, "/healthz").status_code == 200
        assert re.search(
            r"^holdfast_clock_skew_seconds 3[56]\d\d", get(server, "/metrics").text, re.MULTILINE
        )

        set_clock(tmp_path, 0)
        deadline_s = time.monotonic() + TIMEOUT_S
        while get(server, "/readyz").status_code != 200 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        assert acquire(server, "worker", 60).status_code == 200


def test_a_lease_of_ten_seconds_ends_after_a_restart_with_the_clock_an_hour_back(tmp_path: Path) -> None:
    store = f"disk://{tmp_path}/store"
    with plane(tmp_path, store) as server:
        assert acquire(server, "worker", 10).status_code == 200

    with plane(tmp_path, store, wrong_s=-HOUR_S) as server:
        granted = acquire(server, "next", 10, block_s=30)
        ready = get(server, "/readyz")

        assert (granted.status_code, granted.headers.get("x-fencing-token")) == (200, "2")
        assert (ready.status_code, ready.content) == (200, b"")
        assert ready.headers["x-holdfast-clock"].startswith("skew -3")
        metrics = get(server, "/metrics").text
        assert re.search(r"^holdfast_clock_lead_seconds 3[56]\d\d", metrics, re.MULTILINE)
        assert re.search(r"^holdfast_clock_uncertainty_seconds \d", metrics, re.MULTILINE)


def test_the_date_of_an_answer_is_in_the_time_that_judges_its_ends(tmp_path: Path, postgres_url: str) -> None:
    with plane(tmp_path, postgres_url, "--clock-skew-max", "0", wrong_s=HOUR_S) as server:
        answer = acquire(server, "worker", 60)

        date_s = parsedate_to_datetime(answer.headers["date"]).timestamp()
        assert 50 < answer.json()["expires_at_unix"] - date_s < 70
