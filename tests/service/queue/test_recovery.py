"""A store that failed and recovered: what was in doubt meanwhile may have happened, and nobody was told."""

import asyncio

from holdfast.storage.local.shelf import MemoryShelf
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryBlobs
from holdfast.storage.options import StoreOptions
from tests.service.queue.words import Queue


def store_over(shelf: MemoryShelf) -> LocalStore:
    options = StoreOptions()
    store = LocalStore(url="mem://", shelf=shelf, options=options)
    store.attach(MemoryBlobs(store, store.clock))
    return store


async def test_a_message_that_recovery_brought_reaches_the_consumer_that_waits_for_it() -> None:
    recovered = MemoryShelf()
    message = await Queue(store_over(recovered)).enqueue()
    store = store_over(MemoryShelf())
    queue = Queue(store)
    async with queue.service.running():
        waiting = asyncio.create_task(queue.dequeue(wait_s=None))
        await asyncio.sleep(0)

        store.reload(recovered, [])

        delivery = await asyncio.wait_for(waiting, 10)

    assert delivery.message.message_id == message.message_id
