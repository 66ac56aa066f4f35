"""Steps over the key space by chance: the same as those of the machine, and many of them in little time."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from random import Random

from holdfast.common.clock import FakeClock, SteadyClock
from holdfast.state.layer.kv.operation import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRangeRequest,
    Operation,
    PutRequest,
    RangeRequest,
    SortOrder,
    SortTarget,
    TxnRequest,
    WatchRequest,
)
from holdfast.storage.port import Store
from tests.unit.state.kv.machine import ENDS, EVERYTHING, KEYS, LEASES, STRANGE_LEASE, VALUES
from tests.unit.state.kv.world import World, world_over


async def play(
    open_stores: Callable[[], AbstractAsyncContextManager[Sequence[Store]]], seed: int, steps: int
) -> None:
    clock = SteadyClock(FakeClock())
    async with open_stores() as stores, world_over(stores, clock) as world:
        player = Player(Random(seed), world)
        for _ in range(steps):
            await player.step()
            await world.hear()
        await world.look_at_leases()
        await world.end()


class Player:
    def __init__(self, chance: Random, world: World) -> None:
        self._chance = chance
        self._world = world

    async def step(self) -> None:
        steps = [
            (6, self._put),
            (3, self._range),
            (2, self._delete),
            (6, self._txn),
            (3, self._compare),
            (2, self._puts_at_once),
            (1, self._compact),
            (2, self._lease),
            (1, self._time),
            (2, self._watch),
        ]
        ((_, step),) = self._chance.choices(steps, [weight for weight, _ in steps])
        await step()

    # -- steps

    async def _put(self) -> None:
        await self._world.do(self._put_request())

    async def _range(self) -> None:
        await self._world.do(self._range_request())

    async def _delete(self) -> None:
        await self._world.do(self._delete_request())

    async def _txn(self) -> None:
        await self._world.do(self._txn_request(0))

    async def _compare(self) -> None:
        await self._world.do(TxnRequest((self._compare_of(),)))

    async def _puts_at_once(self) -> None:
        requests = [self._put_request() for _ in range(self._chance.randint(2, 5))]
        await self._world.put_together([request for request in requests if request.key])

    async def _compact(self) -> None:
        model = self._world.model
        oldest = max(model.compacted - 1, model.revision - 8, 1)
        revision = self._chance.randint(oldest, model.revision + 1)
        await self._world.compact(revision, physical=self._is(0.5))

    async def _lease(self) -> None:
        lease_id = self._chance.choice([*LEASES, STRANGE_LEASE])
        match self._chance.randrange(4):
            case 0 | 1:
                ttl_s = self._chance.choice([-5, 1, 2, 5, 30, 60, 9_000_000_001])
                await self._world.grant(ttl_s, self._chance.choice([0, *LEASES]))
            case 2:
                await self._world.keep_alive(lease_id)
            case _:
                await self._world.revoke(lease_id)
        await self._world.look_at_leases()
        await self._world.is_unknown(lease_id)

    async def _time(self) -> None:
        await self._world.pass_time(self._chance.choice([1, 2, 4, 20]))

    async def _watch(self) -> None:
        model = self._world.model
        request = WatchRequest(
            self._chance.choice(KEYS),
            self._end(),
            no_put=self._is(0.1),
            no_delete=self._is(0.1),
            prev_kv=self._is(0.5),
        )
        if self._is(0.1) and model.compacted > 1:
            start = self._chance.randint(1, model.compacted - 1)
            await self._world.watch_what_is_gone(request._replace(start_revision=start))
            return
        first = max(model.compacted + request.prev_kv, 1)
        start = self._chance.choice([0, self._chance.randint(first, model.revision + 3)])
        await self._world.watch(request._replace(start_revision=start))

    # -- what is asked

    def _is(self, share: float) -> bool:
        return self._chance.random() < share

    def _key(self) -> bytes:
        return b"" if self._is(0.005) else self._chance.choice(KEYS)

    def _end(self) -> bytes:
        return self._chance.choice([b"", self._chance.choice(ENDS)])

    def _put_request(self) -> PutRequest:
        keeps_value, keeps_lease = self._is(0.1), self._is(0.1)
        value = b"" if keeps_value and self._is(0.9) else self._chance.choice(VALUES)
        leases = [0, *self._world.model.leases, self._chance.choice([*LEASES, STRANGE_LEASE])]
        lease = 0 if keeps_lease or self._is(0.4) else self._chance.choice(leases)
        return PutRequest(self._key(), value, lease, self._is(0.5), keeps_value, keeps_lease)

    def _range_request(self) -> RangeRequest:
        revision = self._world.model.revision
        bounds = [self._chance.randint(1, revision) if self._is(0.1) else 0 for _ in range(4)]
        return RangeRequest(
            self._key(),
            self._end(),
            self._chance.choice([0, 0, 1, 2, 3]),
            self._chance.randint(max(revision - 8, 1), revision + 1) if self._is(0.4) else 0,
            self._chance.choice(list(SortOrder)),
            self._chance.choice(list(SortTarget)),
            self._is(0.1),
            self._is(0.1),
            *bounds,
        )

    def _delete_request(self) -> DeleteRangeRequest:
        return DeleteRangeRequest(self._key(), self._end(), self._is(0.5))

    def _compare_of(self) -> Compare:
        target = self._chance.choice(list(CompareTarget))
        revision = self._world.model.revision
        operand: int | bytes = self._chance.randint(0, 3)
        if target is CompareTarget.VALUE:
            operand = self._chance.choice(VALUES)
        elif target in (CompareTarget.CREATE, CompareTarget.MOD):
            operand = self._chance.choice([0, self._chance.randint(max(revision - 8, 1), revision)])
        return Compare(self._key(), self._end(), self._chance.choice(list(CompareResult)), target, operand)

    def _txn_request(self, depth: int) -> TxnRequest:
        compares = [self._compare_of() for _ in range(self._chance.choice([0, 1, 2]))]
        branches = [[self._operation(depth) for _ in range(self._chance.randint(0, 3))] for _ in range(2)]
        success, failure = ([*branch, EVERYTHING] if depth == 0 else branch for branch in branches)
        return TxnRequest(tuple(compares), tuple(success), tuple(failure))

    def _operation(self, depth: int) -> Operation:
        made: list[Callable[[], Operation]] = [self._put_request, self._range_request, self._delete_request]
        if depth < 2 and self._is(0.2):
            return self._txn_request(depth + 1)
        return self._chance.choice(made)()
