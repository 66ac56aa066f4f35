"""The past on PostgreSQL: also what was written before the index of it existed, and by other processes."""

import asyncio

import asyncpg
import pytest

from holdfast.storage.errors import Compacted, FutureRevision
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store
from holdfast.storage.postgres import migration
from holdfast.storage.postgres.store import open_postgres
from holdfast.storage.postgres.url import parse_url

# So rarely that nothing comes by itself within a test.
FAR_APART = StoreOptions(postgres_poll_interval_s=600, compact_interval_s=600)


async def put(store: Store, key: bytes, count: int) -> None:
    for number in range(count):
        await store.commit(Batch(puts={key: b"%d" % number}))


async def test_history_of_an_older_schema_is_readable_after_its_migration(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = [known for known in migration.load_migrations() if known.name != "past"]
    with monkeypatch.context() as patched:
        patched.setattr(migration, "load_migrations", lambda: older)
        async with open_postgres(postgres_url, FAR_APART) as store:
            await put(store, b"k", 3)
            await store.commit(Batch(deletes={b"k"}))

    async with open_postgres(postgres_url, FAR_APART) as store:
        found = [await store.get(b"k", at_revision=revision) for revision in range(5)]
        ranges = [await store.range(b"", None, limit=9, at_revision=revision) for revision in range(5)]

    assert [record and (record.value, record.version) for record in found] == [
        None,
        (b"0", 1),
        (b"1", 2),
        (b"2", 3),
        None,
    ]
    assert ranges == [[record] if record else [] for record in found]


async def test_a_revision_that_another_process_committed_can_be_read_at_once(postgres_url: str) -> None:
    async with (
        open_postgres(postgres_url, FAR_APART) as one,
        open_postgres(postgres_url, FAR_APART) as two,
    ):
        await put(one, b"k", 3)

        record = await two.get(b"k", at_revision=2)

        assert record is not None
        assert record.value == b"1"
        assert [r.value for r in await two.range(b"", None, limit=9, at_revision=3)] == [b"2"]
        with pytest.raises(FutureRevision) as refused:
            await two.get(b"k", at_revision=4)
        assert refused.value.newest_revision == 3


async def test_a_compaction_by_another_process_is_told(postgres_url: str) -> None:
    async with (
        open_postgres(postgres_url, FAR_APART) as one,
        open_postgres(postgres_url, FAR_APART) as two,
    ):
        await put(one, b"k", 3)
        await one.compact(2)

        with pytest.raises(Compacted) as refused:
            await two.get(b"k", at_revision=1)

        assert refused.value.oldest_revision == two.compacted_revision == 2
        assert await two.get(b"k", at_revision=2) == await one.get(b"k", at_revision=2)


async def test_of_two_processes_that_compact_at_once_one_is_told_that_it_was_done(postgres_url: str) -> None:
    async with (
        open_postgres(postgres_url, FAR_APART) as one,
        open_postgres(postgres_url, FAR_APART) as two,
    ):
        for revision in range(2, 12):
            await put(one, b"k", 1)
            if revision % 2:
                continue

            answers = await asyncio.gather(
                one.compact(revision - 1), two.compact(revision - 1), return_exceptions=True
            )

            assert sorted(type(answer).__name__ for answer in answers) == ["Compacted", "int"]


async def test_reads_during_commits_and_compactions_of_another_process_are_right_or_refused(
    postgres_url: str,
) -> None:
    keys = [b"%02d" % number for number in range(20)]
    async with (
        open_postgres(postgres_url, FAR_APART) as one,
        open_postgres(postgres_url, FAR_APART) as two,
    ):
        is_written = asyncio.Event()

        async def write() -> None:
            for number in range(120):
                await one.commit(Batch(puts=dict.fromkeys(keys, b"%d" % number)))
                if number % 10 == 9:
                    await one.compact(one.revision - 5)
            is_written.set()

        writer = asyncio.ensure_future(write())
        refused = read = 0
        while not is_written.is_set():
            revision = max(1, one.revision - 8)
            try:
                found = await two.range(b"", None, limit=100, at_revision=revision)
            except (Compacted, FutureRevision):
                refused += 1
                continue
            assert [(r.key, r.mod_revision, r.version) for r in found] == [
                (k, revision, revision) for k in keys
            ]
            read += 1
        await writer

        assert read
        assert refused


async def test_a_key_is_found_in_the_history_by_the_index(postgres_url: str) -> None:
    async with open_postgres(postgres_url, FAR_APART) as store:
        await asyncio.gather(*(put(store, b"%d" % number, 20) for number in range(100)))
    parsed = parse_url(postgres_url)
    connection = await asyncpg.connect(parsed.dsn, server_settings={"search_path": parsed.schema})
    await connection.execute("ANALYZE changes")

    plan = await connection.fetch(
        "EXPLAIN SELECT FROM changes WHERE md5(key) COLLATE \"C\" = md5('7'::bytea) AND revision > 1000"
        " AND key = '7' ORDER BY revision LIMIT 1"
    )
    await connection.close()

    assert any("changes_of_key" in line for [line] in plan)
