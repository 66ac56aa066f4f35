"""A queue costs by what leaves it, not by what waits in it: counted in reads and in what memory holds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from holdfast.common.settings import PlaneSettings
from holdfast.queue.layer.limits import QueueLimits, limits_of
from holdfast.queue.layer.message.types import EnqueueOrder
from holdfast.storage.disk.store import open_disk
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Record, Store
from tests.service.queue.words import ORDERS, Queue

PAGE = 16
LEAVING = 8  # Fewer than a page, so that the number of pages does not depend on where the first one ends.


class Cost(NamedTuple):
    """What was read from the store."""

    ranges: int
    records: int
    gets: int


class CountingStore:
    """A store that counts what is read from it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.cost = Cost(0, 0, 0)
        self.page_max = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def range(self, start: bytes, end: bytes | None, **options: Any) -> list[Record]:
        records = await self._store.range(start, end, **options)
        self.page_max = max(self.page_max, len(records))
        ranges, total, gets = self.cost
        self.cost = Cost(ranges + 1, total + len(records), gets)
        return records

    async def get(self, key: bytes) -> Record | None:
        self.cost = self.cost._replace(gets=self.cost.gets + 1)
        return await self._store.get(key)

    async def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        self.cost = self.cost._replace(gets=self.cost.gets + len(keys))
        return await self._store.get_many(keys)


async def fill(store: Store, count: int) -> None:
    queue = Queue(store)
    content = await queue.service.arrivals.content_of(ORDERS, b"x")
    order = EnqueueOrder(ORDERS, "corr")
    for start in range(0, count, 1000):
        await queue.service.arrivals.enqueue([(order, content)] * min(1000, count - start))


async def cost_of_work(store: Store) -> tuple[Cost, Cost, int]:
    """Of the start, of some messages from enqueue to ack, and how many entries are in memory then."""
    counting = CountingStore(store)
    queue = Queue(cast(Store, counting), QueueLimits(page_entries=PAGE))
    await queue.service.stats(ORDERS)
    start = counting.cost
    counting.cost = Cost(0, 0, 0)
    for _ in range(LEAVING):
        await queue.enqueue()
        await queue.ack(await queue.dequeue())
    return start, counting.cost, queue.service.pending


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("deep", [3_000, pytest.param(1_000_000, marks=pytest.mark.long)])
async def test_what_waits_costs_nothing(tmp_path: Path, deep: int) -> None:
    costs: list[tuple[Cost, Cost, int]] = []
    for count in (4 * PAGE, deep):
        async with open_disk(tmp_path / str(count), StoreOptions()) as store:
            await fill(store, count)
            costs.append(await cost_of_work(store))

    assert costs[0] == costs[1]


@pytest.mark.parametrize("page", [7, 20])
async def test_so_many_messages_are_read_at_once_as_the_setting_says(page: int) -> None:
    async with open_memory(StoreOptions()) as store:
        await fill(store, 200)
        counting = CountingStore(store)
        queue = Queue(cast(Store, counting), limits_of(PlaneSettings.isolated(queue_list_page_size=page)))

        for _ in range(50):
            await queue.ack(await queue.dequeue())

    assert counting.page_max == page
