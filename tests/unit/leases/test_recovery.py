"""A store that failed and recovered: a release that was in doubt may have happened, and no client was told."""

import asyncio

from holdfast.storage.local.engine import MemoryEngine
from tests.service.queue.test_recovery import store_over
from tests.unit.leases.test_service import A, open_plane, turns


async def test_a_waiter_gets_the_key_that_is_free_after_recovery() -> None:
    recovered = MemoryEngine()
    store = store_over(MemoryEngine())
    async with open_plane(store) as plane:
        await plane.acquire(A)
        waiting = asyncio.create_task(plane.acquire(A, wait_s=None))
        await turns()

        store.reload(recovered, [])

        await asyncio.wait_for(waiting, 10)
        assert plane.leases.active == 1
