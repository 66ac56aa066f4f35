"""A step of the clock: whatever sleeps until a moment looks again, though its timer is set for much later."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.leases.layer.grant import AcquireParams
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.txn.layer.port import Member
from tests.service.queue.words import Queue

KEY = Member("default", "key")
LONG_S = 600
SOON_S = 20.0


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    async with open_memory(StoreOptions()) as store:
        queue = Queue(store)
        async with queue.service.running(), queue.leases.running():
            yield queue


def step(queue: Queue) -> None:
    queue.steady.raise_to(queue.steady.now_s() + LONG_S + 1)


async def test_leases_end(queue: Queue) -> None:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    queue.leases.on_expired = ended.set_result
    await queue.leases.acquire(AcquireParams(KEY, "worker", LONG_S, 0.0))
    await asyncio.sleep(0)

    step(queue)

    async with asyncio.timeout(SOON_S):
        assert await ended == 1


async def test_delayed_messages_are_delivered(queue: Queue) -> None:
    message = await queue.enqueue(delay_s=LONG_S)
    consumer = asyncio.create_task(queue.dequeue(wait_s=None))
    await asyncio.sleep(0)

    step(queue)

    async with asyncio.timeout(SOON_S):
        assert (await consumer).message.message_id == message.message_id


async def test_deliveries_end(queue: Queue) -> None:
    await queue.enqueue()
    await queue.dequeue(visibility_s=LONG_S)
    consumer = asyncio.create_task(queue.dequeue(wait_s=None))
    await asyncio.sleep(0)

    step(queue)

    async with asyncio.timeout(SOON_S):
        assert (await consumer).message.attempts == 2
