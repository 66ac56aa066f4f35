"""The journal's files: small for a store that holds little, twice as large each time, up to the set size."""

import asyncio
from pathlib import Path

from holdfast.storage.disk.store import open_disk
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch

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


def _sizes(folder: Path, suffix: str) -> set[int]:
    return {path.stat().st_size for path in folder.rglob(f"*.{suffix}")}
