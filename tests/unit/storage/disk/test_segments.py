"""The journal's files: small for a store that holds little, twice as large each time, up to the set size."""

import asyncio
import shutil
import threading
import time
from pathlib import Path

import pytest

from holdfast.storage.disk import segment_folder
from holdfast.storage.disk.segment import allocate
from holdfast.storage.disk.store import open_disk
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from tests.infra.files import sizes_of

MIB = 1 << 20
OPTIONS = StoreOptions(journal_segment_bytes=8 * MIB, free_bytes_min=0)


async def test_a_new_store_takes_little_room_and_grows_with_what_is_written(tmp_path: Path) -> None:
    async with open_disk(tmp_path, OPTIONS) as store:
        seen = _sizes(tmp_path, "segment")
        for number in range(60):
            await store.commit(Batch(puts={b"k": bytes([number]) * (MIB // 2)}))
            seen |= _sizes(tmp_path, "segment")
            await asyncio.sleep(0)

    assert seen == {2 * MIB, 4 * MIB, 8 * MIB}


async def test_segments_of_the_set_size_stay_that_size_over_restarts(tmp_path: Path) -> None:
    for _ in range(3):
        async with open_disk(tmp_path, OPTIONS) as store:
            for number in range(40):
                await store.commit(Batch(puts={b"k": bytes([number]) * (MIB // 2)}))
            record = await store.get(b"k")
            assert record is not None
            assert record.value == bytes([39]) * (MIB // 2)

    assert max(_sizes(tmp_path, "segment")) == 8 * MIB
    assert _sizes(tmp_path, "spare") <= {8 * MIB}


async def test_a_spare_that_is_gone_when_it_is_needed_is_not_missed(tmp_path: Path) -> None:
    """The thread that prepares the next one removes what is too small for that."""
    async with open_disk(tmp_path, OPTIONS) as store:
        (tmp_path / "journal" / "0.spare").symlink_to("removed-a-moment-ago")
        for number in range(12):
            await store.commit(Batch(puts={b"k": bytes([number]) * (MIB // 2)}))

        assert store.problem is None


async def test_no_thread_works_in_the_folder_of_a_closed_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def slow(path: Path, size_bytes: int) -> None:
        if path.name == "allocating.ahead":
            begun.set()
            time.sleep(0.3)
            ended.set()
        allocate(path, size_bytes)

    monkeypatch.setattr(segment_folder, "allocate", slow)
    async with open_disk(tmp_path, OPTIONS):
        await asyncio.to_thread(begun.wait)

    assert ended.is_set()
    shutil.rmtree(tmp_path)


def _sizes(folder: Path, suffix: str) -> set[int]:
    return set(sizes_of(folder, f"*.{suffix}"))
