"""History of a local store ages: what a compaction saw an age ago goes with a later one."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.common.clock import FakeClock
from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import Compacted, StoreUnavailable
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, HistoryPage, Store
from holdfast.storage.watch import WatchHub
from tests.infra.files import GatedFile

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


async def test_a_compaction_during_a_commit_is_not_forgotten_by_it(tmp_path: Path) -> None:
    options = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=0, history_revisions_max=3)
    GatedFile.gate.set()
    async with open_disk(tmp_path, options, file_factory=GatedFile) as store:
        for number in range(10):
            await store.commit(Batch(puts={b"a": b"%d" % number}))
        GatedFile.gate.clear()
        commit = asyncio.ensure_future(store.commit(Batch(puts={b"a": b"last"})))
        await asyncio.sleep(0)
        floor = await store.compact()
        GatedFile.gate.set()
        await commit

    async with open_disk(tmp_path, options) as store:
        with pytest.raises(Compacted):
            await anext(store.watch(b"a", b"b", after=floor - 1))


async def test_a_watch_of_nothing_costs_no_events_and_hears_of_the_end() -> None:
    async def history(after: int, events_limit: int) -> HistoryPage:
        return HistoryPage([], after)

    hub = WatchHub(history, buffer_events_max=10)
    watch = hub.watch(b"", b"")
    costs_events = hub.is_watched

    hub.interrupt(StoreUnavailable("recovered"))

    assert not costs_events
    with pytest.raises(StoreUnavailable):
        await anext(watch)
