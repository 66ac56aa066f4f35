"""Calls of the asynchronous client take turns, and connections are kept in small pools side by side."""

import asyncio
from contextlib import AsyncExitStack

import httpx
import pytest

from holdfast.client.aio.pool import SHARD_CONNECTIONS, CallPool, TurnMissed


class Opened:
    """What a pool opened, by number."""

    def __init__(self) -> None:
        self.clients: list[httpx.AsyncClient] = []

    def open(self, number: int) -> httpx.AsyncClient:
        assert number == len(self.clients)
        self.clients.append(httpx.AsyncClient())
        return self.clients[-1]


@pytest.fixture
def opened() -> Opened:
    return Opened()


async def test_a_pool_is_opened_when_the_others_are_busy_and_the_first_free_one_is_used(
    opened: Opened,
) -> None:
    pool = CallPool(opened.open, 100)

    async with AsyncExitStack() as calls:
        first = [await calls.enter_async_context(pool.client(1)) for _ in range(SHARD_CONNECTIONS)]
        second = await calls.enter_async_context(pool.client(1))
    async with pool.client(1) as again:
        pass
    await pool.aclose()

    assert set(first) == {opened.clients[0]}
    assert (second, again) == (opened.clients[1], opened.clients[0])
    assert [client.is_closed for client in opened.clients] == [True, True]


async def test_calls_beyond_the_bound_wait_for_their_turn_in_order(opened: Opened) -> None:
    pool = CallPool(opened.open, 2)
    begun: list[int] = []
    go_on = asyncio.Event()

    async def call(number: int) -> None:
        async with pool.client(None):
            begun.append(number)
            await go_on.wait()

    tasks = [asyncio.create_task(call(number)) for number in range(4)]
    await asyncio.sleep(0)
    before = list(begun)
    go_on.set()
    await asyncio.gather(*tasks)

    assert (before, begun) == ([0, 1], [0, 1, 2, 3])


async def test_a_turn_that_does_not_come_in_time_is_an_error_and_takes_no_place(opened: Opened) -> None:
    pool = CallPool(opened.open, 1)

    async with pool.client(1):
        with pytest.raises(TurnMissed):
            async with pool.client(0.01):
                raise AssertionError("it is not its turn")
    async with pool.client(1):
        pass


async def test_a_call_that_waits_at_the_server_keeps_no_other_from_beginning(opened: Opened) -> None:
    pool = CallPool(opened.open, 100, may_wait=True)

    async with AsyncExitStack() as calls:
        async with asyncio.timeout(30):
            for _ in range(100):
                await calls.enter_async_context(pool.client(30))
    async with pool.client(1):
        pass

    assert len(opened.clients) == -(-100 // SHARD_CONNECTIONS)


async def test_a_cancelled_call_gives_its_place_back(opened: Opened) -> None:
    pool = CallPool(opened.open, 1, may_wait=True)

    async def call() -> None:
        async with pool.client(None):
            await asyncio.Event().wait()

    running, waiting = asyncio.create_task(call()), asyncio.create_task(call())
    await asyncio.sleep(0)
    for task in (waiting, running):
        task.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)

    async with pool.client(1):
        pass


async def test_a_call_whose_turn_comes_after_the_end_is_refused(opened: Opened) -> None:
    pool = CallPool(opened.open, 1)
    async with pool.client(1):
        waiting = asyncio.create_task(pool.client(None).__aenter__())
        await asyncio.sleep(0)
        await pool.aclose()

    with pytest.raises(RuntimeError, match="closed"):
        await waiting
