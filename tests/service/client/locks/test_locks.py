"""Locks and semaphores of both twins against a real plane."""

import asyncio
import threading
from functools import partial

import pytest

from holdfast.client import AsyncClient, Client, InvalidArgument, LeaseHeld, LeaseLost, RequestRefused
from holdfast.client.locks.calls import WantedLock
from tests.service.client.locks.conftest import Plane, started

WAIT_S = 30.0
POLL_S = 0.01


async def until_waiting(client: AsyncClient, key: str, count: int) -> None:
    while (view := await client.locks.describe(key)) is None or view.waiting != count:  # noqa: ASYNC110  # Seen over HTTP only.
        await asyncio.sleep(POLL_S)


async def free(client: AsyncClient, key: str) -> None:
    """As an operator does."""
    view = await client.locks.describe(key)
    assert view is not None
    assert await client.locks.force(view) == len(view.holders)


async def test_a_lock_is_held_in_its_block_and_free_after_it(async_client: AsyncClient) -> None:
    async with async_client.lock("block", owner="me") as lock:
        with pytest.raises(LeaseHeld):
            await async_client.lock("block", wait_s=0)
        view = await async_client.locks.describe("block")

    assert view is not None
    assert [(one.owner, one.fencing_token) for one in view.holders] == [("me", lock.fencing_token)]
    async with async_client.lock("block", wait_s=0) as next_lock:
        assert next_lock.fencing_token > lock.fencing_token


async def test_a_lock_is_renewed_at_a_third_of_its_lease(async_client: AsyncClient) -> None:
    async with async_client.lock("kept", ttl_s=1) as lock:
        with pytest.raises(LeaseHeld):
            await async_client.lock("kept", wait_s=2)

        assert not lock.lost.is_set()


async def test_a_lock_that_is_freed_by_force_is_lost_to_its_block(async_client: AsyncClient) -> None:
    lock = await async_client.lock("forced", ttl_s=1)

    with pytest.raises(LeaseLost):
        async with lock:
            await free(async_client, "forced")
            async with asyncio.timeout(WAIT_S):
                await lock.lost.wait()

    assert lock.lost_because is not None
    assert lock.lost_because.code == "lock_not_held"


async def test_a_wait_that_is_cancelled_leaves_the_queue(async_client: AsyncClient) -> None:
    async with async_client.lock("cancelled"):
        waiting = asyncio.ensure_future(async_client.locks.acquire(WantedLock(key="cancelled", wait_s=None)))
        await until_waiting(async_client, "cancelled", 1)

        waiting.cancel()

        await until_waiting(async_client, "cancelled", 0)


async def test_a_semaphore_has_so_many_slots(async_client: AsyncClient) -> None:
    async with async_client.semaphore("pool", 2), async_client.semaphore("pool", 2) as second:
        with pytest.raises(LeaseHeld):
            await async_client.semaphore("pool", 2, wait_s=0)
        with pytest.raises(RequestRefused, match="limit_mismatch"):
            await async_client.semaphore("pool", 3, wait_s=0)
        await second.release()
        async with async_client.semaphore("pool", 2, wait_s=0):
            pass


async def test_a_closed_client_holds_nothing(plane: Plane, async_client: AsyncClient) -> None:
    async with AsyncClient(plane.url) as other:
        await other.lock("closed")

    async with async_client.lock("closed", wait_s=0):
        pass


async def test_a_detached_lock_is_left_to_the_end_of_its_lease(async_client: AsyncClient) -> None:
    lock = await async_client.lock("detached", ttl_s=1)

    grant = lock.detach()

    async with async_client.lock("detached", wait_s=WAIT_S) as next_lock:
        assert next_lock.fencing_token > grant.fencing_token


async def test_a_decorated_function_runs_under_the_lock(async_client: AsyncClient) -> None:
    @async_client.locked("decorated")
    async def work(number: int) -> int:
        with pytest.raises(LeaseHeld):
            await async_client.lock("decorated", wait_s=0)
        return number + 1

    assert await work(1) == 2
    assert await work(number=2) == 3


async def test_a_decorated_function_is_cancelled_when_its_lock_is_lost(async_client: AsyncClient) -> None:
    is_cancelled = asyncio.Event()

    @async_client.locked("decorated-lost", ttl_s=1)
    async def work() -> None:
        try:
            await free(async_client, "decorated-lost")
            await asyncio.sleep(WAIT_S)
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    with pytest.raises(LeaseLost):
        await work()

    assert is_cancelled.is_set()


async def test_all_keys_are_listed_page_by_page(async_client: AsyncClient) -> None:
    locks = [await async_client.lock(f"listed/{number}") for number in range(3)]

    pages = await async_client.locks.page("listed/", limit=2)
    keys = [view.key async for view in async_client.locks.list("listed/")]

    assert len(pages.locks) == 2
    assert pages.cursor
    assert keys == [lock.key for lock in locks]


@pytest.mark.parametrize(
    ("limit", "ttl_s", "wait_s"), [(0, 30, 0), (1, 0, 0), (1, 30, -1), (1, float("inf"), 0)]
)
async def test_what_a_lock_cannot_be_is_refused_before_anything_is_sent(
    async_client: AsyncClient, limit: int, ttl_s: float, wait_s: float
) -> None:
    with pytest.raises(InvalidArgument):
        await async_client.semaphore("bad", limit, ttl_s=ttl_s, wait_s=wait_s)


def test_the_blocking_twin_takes_waits_and_releases(client: Client) -> None:
    with client.lock("sync", ttl_s=1) as lock:
        waiting = started(lambda: client.lock("sync", wait_s=WAIT_S))
        with pytest.raises(LeaseHeld):
            client.lock("sync", wait_s=2)
        assert not waiting.done()

    with waiting.result(WAIT_S) as next_lock:
        assert next_lock.fencing_token > lock.fencing_token
        assert not lock.lost.is_set()


def test_the_blocking_twin_tells_that_a_lock_is_lost(client: Client) -> None:
    lock = client.lock("sync-lost", ttl_s=1)

    with pytest.raises(LeaseLost), lock:
        view = client.locks.describe("sync-lost")
        assert view is not None
        assert client.locks.force(view) == 1
        assert lock.lost.wait(WAIT_S)


def test_the_blocking_decorator_excludes_threads(client: Client) -> None:
    inside: list[int] = []
    most = threading.Semaphore()

    @client.locked("sync-decorated", wait_s=WAIT_S)
    def work(number: int) -> int:
        assert most.acquire(blocking=False)
        inside.append(number)
        most.release()
        return number

    results = [started(partial(work, number)) for number in range(4)]

    assert sorted(one.result(WAIT_S) for one in results) == [0, 1, 2, 3]
    assert sorted(inside) == [0, 1, 2, 3]
