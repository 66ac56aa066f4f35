"""Steps of tests in which one store commits and another one on the same database watches."""

import asyncio

import asyncpg

from holdfast.storage.port import Batch, Store, Watch
from holdfast.storage.postgres.url import parse_url

TIMEOUT_S = 20


async def next_keys(watch: Watch) -> list[bytes]:
    async with asyncio.timeout(TIMEOUT_S):
        return [event.key for event in await anext(watch)]


async def on_database(url: str, statement: str) -> object:
    """What a statement returns: the first column of its first row, if it has one."""
    parsed = parse_url(url)
    connection = await asyncpg.connect(parsed.dsn, server_settings={"search_path": parsed.schema})
    try:
        if ";" in statement:
            return await connection.execute(statement)
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def until_listening(store: Store, writer: Store) -> None:
    """Write until the watching store hears of it by a hint."""
    async with asyncio.timeout(TIMEOUT_S), store.watch(b"ping", b"pinh") as watch:
        while True:
            await writer.commit(Batch(puts={b"ping": b""}))
            try:
                async with asyncio.timeout(0.2):
                    await anext(watch)
                    return
            except TimeoutError:
                continue
