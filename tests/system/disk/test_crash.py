"""Nothing acknowledged is lost: processes killed under load, and devices that forget what was not synced."""

import asyncio
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.common import failpoint
from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import StorageError
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store
from tests.infra.files import LossyFile
from tests.system.disk.crash_writer import WRITERS

KILLS = 50
KILLS_BRIEF = 12
OPTIONS = StoreOptions(journal_segment_bytes=8 << 20, free_bytes_min=0)


@pytest.mark.parametrize("kills", [KILLS_BRIEF, pytest.param(KILLS, marks=pytest.mark.long)])
async def test_kills_under_load_lose_and_tear_nothing(tmp_path: Path, kills: int) -> None:
    ledger: dict[int, tuple[int, int]] = {}
    rng = random.Random(20260101)

    for kill in range(kills):
        writers = WRITERS if kill % 3 else 1
        acknowledged = run_and_kill(
            tmp_path, writers, acknowledgements=rng.randint(1, 400), syncs_by=rng.choice(["loop", "thread"])
        )
        for line in acknowledged:
            writer, count, revision = map(int, line.split())
            assert count > ledger.get(writer, (0, 0))[0], "a writer went back"
            ledger[writer] = (count, revision)
        async with open_disk(tmp_path, OPTIONS) as store:
            await check_ledger(store, ledger)

    assert len(ledger) == WRITERS


def run_and_kill(folder: Path, writers: int, acknowledgements: int, syncs_by: str = "loop") -> list[str]:
    """Start the writer, read so many acknowledgements, kill it, and return all that it still managed to say."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.system.disk.crash_writer", str(folder), str(writers), syncs_by],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        lines = [stdout.readline() for _ in range(acknowledgements)]
        process.kill()
        lines += stdout.readlines()
    process.wait()
    return [line for line in lines if line.endswith("\n")]


async def check_ledger(store: Store, ledger: dict[int, tuple[int, int]]) -> None:
    assert store.revision >= max(revision for _, revision in ledger.values())
    for writer, (count, _) in ledger.items():
        left, right = await store.get(b"left%d" % writer), await store.get(b"right%d" % writer)
        assert left is not None
        assert right is not None
        assert (left.value, left.mod_revision) == (right.value, right.mod_revision), "torn"
        assert int(left.value.split()[0]) >= count, "lost"


async def lost_by_a_power_cut(
    folder: Path, after_commits: int, *, writers_count: int = 4, options: StoreOptions = OPTIONS
) -> list[int]:
    """Commit, cut the power in the middle, and say which acknowledged commits are not there any more."""
    acknowledged: list[int] = []
    enough = asyncio.Event()

    async def write(store: Store, writer: int) -> None:
        for number in range(1000):
            await store.commit(Batch(puts={b"%d/%d" % (writer, number): b"x" * 100}))
            acknowledged.append(writer * 1000 + number)
            await asyncio.sleep(0)
            if len(acknowledged) >= after_commits:
                enough.set()

    LossyFile.is_cut = False
    async with open_disk(folder, options, file_factory=LossyFile) as store:
        writers = [asyncio.create_task(write(store, writer)) for writer in range(writers_count)]
        await enough.wait()
        LossyFile.is_cut = True
        known = list(acknowledged)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
    shutil.rmtree(folder / "shelf")  # It never was flushed before the cut: a restart finds the journal alone.
    return await missing(folder, known)


async def missing(folder: Path, known: list[int]) -> list[int]:
    async with open_disk(folder, OPTIONS) as store:
        return [n for n in known if await store.get(b"%d/%d" % divmod(n, 1000)) is None]


@pytest.mark.parametrize("after_commits", [1, 7, 50, 300])
async def test_a_power_cut_loses_nothing_acknowledged(tmp_path: Path, after_commits: int) -> None:
    assert await lost_by_a_power_cut(tmp_path, after_commits) == []


@pytest.mark.parametrize("writers", [1, WRITERS])
@pytest.mark.parametrize("after_commits", [1, 50, 300])
async def test_a_power_cut_loses_nothing_that_the_loop_itself_synced(
    tmp_path: Path, after_commits: int, writers: int
) -> None:
    options = replace(OPTIONS, loop_syncs_after=0)

    assert await lost_by_a_power_cut(tmp_path, after_commits, writers_count=writers, options=options) == []


@pytest.mark.parametrize("name", ["journal.sync:skip", "commit.answer_before_durable:skip"])
async def test_a_mutant_of_the_loop_that_syncs_is_caught(tmp_path: Path, name: str) -> None:
    with failpoint.armed(name):
        assert await lost_by_a_power_cut(tmp_path, 50, options=replace(OPTIONS, loop_syncs_after=0)) != []


async def test_the_mutant_that_skips_the_sync_is_caught(tmp_path: Path) -> None:
    with failpoint.armed("journal.sync:skip"):
        assert await lost_by_a_power_cut(tmp_path, 50) != []


async def test_the_mutant_that_answers_before_the_commit_is_caught(tmp_path: Path) -> None:
    with failpoint.armed("commit.answer_before_durable:skip"):
        assert await lost_by_a_power_cut(tmp_path, 50) != []


@pytest.mark.parametrize(("writers", "syncs_by"), [(1, "loop"), (WRITERS, "thread"), (WRITERS, "loop")])
@pytest.mark.parametrize("step", ["journal.write", "journal.sync", "journal.synced"])
async def test_a_crash_at_each_step_of_the_journal_keeps_what_was_acknowledged(
    tmp_path: Path, step: str, writers: int, syncs_by: str
) -> None:
    process = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.system.disk.crash_writer", str(tmp_path), str(writers), syncs_by],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOLDFAST_FAILPOINT": f"{step}:20*crash"},
        check=False,
    )
    ledger: dict[int, tuple[int, int]] = {}
    for line in process.stdout.splitlines():
        writer, count, revision = map(int, line.split())
        ledger[writer] = (count, revision)

    assert process.returncode == -9
    async with open_disk(tmp_path, OPTIONS) as store:
        await check_ledger(store, ledger)


async def test_a_failed_open_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    async with open_disk(tmp_path, OPTIONS) as store:
        await store.commit(Batch(puts={b"a": b"1"}))
        with pytest.raises(StorageError):
            async with open_disk(tmp_path, OPTIONS):
                raise AssertionError("opened twice")
        assert await store.commit(Batch(puts={b"a": b"2"})) == 2

    async with open_disk(tmp_path, OPTIONS) as store:
        assert store.revision == 2
