"""Two processes over one PostgreSQL store: each knows of the leases of the other, and ends what that one left behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from holdfast.common.clock import SystemClock
from holdfast.leases.layer.records import held_range
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from holdfast.storage.postgres.store import open_postgres
from tests.unit.leases.test_service import A, Plane, open_plane

TOLD_S = 20


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[Store]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_postgres(postgres_url, StoreOptions())) for _ in range(2)]


@pytest.fixture
async def pair(stores: list[Store]) -> AsyncIterator[tuple[Plane, Plane]]:
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(open_plane(store, SystemClock())) for store in stores]
        yield here, there


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(TOLD_S):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.01)


async def until_known(plane: Plane, elsewhere: int) -> None:
    await until(lambda: len(plane.leases._follower.remote_expiries) == elsewhere)


async def test_what_a_process_that_is_gone_left_behind_is_ended_by_another_one(stores: list[Store]) -> None:
    async with open_plane(stores[1], SystemClock()) as there:
        async with open_plane(stores[0], SystemClock()) as here:
            grant = await here.acquire(A, ttl_s=1)
            await here.update(A, grant, b'{"staged":true}')
            await until_known(there, 1)

        start, end = held_range()
        async with asyncio.timeout(TOLD_S), stores[1].watch(start, end) as changes:
            while await stores[1].range(start, end, limit=1):
                await anext(changes)
        assert await there.read(A) is None


async def test_a_lease_is_counted_by_the_process_that_granted_it(pair: tuple[Plane, Plane]) -> None:
    here, there = pair
    grant = await here.acquire(A)
    await until_known(there, 1)
    assert (here.leases.active, there.leases.active) == (1, 0)

    await here.release(A, grant)

    await until_known(there, 0)
    assert (here.leases.active, there.leases.active) == (0, 0)


async def test_a_process_is_not_confused_by_what_it_is_told_of_its_own_past(
    pair: tuple[Plane, Plane],
) -> None:
    """Each release is told after the key was granted anew."""
    here, there = pair
    for _ in range(30):
        await here.release(A, await here.acquire(A))
    grant = await here.acquire(A)
    await there.acquire(A._replace(key="last"))  # Told after all the others.
    await until_known(here, 1)

    assert here.leases.active == 1
    await there.release(A, grant)
    await until(lambda: here.leases.active == 0)


async def test_a_restart_knows_what_others_hold(stores: list[Store], pair: tuple[Plane, Plane]) -> None:
    here, _ = pair
    grant = await here.acquire(A)

    async with open_plane(stores[1], SystemClock()) as restarted:
        assert restarted.leases.active == 1  # It may have been its own.
        await here.release(A, grant)
        await until(lambda: restarted.leases.active == 0)


async def test_a_process_that_serves_no_leases_follows_only_what_it_granted(stores: list[Store]) -> None:
    """As the queue's process, which leases the states of messages: the leases of others are none of its work."""
    async with (
        open_plane(stores[0], SystemClock()) as here,
        open_plane(stores[1], SystemClock(), follows_all=False) as queue,
    ):
        theirs = await here.acquire(A)
        own = A._replace(key="own")
        granted = await queue.acquire(own)

        await here.release(own, granted)  # Told after the lease on A.

        await until(lambda: queue.leases.active == 0)
        assert len(queue.leases._follower.remote_expiries) == 0
        await here.release(A, theirs)
