"""Two processes on one database: every increment counts, and both see the same history."""

import asyncio
import json
import sys

import pytest

from holdfast.storage.options import StoreOptions
from holdfast.storage.postgres.store import open_postgres
from tests.system.postgres.worker import COUNTER

PROCESSES = ("one", "two")
TIMEOUT_S = 240


async def run_worker(url: str, name: str, increments: int) -> list[tuple[int, str]]:
    total = str(increments * len(PROCESSES))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.system.postgres.worker", url, name, str(increments), total),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return [(revision, key) for revision, key in json.loads(output)]


@pytest.mark.parametrize("increments", [200, pytest.param(4000, marks=pytest.mark.long)])
async def test_two_processes_lose_no_increment_and_see_one_history(
    postgres_url: str, increments: int
) -> None:
    one, two = await asyncio.gather(*(run_worker(postgres_url, name, increments) for name in PROCESSES))

    async with open_postgres(postgres_url, StoreOptions()) as store:
        counter = await store.get(COUNTER)
        async with store.snapshot() as snapshot:
            keys = [item.record.key async for page in snapshot.records() for item in page]
    total = len(PROCESSES) * increments
    assert counter is not None
    assert int(counter.value) == counter.version == total
    assert sum(1 for key in keys if key.startswith(b"ledger/")) == total
    assert one == two, "both watches saw the same events in the same order"
    assert sorted({revision for revision, _ in one}) == list(range(1, total + len(PROCESSES) + 1))
    assert sorted(revision for revision, _ in one) == [revision for revision, _ in one]
    assert sum(1 for _, key in one if key.startswith("ledger/")) == total


async def test_two_processes_write_one_past(postgres_url: str) -> None:
    events, _ = await asyncio.gather(*(run_worker(postgres_url, name, 40) for name in PROCESSES))
    increments = [revision for revision, key in events if key == COUNTER.decode()]

    async with open_postgres(postgres_url, StoreOptions()) as store:
        for count, revision in enumerate(increments, 1):
            before = await store.get(COUNTER, at_revision=revision - 1)
            record = await store.get(COUNTER, at_revision=revision)
            ledger = await store.range(
                b"ledger/", b"ledger0", limit=100, keys_only=True, at_revision=revision
            )

            assert record is not None
            assert (int(record.value), record.version, record.mod_revision) == (count, count, revision)
            assert (0 if before is None else before.version) == count - 1
            assert len(ledger) == count
