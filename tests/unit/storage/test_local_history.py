"""History of a local store ages: what a compaction saw an age ago goes with a later one."""

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.common.clock import FakeClock
from holdfast.storage.errors import Compacted
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store

AGE_S = 60.0
OPTIONS = StoreOptions(free_bytes_min=0, history_age_s_max=AGE_S)


async def put(store: Store, count: int) -> None:
    for number in range(count):
        await store.commit(Batch(puts={b"k": b"%d" % number}))


@pytest.mark.parametrize("kind", ["mem", "disk"])
async def test_history_is_dropped_by_age(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    url = "mem://" if kind == "mem" else f"disk://{tmp_path}"
    async with open_store(url, replace(OPTIONS, clock=clock)) as store:
        await put(store, 3)
        seen = store.revision
        kept = await store.compact()
        clock.advance(AGE_S)
        await put(store, 2)

        dropped_to = await store.compact()

        assert kept < seen
        assert dropped_to == seen
        with pytest.raises(Compacted) as refused:
            await anext(store.watch(b"", None, after=seen - 1))
        assert refused.value.oldest_revision == seen
        async with store.watch(b"", None, after=seen) as watch:
            assert [event.revision for event in await anext(watch)] == [seen + 1, seen + 2]
