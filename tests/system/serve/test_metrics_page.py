"""`/metrics` of every process reads as Prometheus wants it: names, units, types."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.infra.prometheus_lint import problems
from tests.infra.redis import RedisServer
from tests.system.cli import TIMEOUT_S, serving
from tests.system.serve.traffic import send_some_of_everything
from tests.system.split.program import SERVICES, SplitProgram


def faults(url: str) -> list[str]:
    """By the rules that the tests bring along, and by promtool itself where it is installed."""
    answer = httpx.get(f"{url}/metrics", timeout=TIMEOUT_S)
    assert answer.status_code == 200
    found = problems(answer.text)
    promtool = shutil.which("promtool")
    if promtool is not None:
        checked = subprocess.run(
            [promtool, "check", "metrics"],
            input=answer.content,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        found += (checked.stdout + checked.stderr).decode().splitlines()
    return found


@pytest.mark.parametrize("store", ["mem", "disk"])
def test_the_metrics_of_one_process_have_no_fault(store: str, tmp_path: Path) -> None:
    url = "mem://" if store == "mem" else f"disk://{tmp_path}/store"
    with serving(tmp_path, "--listen", "127.0.0.1:0", "--store", url) as server:
        send_some_of_everything(server.url)

        assert faults(server.url) == []


@pytest.fixture
def plane(tmp_path: Path, postgres_url: str, redis_server: RedisServer) -> Iterator[SplitProgram]:
    with ExitStack() as stack:
        split = SplitProgram(tmp_path, postgres_url, stack)
        split.start("gateway")
        for role in SERVICES:
            split.start(role, "--redis-url", redis_server.url)
        split.until(lambda: split.readiness() == {})
        yield split


def test_the_metrics_of_every_split_process_have_no_fault(plane: SplitProgram) -> None:
    send_some_of_everything(plane.url)

    found = {role: faults(plane.url_of(role)) for role in ("gateway", *SERVICES)}

    assert not any(found.values()), found
