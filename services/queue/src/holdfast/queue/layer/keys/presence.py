"""Who is there: the node, by a key with a lease, and consumers without a lease of their own, by one that their calls renew."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final

from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.queue.layer.keys import names, translation
from holdfast.queue.layer.keys.names import Kind, QueueKey
from holdfast.queue.layer.keys.records import CONSUMERS
from holdfast.state.layer.kv.operation import (
    Compare,
    CompareTarget,
    DeleteRangeRequest,
    PutRequest,
    PutResult,
    TxnRequest,
    WatchRequest,
)
from holdfast.state.layer.kv.port import Watch
from holdfast.state.layer.kv.service import KvService
from holdfast.state.layer.kv.watch import WatchBatch
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.port import Store

NODE_LEASE_S: Final = 10
NODE_RENEW_S: Final = 3.0
CONSUMER_RENEW_S: Final = 10.0
"""A consumer's calls renew its lease once in so many seconds at most."""
WATCHER_RENEW_S: Final = 20.0
_KNOWN_MAX: Final = 10_000

_log = get_logger("queue.keys.presence")


class NodeLease:
    """The key of this node; other nodes take over its queues when it is gone."""

    def __init__(self, kv: KvService, node_id: int) -> None:
        self._kv = kv
        self._node_id = node_id
        self._lease_id = 0
        self._shown = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)

    async def show(self) -> None:
        """Be there, before anything is done with a queue."""
        if self._lease_id:
            return
        async with self._shown:
            if self._lease_id:
                return
            await self._begin()
            if self._task is None:
                self._task = asyncio.create_task(self._renew(), name="queue.keys.node")

    async def _begin(self) -> None:
        lease_id, _ = await self._kv.leases.grant(NODE_LEASE_S)
        await self._kv.put(PutRequest(names.node_key(self._node_id), b"%d" % self._node_id, lease_id))
        self._lease_id = lease_id

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(NODE_RENEW_S * random.uniform(0.8, 1.0))
            try:
                if not await self._kv.leases.keep_alive(self._lease_id):
                    await self._begin()
            except HoldfastError as error:
                warn_unless_told(_log, "queue.node.renew.failed", error)


class ConsumerWatch:
    """A watch whose events are told in the spelling of who asked. With it a consumer may come and go."""

    def __init__(self, watch: Watch, request: WatchRequest) -> None:
        self.request = request
        self._watch = watch
        self._spelling = names.spelling_of(request.key)
        self.created_revision = watch.created_revision
        self.on_close: list[Callable[[], object]] = []

    @property
    def told_revision(self) -> int:
        return self._watch.told_revision

    async def next(self) -> WatchBatch:
        batch = await self._watch.next()
        events = [translation.told_event(event, self._spelling) for event in batch.events]
        if not self.request.range_end:
            events = [translation.told_as(event, self.request.key) for event in events]
        return WatchBatch(batch.revision, events)

    def end(self) -> None:
        self._watch.end()

    def close(self) -> None:
        self._watch.close()
        while self.on_close:
            self.on_close.pop()()


class Consumers:
    """Renews the leases that the server gave to consumers, while they do something."""

    def __init__(self, kv: KvService, store: Store) -> None:
        self._kv = kv
        self._store = store
        self._renewed_s: dict[tuple[bytes, bytes], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def touch(self, key: QueueKey | None) -> None:
        """A call under the path of a consumer: it is there."""
        if key is None or key.kind not in (Kind.CONSUMER, Kind.DELIVERY):
            return
        who = key.queue, key.client
        now_s = monotonic()
        if now_s - self._renewed_s.get(who, -CONSUMER_RENEW_S) < CONSUMER_RENEW_S:
            return
        if len(self._renewed_s) >= _KNOWN_MAX:
            self._renewed_s.clear()
        self._renewed_s[who] = now_s
        self._spawn(self._renew(*who))

    async def watched(self, watch: ConsumerWatch, key: QueueKey, node_id: int) -> None:
        """As long as this watch is open its consumer is registered, by itself or by the watch."""
        registration = names.consumer_key(key.queue, key.client)
        absent = Compare(registration, target=CompareTarget.CREATE, operand=0)
        put = PutRequest(registration, b"%d" % node_id)
        result = await self._kv.txn(TxnRequest((absent,), (put,)))
        renewing = self._spawn(self._renew_while_open(key.queue, key.client))
        watch.on_close.append(renewing.cancel)
        if result.succeeded:
            made = result.results[0]
            assert isinstance(made, PutResult)
            watch.on_close.append(lambda: self._spawn(self._leave(registration, made.revision)))

    async def _leave(self, registration: bytes, create_revision: int) -> None:
        own = Compare(registration, target=CompareTarget.CREATE, operand=create_revision)
        try:
            await self._kv.txn(TxnRequest((own,), (DeleteRangeRequest(registration),)))
        except HoldfastError as error:
            warn_unless_told(_log, "queue.consumer.leave.failed", error)

    async def _renew_while_open(self, queue: bytes, client: bytes) -> None:
        while True:
            await asyncio.sleep(WATCHER_RENEW_S)
            await self._renew(queue, client)

    async def _renew(self, queue: bytes, client: bytes) -> None:
        try:
            consumer = await CONSUMERS.fetch(self._store, queue, client)
            if consumer is not None and consumer.server_lease:
                await self._kv.leases.keep_alive(consumer.server_lease)
        except HoldfastError as error:
            warn_unless_told(_log, "queue.consumer.renew.failed", error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="queue.keys.consumer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
