"""Random walks over the key space: what is asked, and of whom."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, TypeVar, cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.common.clock import FakeClock, SteadyClock
from holdfast.state.layer.kv.operation import (
    UNBOUNDED,
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    SortOrder,
    SortTarget,
    TxnRequest,
    WatchRequest,
)
from holdfast.state.layer.kv.records import INLINE_BYTES_MAX
from holdfast.storage.port import Store
from tests.unit.state.kv.model import KvModel
from tests.unit.state.kv.world import World, world_over

T = TypeVar("T")

KEYS = [b"a", b"a\x00", b"ab", b"b", b"b/1", b"b/2", b"c", b"\xff", b"\xff\xff"]
ENDS = [*KEYS, b"b0", UNBOUNDED]
LEASES = [1, 2, 3]
STRANGE_LEASE = 99
NESTING_MAX = 2
EVERYTHING = RangeRequest(UNBOUNDED, UNBOUNDED)
LARGE = [b"l" * (INLINE_BYTES_MAX + 1), b"m" * (INLINE_BYTES_MAX + 1)]
VALUES = [b"", b"1", b"2", b"10", b"\x00", *LARGE]

keys = st.sampled_from(KEYS)
ends = st.sampled_from([b""] * len(ENDS) + ENDS)
seldom = st.integers(0, 7).map(lambda number: number == 0)
leases = st.sampled_from([0] * 12 + [*LEASES, STRANGE_LEASE])
revisions = st.sampled_from([0] * 12) | st.integers(0, 30)
bounds = st.sampled_from([0] * 6) | st.integers(0, 20)
hardly_ever = st.integers(0, 99).map(lambda number: number == 0)


def _without_key(request: T, is_without: bool) -> T:
    return cast(Any, request)._replace(key=b"") if is_without else request


keeps = st.sampled_from([(False, False)] * 8 + [(True, False), (False, True), (True, True)])
"""Whether a put keeps the value, and whether it keeps the lease."""


@st.composite
def _puts(draw: st.DrawFn) -> PutRequest:
    """Most of them make sense: one that keeps something brings none."""
    keeps_value, keeps_lease = draw(keeps)
    value = b"" if keeps_value and not draw(seldom) else draw(st.sampled_from(VALUES))
    lease = 0 if keeps_lease and not draw(seldom) else draw(leases)
    return PutRequest(draw(keys), value, lease, draw(st.booleans()), keeps_value, keeps_lease)


puts = _puts()
ranges = st.builds(
    RangeRequest,
    keys,
    ends,
    limit=st.integers(0, 3),
    revision=revisions,
    sort_order=st.sampled_from(SortOrder),
    sort_target=st.sampled_from(SortTarget),
    keys_only=seldom,
    count_only=seldom,
    min_mod_revision=bounds,
    max_mod_revision=bounds,
    min_create_revision=bounds,
    max_create_revision=bounds,
)
deletes = st.builds(DeleteRangeRequest, keys, ends, st.booleans())


plain = st.builds(_without_key, puts | ranges | deletes, hardly_ever)


@st.composite
def compares(draw: st.DrawFn) -> Compare:
    target = draw(st.sampled_from(CompareTarget))
    is_value = target is CompareTarget.VALUE
    operand: int | bytes = draw(st.sampled_from(VALUES)) if is_value else draw(st.integers(0, 12))
    compare = Compare(draw(keys), draw(ends), draw(st.sampled_from(CompareResult)), target, operand)
    return _without_key(compare, draw(hardly_ever))


@st.composite
def transactions(draw: st.DrawFn, depth: int = 0) -> TxnRequest:
    inner = plain if depth == NESTING_MAX else plain | transactions(depth + 1)
    branches = st.lists(inner, max_size=3 - depth)
    success, failure = draw(branches), draw(branches)
    if depth == 0:  # What a transaction did, it sees.
        success.append(EVERYTHING)
        failure.append(EVERYTHING)
    return TxnRequest(tuple(draw(st.lists(compares(), max_size=2))), tuple(success), tuple(failure))


watches = st.builds(
    WatchRequest,
    keys,
    ends | st.just(UNBOUNDED),
    no_put=seldom,
    no_delete=seldom,
    prev_kv=st.booleans(),
)


class Place(NamedTuple):
    """Where a walk happens: each opening finds what the one before left, if it `is_durable`; others may have it open, too, if it
    `is_shared`."""

    open: Callable[[], AbstractAsyncContextManager[Sequence[Store]]]
    is_durable: bool = False
    is_shared: bool = False


@asynccontextmanager
async def alone(opening: AbstractAsyncContextManager[Store]) -> AsyncIterator[Sequence[Store]]:
    async with opening as store:
        yield [store]


class KvMachine(RuleBasedStateMachine):
    def __init__(self, next_place: Callable[[], Place]) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.place = next_place()
        self.world: World
        self.clock = SteadyClock(FakeClock())
        self.open(None)

    def run(self, step: Awaitable[T]) -> T:
        async def taken() -> T:
            return await step

        return self.runner.run(taken())

    def open(self, model: KvModel | None) -> None:
        self.stack = AsyncExitStack()
        self.run(self._open(model))

    async def _open(self, model: KvModel | None) -> None:
        stores = await self.stack.enter_async_context(self.place.open())
        self.world = await self.stack.enter_async_context(world_over(stores, self.clock, model))

    def teardown(self) -> None:
        try:
            self.run(self.world.end())
        finally:
            self.run(self.stack.aclose())
            self.runner.close()

    # -- keys

    @rule(request=plain)
    def one_operation(self, request: Any) -> None:
        self.run(self.world.do(request))

    @rule(request=puts)
    def a_put(self, request: PutRequest) -> None:
        self.run(self.world.do(request))

    @rule(request=transactions())
    def a_transaction(self, request: TxnRequest) -> None:
        self.run(self.world.do(request))

    @rule(compare=compares())
    def a_comparison(self, compare: Compare) -> None:
        self.run(self.world.do(TxnRequest((compare,))))

    @rule(requests=st.lists(puts, min_size=2, max_size=5))
    def puts_at_once(self, requests: list[PutRequest]) -> None:
        self.run(self.world.put_together(requests))

    @rule(data=st.data(), is_physical=st.booleans())
    def a_compaction(self, data: st.DataObject, is_physical: bool) -> None:
        """Also of what is compacted, or not there yet."""
        revision = data.draw(st.integers(1, self.world.model.revision + 1))
        self.run(self.world.compact(revision, physical=is_physical))

    # -- leases

    @rule(ttl_s=st.sampled_from([-5, 1, 2, 5, 30, 60, 9_000_000_001]), lease_id=st.sampled_from([0, *LEASES]))
    def a_grant(self, ttl_s: int, lease_id: int) -> None:
        self.run(self.world.grant(ttl_s, lease_id))

    @rule(requests=st.lists(puts, min_size=1, max_size=3), ttl_s=st.integers(1, 5), data=st.data())
    def puts_with_a_lease(self, requests: list[PutRequest], ttl_s: int, data: st.DataObject) -> None:
        """One that is there."""
        if not self.world.model.leases:
            self.run(self.world.grant(ttl_s, LEASES[0]))
        lease = data.draw(st.sampled_from(sorted(self.world.model.leases)))
        self.run(self.world.put_together([request._replace(lease=lease) for request in requests]))

    @rule(lease_id=st.sampled_from([*LEASES, STRANGE_LEASE]))
    def a_keepalive(self, lease_id: int) -> None:
        self.run(self.world.keep_alive(lease_id))
        self.run(self.world.look_at_leases())

    @rule(lease_id=st.sampled_from([*LEASES, STRANGE_LEASE]))
    def a_revocation(self, lease_id: int) -> None:
        self.run(self.world.revoke(lease_id))

    @rule(lease_id=st.sampled_from([*LEASES, STRANGE_LEASE]))
    def a_look_at_leases(self, lease_id: int) -> None:
        self.run(self.world.look_at_leases())
        self.run(self.world.is_unknown(lease_id))

    @rule(seconds=st.sampled_from([1, 2, 4]))
    def time_passes(self, seconds: int) -> None:
        self.run(self.world.pass_time(seconds))

    # -- watches

    @rule(request=watches, data=st.data())
    def a_watch(self, request: WatchRequest, data: st.DataObject) -> None:
        """From now on, or from a revision of the past or the future."""
        model = self.world.model
        first = max(
            model.compacted + request.prev_kv, 1
        )  # Of what the last one of those was before, nothing is promised.
        starts = st.just(0) | st.integers(first, model.revision + 3)
        self.run(self.world.watch(request._replace(start_revision=data.draw(starts))))

    @precondition(lambda self: self.world.model.compacted > 1)
    @rule(request=watches, data=st.data())
    def a_watch_of_what_is_gone(self, request: WatchRequest, data: st.DataObject) -> None:
        start = data.draw(st.integers(1, self.world.model.compacted - 1))
        self.run(self.world.watch_what_is_gone(request._replace(start_revision=start)))

    @invariant()
    def watches_tell_what_happened(self) -> None:
        self.run(self.world.hear())

    # -- restarts

    @precondition(lambda self: self.place.is_durable)
    @rule(seconds=st.sampled_from([0.25, 3.25, 10.25]))
    def a_restart(self, seconds: float) -> None:
        """Nothing is lost but the watches. Every lease has its whole time again; over a store that may be shared only one that
        is over, as another process may have been there for the others."""
        self.run(self.stack.aclose())
        self.clock.raise_to(self.clock.now_s() + seconds)
        now_s, model = self.clock.now_s(), self.world.model
        for lease in model.leases.values():
            if not self.place.is_shared or lease.end_s <= now_s:
                lease.end_s = now_s + lease.granted_ttl_s
        self.open(model)


def walk(
    next_place: Callable[[], Place],
    examples: int,
    *,
    steps: int = 30,
    phases: Sequence[Phase] = (Phase.explicit, Phase.reuse, Phase.generate),
) -> None:
    """Without `Phase.shrink`: a walk that hangs does so in every attempt to shorten it."""
    # Hypothesis takes any callable that makes a machine; its types know only of classes.
    run_state_machine_as_test(
        cast("type[KvMachine]", lambda: KvMachine(next_place)),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            phases=phases,
            report_multiple_bugs=False,
        ),
    )
