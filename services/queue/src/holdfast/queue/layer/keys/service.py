"""The key space with queues over its keys: names in every spelling, and what queues make of puts and deletes.

A node of a plane is a process that serves the key space. It shows that it lives by a key of its own with a lease, from the first
time on that it has to do with a queue.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from hashlib import blake2b
from typing import Final

from holdfast.common.clock import SteadyClock
from holdfast.queue.layer.keys import names, rules, translation
from holdfast.queue.layer.keys.consumers import Consumers, ConsumerWatch
from holdfast.queue.layer.keys.names import Kind
from holdfast.queue.layer.keys.overdue import Overdue
from holdfast.queue.layer.keys.presence import NodeLease
from holdfast.queue.layer.keys.records import QUEUES
from holdfast.queue.layer.keys.rules import UNRULED, Context, QueueCommit
from holdfast.queue.layer.keys.settings import QueueDefaults, Reliability
from holdfast.state.layer.kv.operation import (
    DeleteRangeRequest,
    DeleteRangeResult,
    Operation,
    PutRequest,
    PutResult,
    RangeRequest,
    RangeResult,
    TxnRequest,
    TxnResult,
    WatchRequest,
)
from holdfast.state.layer.kv.port import Watch
from holdfast.state.layer.kv.records import key_of, read_progress, record_of
from holdfast.state.layer.kv.service import KvService
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.storage.keys import next_key
from holdfast.storage.port import Store, Transaction

CONSUMER_LEASE_S: Final = 60
"""Of a consumer that brings none of its own."""
_PAGE: Final = 500


class KeyQueues:
    """`KvService` for those who may name keys of queues."""

    def __init__(self, store: Store, clock: SteadyClock, node_id: int, defaults: QueueDefaults) -> None:
        self._store = store
        self._clock = clock
        self._node_id = node_id
        self._defaults = defaults
        self._kv = KvService(store, clock, self)
        self.leases = self._kv.leases
        self.node = NodeLease(self._kv, node_id)
        self.consumers = Consumers(self._kv, store, clock, self._commit)
        self.overdue = Overdue(store, clock, self._kv, self._commit)

    @property
    def watchers(self) -> int:
        return self._kv.watchers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._kv.running():
            await self._forget_memory_only()
            async with self.node.running(), self.consumers.running(), self.overdue.running():
                yield

    # -- the key space

    @property
    def known_revision(self) -> int:
        return self._kv.known_revision

    @property
    def last_revision(self) -> int:
        return self._kv.last_revision

    async def revision(self) -> int:
        return await self._kv.revision()

    async def compact(self, revision: int, *, physical: bool = False) -> int:
        return await self._kv.compact(revision, physical=physical)

    async def put(self, request: PutRequest) -> PutResult:
        if not names.is_queue_key(request.key):
            return await self._kv.put(request)
        stored = translation.stored_put(request)
        rules.check_keys([stored.key], [])
        key = names.parsed(stored.key)
        if key is None:
            return translation.told_put(await self._kv.put(stored), request)
        await self._begin()
        self.consumers.touch(key)
        is_message = key.kind is Kind.INCOMING  # Whose key does not outlive the commit that puts it.
        is_early = is_message and await self._is_early(key.queue)
        result = await self._kv.put(stored, is_new=is_message, is_early=is_early)
        return translation.told_put(result, request)

    async def range(
        self, request: RangeRequest, *, on_read: Callable[[RangeResult], None] | None = None
    ) -> RangeResult:
        if not names.is_queue_key(request.key) and not names.is_queue_key(request.range_end):
            return await self._kv.range(request, on_read=on_read)
        stored = translation.stored_range(request)
        self.consumers.touch(names.parsed(stored.key))
        return translation.told_range(await self._kv.range(stored), request)

    async def delete_range(self, request: DeleteRangeRequest) -> DeleteRangeResult:
        if not names.is_queue_key(request.key) and not names.is_queue_key(request.range_end):
            return await self._kv.delete_range(request)
        stored = translation.stored_delete(request)
        key = names.parsed(stored.key)
        if not stored.range_end:
            rules.check_keys([], [stored.key])
        await self._begin()
        self.consumers.touch(key)
        return translation.told_delete(await self._kv.delete_range(stored), request)

    async def txn(self, request: TxnRequest) -> TxnResult:
        if not translation.has_queue_keys(request):
            return await self._kv.txn(request)
        stored = translation.stored_txn(request)
        puts: list[bytes] = []
        deletes: list[bytes] = []
        _single_keys((*stored.success, *stored.failure), puts, deletes)
        rules.check_keys(puts, deletes)
        await self._begin()
        for key in (*puts, *deletes):
            self.consumers.touch(names.parsed(key))
        return translation.told_txn(await self._kv.txn(stored), request)

    async def watch(self, request: WatchRequest) -> Watch:
        if not names.is_queue_key(request.key) and not names.is_queue_key(request.range_end):
            return await self._kv.watch(request)
        key, range_end = names.stored_range(request.key, request.range_end)
        parsed = names.parsed(key)
        watch = await self._kv.watch(request._replace(key=key, range_end=range_end))
        told = ConsumerWatch(watch, request)
        if parsed is not None and parsed.kind is Kind.CONSUMER:
            try:
                await self._begin()
                await self.consumers.watched(told, parsed, self._node_id)
            except BaseException:
                told.close()
                raise
        return told

    async def _begin(self) -> None:
        """Before a commit that may concern a queue."""
        self._clock.now_ms()
        await self.node.show()

    # -- what follows a change, in its commit

    def complete(self, change: SpaceChange) -> Callable[[SpaceChange], None] | None:
        """See `Extension` of the key space."""
        if not any(event.key.startswith(names.ROOT) for event in change.events):
            return None
        return self._commit().complete(change)

    def _commit(self, watch: int = 0) -> QueueCommit:
        # The last moment that was asked for: every call asks before its commit begins.
        now_ms = self._clock.last_ms
        return QueueCommit(
            Context(self._node_id, self._defaults, now_ms, self._grant, self.overdue.set, watch)
        )

    def _grant(self, tx: Transaction, registration: bytes) -> int:
        """An id that follows from what is written: the function may run again."""
        seed = b"%b %d" % (registration, read_progress(tx).revision)
        lease_id = int.from_bytes(blake2b(seed, digest_size=8).digest(), "big") >> 1 or 1
        self.leases.grant_within(tx, lease_id, CONSUMER_LEASE_S, self._clock.last_ms)
        return lease_id

    # -- reliability

    async def _is_early(self, queue: bytes) -> bool:
        """Whether a message is acknowledged before it is durable."""
        if self._store.is_shared:
            return False
        found = await QUEUES.fetch(self._store, queue)
        if found is None:
            return self._defaults.reliability != Reliability.MAJORITY
        return found.reliability != Reliability.MAJORITY and not found.is_unfinished

    async def _forget_memory_only(self) -> None:
        """Messages that were promised nothing do not outlive the process that took them."""
        start, end = QUEUES.bounds()
        while True:
            rows = await QUEUES.fetch_range(self._store, limit=_PAGE, start=start, end=end)
            for row in rows:
                name = row.parts[0]
                assert isinstance(name, bytes)
                if row.message.reliability == Reliability.NONE and await self._was_own(name):
                    await self._kv.run_with(UNRULED, partial(self._commit().forget, name=name))
            if len(rows) < _PAGE:
                return
            start = next_key(rows[-1].record.key)

    async def _was_own(self, queue: bytes) -> bool:
        """Whether it was dispatched by an earlier life of this process."""
        if not self._store.is_shared:
            return True
        record = await self._store.get(key_of(names.queue_key(queue)))
        return record is not None and record_of(record.value).value == b"%d" % self._node_id


def _single_keys(operations: tuple[Operation, ...], puts: list[bytes], deletes: list[bytes]) -> None:
    """The keys that the branches of a transaction put, and those that they delete by their names."""
    for operation in operations:
        if isinstance(operation, PutRequest):
            puts.append(operation.key)
        elif isinstance(operation, DeleteRangeRequest) and not operation.range_end:
            deletes.append(operation.key)
        elif isinstance(operation, TxnRequest):
            _single_keys((*operation.success, *operation.failure), puts, deletes)
