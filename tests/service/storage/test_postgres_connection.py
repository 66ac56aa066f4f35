"""The connections of a store: each is free again, however its user was interrupted."""

import asyncio
import gc
from typing import Any

import pytest

from holdfast.storage.postgres.connection import Connections
from holdfast.storage.postgres.url import parse_url


@pytest.mark.parametrize("steps", range(6))
async def test_a_read_that_is_cancelled_twice_takes_no_connection_with_it(
    postgres_url: str, steps: int
) -> None:
    connections = Connections(parse_url(postgres_url), connections_max=3)  # One of them is for reads.
    has_begun = asyncio.Event()

    async def read() -> None:
        async with connections.use():
            has_begun.set()
            await asyncio.Event().wait()

    reading = asyncio.create_task(read())
    await has_begun.wait()
    reading.cancel()
    for _ in range(steps):
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

    async with asyncio.timeout(30), connections.use() as connection:
        assert await connection.fetchval("SELECT 1") == 1
    await connections.close()


async def test_a_connection_that_is_called_off_at_any_step_leaves_no_error_behind(postgres_url: str) -> None:
    loop = asyncio.get_running_loop()
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))

    for steps in range(60):
        connections = Connections(parse_url(postgres_url), connections_max=3)
        connecting = asyncio.create_task(connections.connect())
        for _ in range(steps):
            await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        await connections.close()
        del connecting, connections
    gc.collect()
    await asyncio.sleep(0)

    assert unseen == []
