"""Two processes on one PostgreSQL use and forget the same keys, one of them is killed: no token comes twice."""

import asyncio
import itertools
import re
import signal
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.system.cli import Server, serving

FLAGS = (
    "--listen",
    "127.0.0.1:0",
    "--qrf-disabled",
    "--retention-keys",
    "1s",
    "--disk-janitor-interval",
    "300ms",
)
KEYS = [f"key-{number}" for number in range(6)]
FORGOTTEN_MIN = 12
TIMEOUT_S = 120
_FORGOTTEN = re.compile(r"^holdfast_retention_keys_forgotten_total (\d+)", re.MULTILINE)


async def test_tokens_rise_over_forgotten_keys_and_a_killed_process(
    tmp_path: Path, postgres_url: str
) -> None:
    with ExitStack() as stack:
        servers = [_start(stack, tmp_path / str(number), postgres_url) for number in range(2)]
        tokens: dict[str, list[int]] = defaultdict(list)
        forgotten = 0
        async with asyncio.timeout(TIMEOUT_S):
            for turn in itertools.count():
                await _use_all(servers[turn % 2].url, tokens)
                # Longer than the retention after some turns only, so that keys are forgotten and found in turn.
                await asyncio.sleep(2.5 if turn % 2 else 0)
                if turn == 3:
                    servers[1].stop(signal.SIGKILL)
                    servers[1] = _start(stack, tmp_path / "again", postgres_url)
                forgotten = sum([await _forgotten(server.url) for server in servers])
                if turn > 5 and forgotten >= FORGOTTEN_MIN:
                    break

    for seen in tokens.values():
        assert seen == sorted(set(seen))


def _start(stack: ExitStack, home: Path, store: str) -> Server:
    home.mkdir()
    return stack.enter_context(serving(home, *FLAGS, "--store", store))


async def _use_all(url: str, tokens: dict[str, list[int]]) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        for key in KEYS:
            body = {"key": key, "owner": "worker", "ttl_seconds": 30, "block_seconds": 10}
            lease = (await client.post("/v1/acquire", json=body)).raise_for_status().json()
            tokens[key].append(lease["fencing_token"])
            body = {name: lease[name] for name in ("key", "lease_id", "txn_id")}
            headers = {"X-Fencing-Token": str(lease["fencing_token"])}
            (await client.post("/v1/release", json=body, headers=headers)).raise_for_status()


async def _forgotten(url: str) -> int:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        page = (await client.get("/metrics")).text
    found = _FORGOTTEN.search(page)
    return 0 if found is None else int(found[1])
