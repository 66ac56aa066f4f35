"""The power goes out under a real file system: what was acknowledged is there after the next mount."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.storage.disk.store import open_disk
from tests.infra.power_cut import cut_power, ext4
from tests.system.disk.crash_writer import WRITERS
from tests.system.disk.test_crash import OPTIONS, check_ledger

CUTS = 10


def run_and_cut(folder: Path, acknowledgements: int, failpoints: str = "") -> dict[int, tuple[int, int]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.system.disk.crash_writer", str(folder / "store"), str(WRITERS), "loop"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"HOLDFAST_FAILPOINT": failpoints},
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        lines = [stdout.readline() for _ in range(acknowledgements)]
        cut_power(folder)
        process.kill()
        process.wait()
    return {int(w): (int(c), int(r)) for w, c, r in (line.split() for line in lines)}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_power_cuts_under_load_lose_nothing_acknowledged(tmp_path: Path) -> None:
    image, folder = tmp_path / "image", tmp_path / "mount"
    rng = random.Random(3)
    ledger: dict[int, tuple[int, int]] = {}

    for cut in range(CUTS):
        with ext4(image, folder, create=cut == 0):
            ledger |= run_and_cut(folder, rng.randint(200, 3000))
        with ext4(image, folder, create=False):
            async with open_disk(folder / "store", OPTIONS) as store:
                await check_ledger(store, ledger)


@pytest.mark.long
async def test_the_mutant_that_skips_the_sync_loses_something_then(tmp_path: Path) -> None:
    image, folder = tmp_path / "image", tmp_path / "mount"
    with ext4(image, folder, create=True):
        ledger = run_and_cut(folder, 1000, failpoints="journal.sync:skip")

    with ext4(image, folder, create=False), pytest.raises(AssertionError):
        async with open_disk(folder / "store", OPTIONS) as store:
            await check_ledger(store, ledger)
