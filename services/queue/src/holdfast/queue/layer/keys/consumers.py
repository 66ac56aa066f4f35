"""Consumers without a lease of their own: their calls renew the one that the server gave them, and a watch registers its consumer.

watch opens, no registration       -> registered by this watch
watch opens, registered by another -> registered by this one from now on: the other may be a connection that broke
client puts the registration       -> registered by its client
watch ends that registered it      -> registered by another watch of this process, or gone
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.queue.layer.keys import names, translation
from holdfast.queue.layer.keys.names import Kind, QueueKey
from holdfast.queue.layer.keys.records import CONSUMERS
from holdfast.queue.layer.keys.rules import QueueCommit
from holdfast.state.layer.kv.operation import WatchRequest
from holdfast.state.layer.kv.port import Watch
from holdfast.state.layer.kv.service import KvService
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.state.layer.kv.watch import WatchBatch
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.port import Store, Transaction

RENEW_MS: Final = 10_000
"""A consumer's calls renew its lease once in so much time at most."""
WATCHER_RENEW_S: Final = 20.0
_KNOWN_MAX: Final = 10_000

Who = tuple[bytes, bytes]
"""A queue and a consumer of it."""

_log = get_logger("queue.keys.consumers")


class ConsumerWatch:
    """A watch whose events are told in the spelling of the request. With it a consumer may come and go."""

    def __init__(self, watch: Watch, request: WatchRequest) -> None:
        self.request = request
        self._watch = watch
        self._spelling = names.spelling_of(request.key)
        self.created_revision = watch.created_revision
        self.on_close: Callable[[], None] | None = None

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
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()


class Consumers:
    """`begin` makes the commit in which a watch registers its consumer, by the number of the watch."""

    def __init__(
        self, kv: KvService, store: Store, clock: SteadyClock, begin: Callable[[int], QueueCommit]
    ) -> None:
        self._kv = kv
        self._store = store
        self._clock = clock
        self._begin = begin
        self._renewed_ms: dict[Who, int] = {}
        self._watches: dict[Who, list[int]] = {}
        self._renewing: set[asyncio.Task[None]] = set()
        self.ending: set[asyncio.Task[None]] = set()
        """What closed watches have begun."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            renewing = list(self._renewing)
            for task in renewing:
                task.cancel()
            await asyncio.gather(*renewing, *self.ending, return_exceptions=True)

    # -- calls

    def touch(self, key: QueueKey | None) -> None:
        """A call under the path of a consumer: it is there."""
        if key is None or key.kind not in (Kind.CONSUMER, Kind.DELIVERY):
            return
        who = key.queue, key.client
        now_ms = self._clock.now_ms()
        if now_ms - self._renewed_ms.get(who, 0) < RENEW_MS:
            return
        if len(self._renewed_ms) >= _KNOWN_MAX:
            self._renewed_ms.clear()
        self._renewed_ms[who] = now_ms
        self._spawn(self._renew(who), self._renewing)

    async def _renew(self, who: Who) -> None:
        try:
            consumer = await CONSUMERS.fetch(self._store, *who)
            if consumer is not None and consumer.server_lease:
                await self._kv.leases.keep_alive(consumer.server_lease)
        except HoldfastError as error:
            warn_unless_told(_log, "queue.consumer.renew.failed", error)

    # -- watches

    async def watched(self, watch: ConsumerWatch, key: QueueKey, node_id: int) -> None:
        """As long as this watch is open its consumer is registered, by itself or by the watch."""
        who = key.queue, key.client
        number = random.getrandbits(63) or 1
        self._watches.setdefault(who, []).append(number)
        renewing = self._spawn(self._renew_while_open(who), self._renewing)

        def closed() -> None:
            renewing.cancel()
            self._spawn(self._closed(who, number), self.ending)

        watch.on_close = closed
        node = b"%d" % node_id
        await self._kv.run_with(self._begin(number), partial(register, who=who, watch=number, node=node))

    async def _renew_while_open(self, who: Who) -> None:
        while True:
            await asyncio.sleep(WATCHER_RENEW_S)
            await self._renew(who)

    async def _closed(self, who: Who, number: int) -> None:
        watches = self._watches[who]
        watches.remove(number)
        if not watches:
            del self._watches[who]
        try:
            if watches:
                await self._store.transact(lambda tx: _hand_over(tx, who, number, watches[-1]))
            else:
                await self._kv.run_with(self._begin(0), partial(leave, who=who, watch=number))
        except HoldfastError as error:
            warn_unless_told(_log, "queue.consumer.leave.failed", error)

    def _spawn(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="queue.keys.consumer")
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task


def register(change: SpaceChange, who: Who, watch: int, node: bytes) -> None:
    """Put the registration if it is not there; or take it over from another watch."""
    key = names.consumer_key(*who)
    if change.get(key) is None:
        change.put(key, node, 0, None)
        return
    consumer = CONSUMERS.get(change.tx, *who)
    if consumer is not None and consumer.watch:
        _hand_over(change.tx, who, consumer.watch, watch)


def leave(change: SpaceChange, who: Who, watch: int) -> None:
    """Delete the registration if this watch is still what keeps it."""
    consumer = CONSUMERS.get(change.tx, *who)
    registration = change.get(names.consumer_key(*who))
    if consumer is not None and consumer.watch == watch and registration is not None:
        change.delete(registration)


def _hand_over(tx: Transaction, who: Who, watch: int, to: int) -> None:
    """From one watch to another."""
    consumer = CONSUMERS.get(tx, *who)
    if consumer is not None and consumer.watch == watch:
        consumer.watch = to
        CONSUMERS.put(tx, consumer, *who)
