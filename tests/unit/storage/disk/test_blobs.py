"""Blobs on disk whose writer is cancelled or fails: nothing stays behind, and the error is one of ours."""

import asyncio
import resource
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest

from holdfast.common.clock import FakeClock, SteadyClock
from holdfast.common.ids import uuid7
from holdfast.storage.disk.blobs import STEP_BYTES, FileBlobs
from holdfast.storage.errors import StorageError


class Nothing:
    """No blob is in use."""

    has_snapshots = False

    def is_blob_referenced(self, blob_id: str) -> bool:
        return False


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path, Nothing(), SteadyClock(FakeClock()))


def left_behind(folder: Path) -> list[Path]:
    return list((folder / "incoming").iterdir())


async def write_one(blobs: FileBlobs, blob_id: str) -> None:
    async with blobs.create(blob_id=blob_id) as writer:
        await writer.write(b"x" * STEP_BYTES)
        await writer.write(b"y")
        await writer.finish()


async def drain_threads() -> None:
    """Return when the one thread has done all that was asked of it."""
    await asyncio.to_thread(int)


@asynccontextmanager
async def one_thread() -> AsyncIterator[Event]:
    """All trips to a thread take turns, and the first one waits until the event is set."""
    gate = Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    blocking = asyncio.get_running_loop().run_in_executor(None, gate.wait)
    yield gate
    gate.set()
    await blocking
    await drain_threads()


@pytest.mark.parametrize("steps_done", range(5))
@pytest.mark.parametrize("cancellations", [1, 2])
async def test_a_writer_cancelled_before_a_step_begins_leaves_nothing(
    steps_done: int, cancellations: int, blobs: FileBlobs, tmp_path: Path
) -> None:
    blob_id = uuid7()
    async with one_thread() as gate:
        gate.set()
        await drain_threads()
        task = asyncio.create_task(write_one(blobs, blob_id))
        for _ in range(steps_done):
            await drain_threads()
        busy = Event()
        blocking = asyncio.get_running_loop().run_in_executor(None, busy.wait)
        for _ in range(3):
            await asyncio.sleep(0)
        for _ in range(cancellations):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        busy.set()
        await blocking
        await asyncio.wait([task])
        await drain_threads()

    assert left_behind(tmp_path) == []
    await blobs.remove(blob_id)
    await write_one(blobs, blob_id)  # Its name is free again.


@pytest.mark.parametrize("step", ["_open", "_append", "_keep"])
async def test_a_writer_cancelled_within_a_step_leaves_nothing(
    step: str, blobs: FileBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = asyncio.Event(), Event()
    loop = asyncio.get_running_loop()
    writer = blobs.create()
    real = getattr(writer, step)

    def slow(*arguments: object) -> object:
        loop.call_soon_threadsafe(begun.set)
        gate.wait()
        return real(*arguments)

    monkeypatch.setattr(writer, step, slow)

    async def write() -> None:
        async with writer:
            await writer.write(b"x")
            await writer.finish()

    task = asyncio.create_task(write())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    gate.set()
    await asyncio.wait([task])
    await loop.shutdown_default_executor()

    assert task.cancelled()
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("size_bytes", [10_000, 3 * STEP_BYTES])
async def test_a_blob_that_finds_no_room_is_refused_and_leaves_nothing(
    size_bytes: int, blobs: FileBlobs, tmp_path: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StorageError):
            async with blobs.create() as writer:
                await writer.write(b"x" * size_bytes)
                await writer.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert left_behind(tmp_path) == []
