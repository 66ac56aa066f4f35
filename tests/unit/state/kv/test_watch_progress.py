"""How far a watch has told what it wants to tell: clients that wait for a revision rely on it."""

import asyncio

from holdfast.common.clock import FakeClock, SteadyClock
from holdfast.state.layer.kv.operation import PutRequest, WatchRequest
from holdfast.state.layer.kv.service import KvService
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions


async def test_a_watch_that_told_everything_has_told_up_to_the_newest_revision() -> None:
    """Also when the newest one was none of its business and came before the one before was taken."""
    async with open_memory(StoreOptions()) as store:
        service = KvService(store, SteadyClock(FakeClock()))
        async with service.running():
            watch = await service.watch(WatchRequest(b"a"))
            other = await service.watch(WatchRequest(b"b"))
            await asyncio.gather(service.put(PutRequest(b"a")), service.put(PutRequest(b"b")))
            assert (await other.next()).revision == 3
            assert (await watch.next()).revision == 2

            told_revision = watch.told_revision

            watch.close()
            other.close()
    assert told_revision == 3
