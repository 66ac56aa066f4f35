"""What a store does by itself while it is open: history is compacted, blobs that nothing refers to are swept."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store

WAIT_S = 60.0
OPTIONS = StoreOptions(
    compact_interval_s=0.02, blob_sweep_interval_s=0.02, blob_sweep_grace_s=-1.0, free_bytes_min=0
)


@pytest.fixture(params=["mem", "disk", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "mem://" if request.param == "mem" else f"disk://{tmp_path}/store"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await condition():  # noqa: ASYNC110 - upkeep tells no caller when it is done
            await asyncio.sleep(0.01)


async def test_history_beyond_its_bounds_is_dropped_by_itself(url: str) -> None:
    async with open_store(url, replace(OPTIONS, history_revisions_max=2)) as store:
        for number in range(10):
            await store.commit(Batch(puts={b"k": b"%d" % number}))

        async def is_compacted() -> bool:
            async with store.snapshot() as snapshot:
                return snapshot.compacted_revision >= store.revision - 2

        await until(is_compacted)


async def test_blobs_that_nothing_refers_to_are_swept_by_themselves(url: str) -> None:
    async with open_store(url, OPTIONS) as store:
        await lose_a_blob(store)

        async def is_empty() -> bool:
            return [info async for info in store.blobs.list()] == []

        await until(is_empty)


async def lose_a_blob(store: Store) -> None:
    async with store.blobs.create() as writer:
        await writer.write(b"lost")
        await writer.finish()
