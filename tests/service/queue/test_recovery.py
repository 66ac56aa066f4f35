"""A store that failed and recovered: what was in doubt meanwhile may have happened, and no client was told."""

import asyncio

from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryBlobs
from holdfast.storage.options import StoreOptions
from tests.service.queue.words import Queue


def store_over(engine: MemoryEngine) -> LocalStore:
    options = StoreOptions()
    store = LocalStore(url="mem://", engine=engine, options=options)
    store.attach(MemoryBlobs(store, store.clock))
    return store


async def test_a_message_that_recovery_brought_reaches_the_consumer_that_waits_for_it() -> None:
    recovered = MemoryEngine()
    message = await Queue(store_over(recovered)).enqueue()
    store = store_over(MemoryEngine())
    queue = Queue(store)
    async with queue.service.running():
        waiting = asyncio.create_task(queue.dequeue(wait_s=None))
        await asyncio.sleep(0)

        store.reload(recovered, [])

        delivery = await asyncio.wait_for(waiting, 10)

    assert delivery.message.message_id == message.message_id
