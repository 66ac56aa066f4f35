"""What PostgreSQL acknowledged survives its death; two faults that would break this are found by the same check."""

import asyncio
import secrets
from collections.abc import Iterator

import asyncpg
import pytest

from holdfast.storage.errors import StorageError
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from holdfast.storage.postgres import connection
from holdfast.storage.postgres.group import GroupCommitter
from holdfast.storage.postgres.store import open_postgres
from tests.infra.postgres import PostgresServer

COMMITS_BEFORE = 40
COMMITS_AFTER = 1
OPTIONS = StoreOptions(postgres_poll_interval_s=0.2, outcome_timeout_s=2.0)


@pytest.fixture
def url(own_postgres_server: PostgresServer) -> Iterator[str]:
    """A server that writes its log by itself only every ten seconds: what is not synced is lost for certain."""
    configure(own_postgres_server.url, "ALTER SYSTEM SET wal_writer_delay = '10s'")
    yield f"{own_postgres_server.url}?schema=durable_{secrets.token_hex(4)}"
    own_postgres_server.restart()
    configure(own_postgres_server.url, "ALTER SYSTEM RESET wal_writer_delay")


def configure(url: str, statement: str) -> None:
    async def run() -> None:
        connected = await asyncpg.connect(url, timeout=10)
        try:
            await connected.execute(statement)
            await connected.execute("SELECT pg_reload_conf()")
        finally:
            await connected.close()

    asyncio.run(run())


async def lost_by_a_kill(server: PostgresServer, url: str) -> list[bytes]:
    """Commit before and after the database is killed, and say what was acknowledged and is not there afterwards."""
    acknowledged: list[bytes] = []
    async with open_postgres(url, OPTIONS) as store:
        for number in range(COMMITS_BEFORE + COMMITS_AFTER):
            if number == COMMITS_BEFORE:
                await asyncio.to_thread(server.kill9)
            key = b"key/%d" % number
            try:
                await store.commit(Batch(puts={key: b"x"}))
                acknowledged.append(key)
            except StorageError:
                assert number >= COMMITS_BEFORE, "refused while the database was there"
    await asyncio.to_thread(server.restart)
    async with open_postgres(url, OPTIONS) as store:
        return [key for key in acknowledged if await store.get(key) is None]


async def test_nothing_acknowledged_is_lost(own_postgres_server: PostgresServer, url: str) -> None:
    assert await lost_by_a_kill(own_postgres_server, url) == []


async def test_the_mutant_that_skips_the_sync_is_caught(
    own_postgres_server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_DURABLE", "SELECT set_config('synchronous_commit', 'off', false)")

    assert await lost_by_a_kill(own_postgres_server, url) != []


async def test_the_mutant_that_answers_before_the_database_has_committed_is_caught(
    own_postgres_server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = GroupCommitter.commit
    under_way: list[asyncio.Task[int]] = []

    async def answer_at_once(self: GroupCommitter, batch: Batch) -> int:
        under_way.append(asyncio.create_task(commit(self, batch)))
        return 0

    monkeypatch.setattr(GroupCommitter, "commit", answer_at_once)

    assert await lost_by_a_kill(own_postgres_server, url) != []
    await asyncio.gather(*under_way, return_exceptions=True)
