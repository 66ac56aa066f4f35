"""The dispatchers of a process: what it keeps of queues has a bound."""

import asyncio

import pytest

from holdfast.queue.layer.dispatch.dispatchers import QUEUES_MAX, Dispatchers
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.port import Record
from tests.service.queue.distance import DistantStore
from tests.service.queue.words import Queue


class AwayStore(DistantStore):
    """A store that answers nothing."""

    async def get(self, key: bytes, *, at_revision: int | None = None) -> Record | None:
        raise StoreUnavailable("away")


async def test_queues_that_could_not_be_read_are_forgotten_too() -> None:
    queue = Queue(AwayStore())
    dispatchers = Dispatchers(queue.store, queue.steady, lambda _, __: True, QueueLimits())

    for number in range(2 * QUEUES_MAX):
        try:
            await dispatchers.loaded(QueueAddress("default", f"queue-{number}"))
        except StoreUnavailable:
            continue

    assert len(list(dispatchers)) <= QUEUES_MAX


async def test_there_is_demand_while_a_queue_is_in_use_and_some_time_longer(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.queue.layer.dispatch.dispatchers.UNUSED_S", 0.02)
    dispatchers = Dispatchers(queue.store, queue.steady, lambda _, __: True, QueueLimits())
    seen = [dispatchers.demand.is_active]
    used = await dispatchers.loaded(QueueAddress("default", "orders"))
    seen.append(dispatchers.demand.is_active)
    used.consumers += 1
    await asyncio.sleep(0.1)
    seen.append(dispatchers.demand.is_active)
    used.consumers -= 1
    async with asyncio.timeout(10):
        while dispatchers.demand.is_active:  # noqa: ASYNC110 - a timer of its own ends it, and tells of nothing
            await asyncio.sleep(0.01)

    assert seen == [False, True, True]
    await dispatchers.close()
