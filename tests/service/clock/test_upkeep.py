"""What is cut off by age is cut off by the time of the store: a process with a wrong clock takes nothing from others."""

import asyncio
import uuid

import asyncpg

from holdfast.storage.port import Batch, Store
from holdfast.storage.postgres.url import parse_url
from tests.service.clock.test_database_time import opened

DAYS_S = 10 * 24 * 3600.0


async def rows(url: str, query: str) -> list[asyncpg.Record]:
    parsed = parse_url(url)
    connection = await asyncpg.connect(parsed.dsn, server_settings={"search_path": parsed.schema})
    try:
        return list(await connection.fetch(query))
    finally:
        await connection.close()


async def commit(store: Store, count: int = 3) -> None:
    for number in range(count):
        await store.commit(Batch(puts={b"k%d" % number: b"v"}))


async def test_history_and_commit_ids_of_others_outlive_a_process_with_a_wrong_clock(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as right, opened(postgres_url, DAYS_S) as wrong:
        await commit(right)

        await wrong.compact()

        assert len(await rows(postgres_url, "SELECT 1 FROM changes")) == 3
        assert len(await rows(postgres_url, "SELECT 1 FROM commits")) == 3


async def test_commit_ids_carry_the_time_of_the_store(postgres_url: str) -> None:
    async with opened(postgres_url, -DAYS_S) as wrong:
        await commit(wrong, 1)

        [[commit_id]] = await rows(postgres_url, "SELECT commit_id FROM commits")
        at_s = (uuid.UUID(str(commit_id)).int >> 80) / 1000
        assert abs(at_s - wrong.clock.now_s()) < 60


async def test_blobs_of_others_outlive_a_process_with_a_wrong_clock(postgres_url: str) -> None:
    async with opened(postgres_url) as right, opened(postgres_url, DAYS_S) as wrong:
        async with right.blobs.create() as writer:
            await writer.write(b"content")
            ref = await writer.finish()

        assert await wrong.blobs.sweep(grace_s=3600) == 0
        assert await right.blobs.info(ref.id) is not None


async def test_a_listener_is_not_forgotten_because_of_a_wrong_clock(postgres_url: str) -> None:
    async with opened(postgres_url) as store, store.watch(b"a", b"b"):
        [right] = await listeners(postgres_url, 1)
        async with opened(postgres_url, DAYS_S) as wrong, wrong.watch(b"a", b"b"):
            await wrong.compact()
            assert right in await listeners(postgres_url, 2)


async def listeners(url: str, count: int) -> list[str]:
    """Who has registered, once there are so many."""
    async with asyncio.timeout(20):
        while len(found := await rows(url, "SELECT id FROM listeners")) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return [str(row[0]) for row in found]
