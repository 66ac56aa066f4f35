"""Services of the key space beside the model of it: each step is taken by both, and what they say is compared at once."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

from holdfast.common.clock import SteadyClock
from holdfast.state.layer.kv.errors import KvError
from holdfast.state.layer.kv.operation import (
    UNBOUNDED,
    DeleteRangeRequest,
    Event,
    Operation,
    PutRequest,
    PutResult,
    RangeRequest,
    TxnRequest,
    TxnResult,
    WatchRequest,
)
from holdfast.state.layer.kv.service import KvService
from holdfast.state.layer.kv.watch import KvWatch, WatchBatch, WatchCompacted
from holdfast.storage.port import Store
from tests.unit.state.kv.model import NESTED, KvModel, Refused
from tests.unit.state.kv.refusal import is_told_differently

T = TypeVar("T")

TIMEOUT_S: Final = 10.0
"""Of one step: it comes at once, or what it waits for was lost."""
EXPIRY_S: Final = 1.0
"""So much later than its time a lease may end."""
WATCHES_MAX: Final = 4
EVERYTHING: Final = WatchRequest(UNBOUNDED, UNBOUNDED, prev_kv=True)


class Watching:
    """A watch that is read without a break, and all that it told."""

    def __init__(self, watch: KvWatch, request: WatchRequest, start: int) -> None:
        self.request = request
        self.start = start
        self.told: list[Event] = []
        self._watch = watch
        self._last_revision = 0
        self._batches = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    async def until(self, count: int, revision: int = 0) -> None:
        """Return when so many events were told, and all up to a revision."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.told) < count:
                self._batches.clear()
                await self._batches.wait()
                self._check_reader()
            while self._watch.told_revision < revision:
                await asyncio.sleep(0)  # Of a revision without an event for this watch nobody is told.
                self._check_reader()

    async def close(self) -> None:
        self._watch.close()
        self._reading.cancel()
        await asyncio.wait([self._reading])

    def _check_reader(self) -> None:
        if self._reading.done():
            self._reading.result()

    async def _read(self) -> None:
        try:
            while True:
                self._take(await self._watch.next())
                self._batches.set()
        finally:
            self._batches.set()

    def _take(self, batch: WatchBatch) -> None:
        """All events of a revision come in one batch."""
        revisions = [event.kv.mod_revision for event in batch.events]
        assert revisions == sorted(revisions)
        assert revisions[0] > self._last_revision
        assert revisions[-1] <= batch.revision
        self._last_revision = revisions[-1]
        for event in batch.events:
            self.told.append(event if self.request.prev_kv else event._replace(previous=None))


class World:
    """`services` are over one store, and asked in turns."""

    def __init__(
        self, services: Sequence[KvService], clock: SteadyClock, model: KvModel | None = None
    ) -> None:
        self.services = services
        self.model = model or KvModel()
        self._clock = clock
        self._turns = itertools.cycle(services)
        self.watches: list[Watching] = []
        self.observer: Watching

    async def begin(self) -> None:
        self.observer = await self._watch(EVERYTHING, self.services[0])

    # -- requests

    async def do(self, operation: Operation) -> None:
        if is_told_differently(operation):
            return
        service = next(self._turns)
        if isinstance(operation, PutRequest):
            await self._both(self.model.put, service.put, operation)
        elif isinstance(operation, RangeRequest):
            await self._both(self.model.range, service.range, operation)
        elif isinstance(operation, DeleteRangeRequest):
            await self._both(self.model.delete_range, service.delete_range, operation)
        else:
            await self._both(self.model.txn, service.txn, operation)

    async def put_together(self, requests: Sequence[PutRequest]) -> None:
        """At once: each is one revision, in an order that the results tell. None of them is refused."""
        asked = [
            PutRequest(one.key, one.value, one.lease if one.lease in self.model.leases else 0, prev_kv=True)
            for one in requests
        ]
        services = [next(self._turns) for _ in asked]
        putting = [service.put(request) for service, request in zip(services, asked, strict=True)]
        async with asyncio.timeout(TIMEOUT_S):
            results: list[PutResult] = await asyncio.gather(*putting)
        for result, request in sorted(zip(results, asked, strict=True), key=lambda one: one[0].revision):
            assert result == self.model.put(request)

    async def compact(self, revision: int, *, physical: bool) -> None:
        service = next(self._turns)
        await self._both(
            self.model.compact, lambda asked: service.compact(asked, physical=physical), revision
        )

    async def _both(
        self, model: Callable[[T], Any], service: Callable[[T], Awaitable[Any]], asked: T
    ) -> None:
        try:
            expected = model(asked)
        except Refused as refused:
            await self._is_refused(service(asked), refused)
            return
        async with asyncio.timeout(TIMEOUT_S):
            live = await service(asked)
        assert _plain(live) == _plain(expected), f"{asked}: {live}, not {expected}"

    async def _is_refused(self, asking: Awaitable[Any], refused: Refused) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                live = await asking
        except KvError as error:
            assert type(error) in refused.problems, (error, refused)
        else:
            raise AssertionError(f"it was told {live}, not one of {refused.problems}")

    # -- leases

    async def grant(self, ttl_s: int, lease_id: int) -> None:
        leases = next(self._turns).leases
        try:
            expected_s = self.model.grant(ttl_s, lease_id, self._clock.now_s())
        except Refused as refused:
            await self._is_refused(leases.grant(ttl_s, lease_id), refused)
            return
        live_id, live_s = await leases.grant(ttl_s, lease_id)
        assert live_s == expected_s
        if lease_id:
            assert live_id == lease_id
        else:
            del_lease = self.model.leases.pop(0)
            assert 0 < live_id < 1 << 63
            assert live_id not in self.model.leases
            self.model.leases[live_id] = del_lease

    async def keep_alive(self, lease_id: int) -> None:
        live_s = await next(self._turns).leases.keep_alive(lease_id)
        assert live_s == self.model.keep_alive(lease_id, self._clock.now_s())

    async def revoke(self, lease_id: int) -> None:
        await self._both(self.model.revoke, next(self._turns).leases.revoke, lease_id)

    async def look_at_leases(self) -> None:
        """What is left of each, its keys, and which ends first."""
        leases = next(self._turns).leases
        ids = await leases.ids()
        assert sorted(ids) == sorted(self.model.leases)
        ends = [self.model.leases[lease_id].end_s for lease_id in ids]
        assert ends == sorted(ends)
        for lease_id, lease in self.model.leases.items():
            state = await leases.time_to_live(lease_id, with_keys=True)
            assert state is not None
            assert (state.lease_id, state.granted_ttl_s) == (lease_id, lease.granted_ttl_s)
            assert state.ttl_s == int(lease.end_s - self._clock.now_s())
            assert sorted(state.keys) == self.model.keys_of(lease_id)

    async def is_unknown(self, lease_id: int) -> None:
        if lease_id not in self.model.leases:
            assert await next(self._turns).leases.time_to_live(lease_id) is None

    async def pass_time(self, seconds: int) -> None:
        """Leases that are over for long enough have ended when this returns; none is left that may or may not have."""
        self._clock.raise_to(self._clock.now_s() + seconds)
        while any(0 <= self._clock.now_s() - lease.end_s < EXPIRY_S for lease in self.model.leases.values()):
            self._clock.raise_to(self._clock.now_s() + EXPIRY_S)
        over = {
            lease_id for lease_id, lease in self.model.leases.items() if lease.end_s <= self._clock.now_s()
        }
        async with asyncio.timeout(TIMEOUT_S):
            while keys := {key for lease_id in over for key in self.model.keys_of(lease_id)}:
                await self._lease_ends(over, keys)
            for lease_id in over & self.model.leases.keys():
                del self.model.leases[lease_id]
            for service in self.services:
                while over & set(await service.leases.ids()):  # noqa: ASYNC110
                    await asyncio.sleep(0)  # Of the end of a lease without keys nobody is told.

    async def _lease_ends(self, over: set[int], keys: set[bytes]) -> None:
        """The next revisions each delete all keys of some of these leases, and nothing else."""
        known = len(self.observer.told)
        await self.observer.until(known + 1)
        for _, events in itertools.groupby(self.observer.told[known:], lambda event: event.kv.mod_revision):
            deleted = list(events)
            assert {event.kv.key for event in deleted} <= keys
            ended = {event.previous.lease for event in deleted if event.previous is not None}
            assert ended <= over
            self.model.end_leases(sorted(ended))
            assert _by_key(deleted) == _by_key(self.model.events[-1])
            self.model.events[-1][:] = deleted  # In whichever order: others have to be told in the same one.

    # -- watches

    async def watch(self, request: WatchRequest) -> None:
        if len(self.watches) == WATCHES_MAX:
            await self.watches.pop(0).close()
        self.watches.append(await self._watch(request, next(self._turns)))

    async def watch_what_is_gone(self, request: WatchRequest) -> None:
        """Its start is before the compaction: it begins, and is told so."""
        watch = await next(self._turns).watch(request)
        assert watch.created_revision == self.model.revision
        try:
            async with asyncio.timeout(TIMEOUT_S):
                batch = await watch.next()
        except WatchCompacted as error:
            assert error.compact_revision == self.model.compacted
        else:
            raise AssertionError(f"it was told {batch}")
        finally:
            watch.close()

    async def _watch(self, request: WatchRequest, service: KvService) -> Watching:
        watch = await service.watch(request)
        assert watch.created_revision == self.model.revision
        return Watching(watch, request, request.start_revision or self.model.revision + 1)

    async def hear(self) -> None:
        """Each watch has been told all that it wants to hear of, and nothing else."""
        for watching in (self.observer, *self.watches):
            expected = self.model.watched(watching.request, watching.start)
            await watching.until(len(expected), self.model.revision)
            assert watching.told == expected, watching.request

    async def end(self) -> None:
        """A change of each key, so that a watch which told too much is found out."""
        keys = sorted({watching.request.key for watching in self.watches} - {UNBOUNDED})
        if self.model.leases:
            await self.revoke(next(iter(self.model.leases)))
        if keys:
            await self.do(TxnRequest(success=tuple(PutRequest(key) for key in keys)))
            await self.do(DeleteRangeRequest(UNBOUNDED, UNBOUNDED))
        await self.hear()
        await self.look_at_leases()

    async def close(self) -> None:
        for watching in (self.observer, *self.watches):
            await watching.close()


@asynccontextmanager
async def world_over(
    stores: Sequence[Store], clock: SteadyClock, model: KvModel | None = None
) -> AsyncIterator[World]:
    """A service for each store; what the stores hold is what the model holds."""
    async with AsyncExitStack() as stack:
        services = [KvService(store, clock) for store in stores]
        for service in services:
            await stack.enter_async_context(service.running())
        world = World(services, clock, model)
        await world.begin()
        stack.push_async_callback(world.close)
        yield world


def _plain(result: Any) -> Any:
    """Without the revisions of transactions within another one, which nobody is told."""
    if not isinstance(result, TxnResult):
        return result
    inner = [
        _plain(one._replace(revision=NESTED) if isinstance(one, TxnResult) else one) for one in result.results
    ]
    return result._replace(results=inner)


def _by_key(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.kv.key)
