"""How a walk over all records spares the rest of the process."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.common.settings import PlaneSettings
from holdfast.leases.layer.retention import retention_of
from holdfast.storage.maintenance.janitor import Janitor
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Record


async def test_a_walk_rests_between_pages_of_250_records(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    pages: list[int] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        pauses.append(delay_s)
        await sleep(0)

    async def visit(records: Sequence[Record]) -> int:
        pages.append(len(records))
        return 0

    pace = retention_of(PlaneSettings.isolated(idle_sweep_operation_delay_s="7s")).pace
    async with open_memory(StoreOptions()) as store:
        await store.commit(Batch(puts={b"k%04d" % number: b"" for number in range(600)}))
        walker = Janitor(store, "test", (b"k", b"l"), visit, pace=pace, now_ms=lambda: 10**12)
        monkeypatch.setattr(asyncio, "sleep", note)
        await walker.walk()
        monkeypatch.undo()

    assert pages == [250, 250, 100]
    assert pauses.count(7.0) >= len(pages) - 1
