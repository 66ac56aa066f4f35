"""A journal that lost bytes is refused and named: nothing acknowledged vanishes silently after kill -9 and a cut."""

import asyncio
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage.disk import segment
from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import StoreCorrupt
from tests.system.cli import holdfast
from tests.system.disk.crash_writer import WRITERS
from tests.system.disk.test_crash import OPTIONS, check_ledger

RECORDS_MIN = 10
Ledger = dict[int, tuple[int, int]]


class Killed:
    """A store whose process was killed under load, with several full segments, and what it had acknowledged."""

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self.folder = folder
        self.ledger = ledger
        self.segments = sorted(path.name for path in (folder / "journal").glob("*.segment"))

    def used_bytes(self, name: str) -> list[int]:
        """The ends of all records of a segment."""
        path = self.folder / "journal" / name
        return [record.end_offset for record in segment.read_records(path, segment.read_header(path))]


@pytest.fixture(scope="module", params=["journal and shelf", "journal alone"])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    found = kill_writers(tmp_path_factory.mktemp("killed"))
    while (
        len(found.used_bytes(found.segments[-1])) < RECORDS_MIN
    ):  # It had begun that segment a moment before.
        found = kill_writers(tmp_path_factory.mktemp("killed"))
    if request.param == "journal alone":
        shutil.rmtree(found.folder / "shelf")
    return found


def kill_writers(folder: Path) -> Killed:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.system.disk.crash_writer", str(folder), str(WRITERS), "thread"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOLDFAST_FAILPOINT": "journal.release:skip"},
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        lines = [stdout.readline() for _ in range(2500)]
        process.kill()
        lines += [line for line in stdout.readlines() if line.endswith("\n")]
    process.wait()
    found = Killed(folder, {int(w): (int(c), int(r)) for w, c, r in (line.split() for line in lines)})
    assert len(found.segments) >= 3
    return found


async def outcome(killed: Killed, folder: Path, name: str, damage: Callable[[Path], None]) -> str:
    """Open a damaged copy: either it is refused, with the file's name and a cure, or everything is there."""
    shutil.copytree(killed.folder, folder)
    damage(folder / "journal" / name)
    try:
        async with open_disk(folder, OPTIONS) as store:
            await check_ledger(store, killed.ledger)
    except StoreCorrupt as error:
        assert "backup" in error.detail
        return error.detail
    finally:
        shutil.rmtree(folder)
    return "intact"


def cut_at(size_bytes: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size_bytes)


def cut_and_grown(size_bytes: int) -> Callable[[Path], None]:
    """As a copy that stopped half-way into a file of the full size leaves it."""

    def damage(path: Path) -> None:
        whole = path.stat().st_size
        os.truncate(path, size_bytes)
        os.truncate(path, whole)

    return damage


def positions(killed: Killed, name: str, rng: random.Random) -> list[int]:
    """In the header, at the borders of records, inside of them, in the space behind them."""
    ends = killed.used_bytes(name)
    whole = (killed.folder / "journal" / name).stat().st_size
    assert 0 < ends[0] < ends[-1] < whole
    borders = [segment.HEADER_BYTES, ends[0], ends[-2], ends[-1], *rng.sample(ends, 4)]
    inside = [rng.randrange(segment.HEADER_BYTES, ends[-1]) for _ in range(4)]
    behind = [*(rng.randrange(ends[-1], whole) for _ in range(3)), whole - 600, whole - 512, whole - 1]
    return [0, 1, 17, segment.HEADER_BYTES - 1, *borders, ends[-1] - 1, ends[-1] + 1, *inside, *behind]


@pytest.mark.parametrize("which", [0, -2, -1])
async def test_a_segment_cut_anywhere_is_refused_and_named(
    killed: Killed, tmp_path: Path, which: int
) -> None:
    name = killed.segments[which]
    whole = (killed.folder / "journal" / name).stat().st_size
    for at in positions(killed, name, random.Random(which)):
        found = await outcome(killed, tmp_path / "cut", name, cut_at(at))

        assert name in found, f"cut at byte {at}: {found}"
        if at >= segment.HEADER_BYTES:
            assert f"{at} bytes" in found
            assert f"{whole}" in found


@pytest.mark.parametrize("which", [0, -1])
async def test_a_segment_cut_and_grown_again_with_zeros_is_refused_and_named(
    killed: Killed, tmp_path: Path, which: int
) -> None:
    name = killed.segments[which]
    for at in positions(killed, name, random.Random(which)):
        found = await outcome(killed, tmp_path / "grown", name, cut_and_grown(at))

        assert name in found, f"cut at byte {at} and grown again: {found}"


async def test_zeros_over_the_last_records_are_refused_although_the_end_of_the_file_is_whole(
    killed: Killed, tmp_path: Path
) -> None:
    name = killed.segments[-1]
    ends = killed.used_bytes(name)

    def zeros(path: Path) -> None:
        start = ends[-10]
        with path.open("r+b") as file:
            file.seek(start)
            file.write(bytes(ends[-1] - start + 2000))

    assert name in await outcome(killed, tmp_path / "zeros", name, zeros)


async def test_without_its_newest_segment_the_journal_is_refused(killed: Killed, tmp_path: Path) -> None:
    found = await outcome(killed, tmp_path / "missing", killed.segments[-1], Path.unlink)

    assert killed.segments[-2] in found
    assert "missing" in found


async def test_the_undamaged_copy_is_whole(killed: Killed, tmp_path: Path) -> None:
    assert await outcome(killed, tmp_path / "good", killed.segments[-1], lambda path: None) == "intact"


@pytest.mark.parametrize("killed", ["journal and shelf"], indirect=True)
def test_store_verify_refuses_a_cut_segment_and_names_it(killed: Killed, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    shutil.copytree(killed.folder, folder)
    path = folder / "journal" / killed.segments[-1]
    whole = path.stat().st_size
    os.truncate(path, whole // 2)

    process = holdfast(tmp_path, "store", "verify", "--store", f"disk://{folder}")

    assert process.returncode == 1
    assert (
        f"{path}: the journal segment is cut short: {whole // 2} bytes found, {whole} expected"
        in process.stdout
    )


@pytest.mark.parametrize("step", ["journal.rotated", "journal.sealed"])
async def test_a_crash_at_each_step_of_a_rotation_keeps_what_was_acknowledged(
    tmp_path: Path, step: str
) -> None:
    ledger: Ledger = {}
    for _ in range(2):
        process = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "tests.system.disk.crash_writer", str(tmp_path), str(WRITERS), "loop"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOLDFAST_FAILPOINT": f"{step}:2*crash,journal.release:skip"},
            check=False,
        )
        ledger |= {
            int(w): (int(c), int(r)) for w, c, r in (line.split() for line in process.stdout.splitlines())
        }
        assert process.returncode == -9

        async with open_disk(tmp_path, OPTIONS) as store:
            await check_ledger(store, ledger)
