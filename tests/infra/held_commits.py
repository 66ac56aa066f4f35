"""Commits of a PostgreSQL store that wait in the database for as long as the test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg

from holdfast.storage.postgres.url import parse_url

_LOCK = "1751215332, 'store'::regclass::oid::bigint::bit(32)::integer"
"""Which the function commit_group takes first."""
_WAITING = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
    "AND classid = 1751215332 AND objid = 'store'::regclass::oid"
)


@asynccontextmanager
async def held_commits(url: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """No commit ends in the block; what it gives returns once one has begun."""
    parsed = parse_url(url)
    connection = await asyncpg.connect(parsed.dsn, server_settings={"search_path": parsed.schema})
    try:
        await connection.execute(f"SELECT pg_advisory_lock({_LOCK})")

        async def begun() -> None:
            async with asyncio.timeout(30):
                while True:
                    if await connection.fetchval(_WAITING):
                        return
                    await asyncio.sleep(0.01)

        yield begun
    finally:
        await connection.close()
