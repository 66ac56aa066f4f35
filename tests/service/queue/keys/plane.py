"""Queues over keys as a process has them, over a store, without HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.common.clock import FakeClock, SteadyClock
from holdfast.queue.layer.keys import names
from holdfast.queue.layer.keys.records import QUEUES
from holdfast.queue.layer.keys.service import KeyQueues
from holdfast.queue.layer.keys.settings import QueueDefaults
from holdfast.state.layer.kv.operation import (
    DeleteRangeRequest,
    Operation,
    PutRequest,
    RangeRequest,
    TxnRequest,
    WatchRequest,
)
from holdfast.state.layer.kv.port import Watch
from holdfast.storage.opening import open_store
from holdfast.storage.port import Store
from tests.infra.key_queue import Keys, check_queue

NODE, OTHER_NODE = 7, 8


class Plane:
    """One process over a store; `clock` moves only when the test moves it, if it was given one."""

    def __init__(self, store: Store, queues: KeyQueues, clock: FakeClock | None) -> None:
        self.store = store
        self.queues = queues
        self.clock = clock

    async def put(self, key: bytes, value: bytes = b"", lease: int = 0) -> int:
        return (await self.queues.put(PutRequest(key, value, lease))).revision

    async def send(self, queue: bytes, *values: bytes) -> None:
        for value in values:
            await self.put(b"/q/%b/p/me/%b" % (queue, value), value)

    async def send_together(self, queue: bytes, values: list[bytes]) -> None:
        """In transactions of as many as one may have."""
        for first in range(0, len(values), 128):
            puts = [PutRequest(b"/q/%b/p/me/%b" % (queue, one), one) for one in values[first : first + 128]]
            await self.txn(*puts)

    async def txn(self, *operations: Operation) -> None:
        await self.queues.txn(TxnRequest(success=operations))

    async def delete(self, key: bytes, range_end: bytes = b"") -> int:
        return (await self.queues.delete_range(DeleteRangeRequest(key, range_end))).deleted

    async def delete_below(self, prefix: bytes) -> int:
        return await self.delete(prefix, names.prefix_end(prefix))

    async def below(self, prefix: bytes) -> dict[bytes, bytes]:
        result = await self.queues.range(RangeRequest(prefix, names.prefix_end(prefix)))
        return {kv.key: kv.value for kv in result.kvs}

    async def register(self, queue: bytes, client: bytes) -> int:
        lease, _ = await self.queues.leases.grant(60)
        await self.put(b"/q/%b/c/%b/" % (queue, client), b"", lease)
        return lease

    async def watch(self, key: bytes) -> Watch:
        return await self.queues.watch(WatchRequest(key, names.prefix_end(key)))

    async def check(self, queue: bytes) -> Keys:
        return await self.store.view(lambda view: check_queue(view, queue))

    async def finished(self, queue: bytes) -> Keys:
        """What there is when the queue has done all that there is to do."""
        async with asyncio.timeout(60):
            while True:
                watch = await self.watch(b"/queue/%b" % queue)
                try:
                    if not await self.is_unfinished(queue):
                        return await self.check(queue)
                    await watch.next()
                finally:
                    watch.close()

    async def is_unfinished(self, queue: bytes) -> bool:
        row = await QUEUES.fetch(self.store, queue)
        return row is not None and row.is_unfinished


@asynccontextmanager
async def open_plane(
    store: Store,
    *,
    node_id: int = NODE,
    defaults: QueueDefaults | None = None,
    clock: FakeClock | None = None,
) -> AsyncIterator[Plane]:
    steady = store.clock if clock is None else SteadyClock(clock)
    queues = KeyQueues(store, steady, node_id, defaults or QueueDefaults())
    async with queues.running():
        yield Plane(store, queues, clock)


@asynccontextmanager
async def memory_plane(
    *, defaults: QueueDefaults | None = None, clock: FakeClock | None = None
) -> AsyncIterator[Plane]:
    async with open_store("mem://") as store, open_plane(store, defaults=defaults, clock=clock) as plane:
        yield plane
