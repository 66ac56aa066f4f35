"""Trouble with the device is told: once in the log when it begins and once when it is over, and by readiness."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import failpoint
from holdfast.common.settings.plane import PlaneSettings
from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import StorageError, StoreFull, StoreReadOnly
from holdfast.storage.hosting.configured import store_options
from holdfast.storage.hosting.store_app import store_problem
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store
from tests.infra.files import FullFile
from tests.infra.small_disk import can_mount, run_on_small_disk

OPTIONS = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=0)
TIMEOUT_S = 10
needs_mount = pytest.mark.skipif(not can_mount(), reason="no right to mount a file system")


class Log:
    """The lines of the log since it was asked last."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self._lines: list[dict[str, Any]] = []

    def about_writes(self) -> list[dict[str, Any]]:
        text = self._capfd.readouterr().err
        self._lines += [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in self._lines if line["msg"].startswith("storage.writes.")]


@pytest.fixture
def log(capfd: pytest.CaptureFixture[str]) -> Log:
    return Log(capfd)


@pytest.fixture(autouse=True)
def healthy() -> Iterator[None]:
    FullFile.is_full = False
    yield
    FullFile.is_full = False


def mount_point(tmp_path: Path) -> Path:
    """Beside it, out of the small file system, the program has its home and its log."""
    (tmp_path / "home").mkdir()
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


async def put(store: Store, value: bytes = b"x") -> None:
    await store.commit(Batch(puts={b"k": value}))


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(TIMEOUT_S * 50):
        if is_true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to pass in time")


async def test_a_full_device_is_told_once_and_so_is_its_end(tmp_path: Path, log: Log) -> None:
    async with open_disk(tmp_path, OPTIONS, file_factory=FullFile) as store:
        await put(store)
        FullFile.is_full = True
        for _ in range(5):
            with pytest.raises(StoreFull, match="No space left on device"):
                await put(store)
        while_full = await store_problem(store)
        record = await store.get(b"k")
        (line,) = log.about_writes()

        FullFile.is_full = False
        await put(store)

        _, over = log.about_writes()
        assert await store_problem(store) is None
    assert record is not None
    assert "No space left on device" in (while_full or "")
    assert (line["lvl"], line["msg"], line["code"]) == ("error", "storage.writes.failing", "storage_full")
    assert str(tmp_path) in line["cause"]
    assert "No space left on device" in line["cause"]
    assert "free some space" in line["cure"]
    assert (over["msg"], over["code"]) == ("storage.writes.resumed", "storage_full")


async def test_room_that_comes_back_is_noticed_without_a_write(tmp_path: Path, log: Log) -> None:
    """A server that is not ready gets no writes: waiting for one to succeed would be waiting for ever."""
    async with open_disk(tmp_path, OPTIONS, file_factory=FullFile) as store:
        await put(store)
        FullFile.is_full = True
        with pytest.raises(StoreFull):
            await put(store)
        FullFile.is_full = False

        await until(lambda: store.problem is None)

    assert [line["msg"] for line in log.about_writes()] == [
        "storage.writes.failing",
        "storage.writes.resumed",
    ]


async def test_a_device_that_is_full_again_and_again_is_told_once(tmp_path: Path, log: Log) -> None:
    """After a quiet time it would be told again: tests/unit/storage/hosting/test_trouble.py."""
    async with open_disk(tmp_path, OPTIONS, file_factory=FullFile) as store:
        for _ in range(2):
            await put(store)
            FullFile.is_full = True
            with pytest.raises(StoreFull):
                await put(store)
            FullFile.is_full = False
            await put(store)

    assert len(log.about_writes()) == 2


async def test_a_failed_sync_is_told_once_with_cause_and_cure(tmp_path: Path, log: Log) -> None:
    async with open_disk(tmp_path, OPTIONS) as store:
        await put(store)
        with failpoint.armed("journal.sync:error"):
            for _ in range(3):
                with pytest.raises(StoreReadOnly):
                    await put(store)
        assert "read-only" in (await store_problem(store) or "")
        assert await store.get(b"k") is not None

    (line,) = log.about_writes()
    assert (line["lvl"], line["code"]) == ("error", "storage_read_only")
    assert str(tmp_path) in line["cause"]
    assert "restart" in line["cure"]


async def test_below_the_reserve_the_message_says_how_much_is_kept_and_how_much_is_left(
    tmp_path: Path, log: Log
) -> None:
    usage = os.statvfs(tmp_path)
    reserve_bytes = usage.f_bavail * usage.f_frsize * 2 >> 20 << 20
    async with open_disk(tmp_path, OPTIONS) as store:
        await put(store)
    async with open_disk(tmp_path, replace(OPTIONS, free_bytes_min=reserve_bytes)) as store:
        unasked = await store_problem(store)  # No write had to fail for it.
        with pytest.raises(StoreFull, match=f"less than {reserve_bytes >> 20:g} MiB free") as caught:
            await put(store)
        with pytest.raises(StoreFull, match="less than"):
            async with store.blobs.create() as writer:
                await writer.write(b"x")
        assert await store.get(b"k") is not None

    assert "--disk-reserve" in caught.value.detail
    assert unasked is not None
    assert unasked.startswith("less than")
    assert [line["code"] for line in log.about_writes()] == ["storage_full"]


def test_the_reserve_is_a_setting() -> None:
    assert store_options(PlaneSettings.isolated()).free_bytes_min == 64 << 20
    assert store_options(PlaneSettings.isolated(disk_reserve_bytes="1GiB")).free_bytes_min == 1 << 30
    assert store_options(PlaneSettings.isolated(disk_reserve_bytes=0)).free_bytes_min == 0


@needs_mount
def test_a_server_on_a_disk_that_fills_up_says_so_and_goes_on_reading(tmp_path: Path) -> None:
    process = run_on_small_disk("tests.system.disk.full_server", mount_point(tmp_path), size="160m")

    assert process.returncode == 0, process.stderr
    assert process.stdout == "refused, told once, read, resumed\n"


@needs_mount
def test_a_new_store_without_room_fails_with_the_right_words(tmp_path: Path) -> None:
    process = run_on_small_disk("tests.system.disk.full_creation", mount_point(tmp_path), size="100m")

    assert process.returncode == 0, process.stderr
    assert process.stdout == "every size refused, then created\n"


@needs_mount
def test_a_read_only_file_system_is_named(tmp_path: Path) -> None:
    process = run_on_small_disk("tests.system.disk.read_only", mount_point(tmp_path), size="40m")

    assert process.returncode == 0, process.stderr
    assert process.stdout == "named\n"


async def test_the_upkeep_of_a_store_that_can_not_write_is_silent(tmp_path: Path, log: Log) -> None:
    options = replace(OPTIONS, compact_interval_s=0.01, history_revisions_max=0)
    async with open_disk(tmp_path, options) as store:
        await put(store)
        with failpoint.armed("journal.sync:error"), pytest.raises(StorageError):
            await put(store)
        await asyncio.sleep(0.1)

    assert len(log.about_writes()) == 1
