"""History is dropped by age and by number, and never more than that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import asyncpg
import pytest

from holdfast.common.clock import FakeClock
from holdfast.storage.errors import Compacted, Conflict
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, RangeExpectation, Store
from holdfast.storage.postgres.store import open_postgres
from holdfast.storage.postgres.url import parse_url

AGE_S = 60.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def opened(url: str, clock: FakeClock, revisions_max: int = 1000) -> AbstractAsyncContextManager[Store]:
    return open_postgres(
        url, StoreOptions(clock=clock, history_age_s_max=AGE_S, history_revisions_max=revisions_max)
    )


@pytest.fixture
async def store(postgres_url: str, clock: FakeClock) -> AsyncIterator[Store]:
    async with opened(postgres_url, clock) as store:
        yield store


async def put(store: Store, count: int) -> None:
    for n in range(count):
        await store.commit(Batch(puts={b"k": b"%d" % n}))


async def test_a_revision_that_changed_nothing_does_not_age_before_its_time(store: Store) -> None:
    await store.commit(Batch(deletes={b"never there"}))
    await put(store, 1)

    assert await store.compact() == 0
    async with store.watch(b"", None, after=0) as watch:
        assert [event.revision for event in await anext(watch)] == [2]


async def test_history_is_dropped_by_age(store: Store, clock: FakeClock) -> None:
    await put(store, 3)
    clock.advance(AGE_S)
    await put(store, 2)

    assert await store.compact() == 3
    with pytest.raises(Compacted) as refused:
        await anext(store.watch(b"", None, after=2))
    assert refused.value.oldest_revision == 3


async def test_history_is_dropped_by_number(postgres_url: str, clock: FakeClock) -> None:
    async with opened(postgres_url, clock, revisions_max=4) as store:
        await put(store, 10)

        assert await store.compact() == 6


async def test_history_that_is_all_old_is_all_dropped(store: Store, clock: FakeClock) -> None:
    await put(store, 3)
    clock.advance(AGE_S)

    assert await store.compact() == 3
    assert await store.compact() == 3


async def test_a_range_expectation_older_than_the_history_is_a_conflict(
    store: Store, clock: FakeClock
) -> None:
    await put(store, 3)
    clock.advance(AGE_S)
    await store.compact()

    old = Batch(expect_ranges=[RangeExpectation(b"x", b"y", 2)])
    still_known = Batch(expect_ranges=[RangeExpectation(b"x", b"y", 3)])

    assert await store.commit(still_known) == 3
    with pytest.raises(Conflict):
        await store.commit(old)


async def test_commit_ids_are_forgotten_after_an_hour(store: Store, postgres_url: str) -> None:
    await put(store, 1)
    parsed = parse_url(postgres_url)
    connection = await asyncpg.connect(parsed.dsn, server_settings={"search_path": parsed.schema})
    await connection.execute(
        "INSERT INTO commits (commit_id, revision, revisions)"
        " SELECT '00000000-0000-7000-8000-000000000000', revision, revisions FROM commits"
    )

    await store.compact()

    assert await connection.fetchval("SELECT count(*) FROM commits") == 1
    await connection.close()


async def test_a_commit_during_a_compaction_keeps_its_history(store: Store, clock: FakeClock) -> None:
    for _ in range(30):
        await put(store, 1)
        clock.advance(AGE_S)
        await store.compact()
        before = store.revision

        compacted_revision, _ = await asyncio.gather(store.compact(), put(store, 1))

        assert compacted_revision <= before
        async with store.watch(b"", None, after=before) as watch:
            assert [event.revision for event in await anext(watch)] == [before + 1]
