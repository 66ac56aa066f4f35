"""Migrations: applied once, by the process that comes first, and refused by a program that is too old."""

import asyncio

import asyncpg
import pytest
import sqlalchemy as sa

from holdfast.storage.errors import StorageError
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from holdfast.storage.postgres.connection import Connections
from holdfast.storage.postgres.migration import Migration, load_migrations, migrate, migrate_url
from holdfast.storage.postgres.store import open_postgres
from holdfast.storage.postgres.tables import METADATA
from holdfast.storage.postgres.url import parse_url


async def schema_exists(url: str) -> bool:
    parsed = parse_url(url)
    connection = await asyncpg.connect(parsed.dsn)
    try:
        return bool(await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", parsed.schema))
    finally:
        await connection.close()


def test_versions_count_up_from_one_without_a_gap() -> None:
    migrations = load_migrations()

    assert [migration.version for migration in migrations] == list(range(1, len(migrations) + 1))


async def test_a_dry_run_tells_everything_and_changes_nothing(postgres_url: str) -> None:
    told = await migrate_url(postgres_url, is_dry_run=True)

    assert told == load_migrations()
    assert not await schema_exists(postgres_url)


async def test_migrations_are_applied_once(postgres_url: str) -> None:
    first = await migrate_url(postgres_url, is_dry_run=False)
    second = await migrate_url(postgres_url, is_dry_run=False)

    assert first == load_migrations()
    assert second == []
    assert await migrate_url(postgres_url, is_dry_run=True) == []


async def test_an_open_store_has_all_migrations(postgres_url: str) -> None:
    async with open_postgres(postgres_url, StoreOptions()):
        assert await migrate_url(postgres_url, is_dry_run=True) == []


async def test_many_starters_at_once_apply_each_migration_once(postgres_url: str) -> None:
    applied = await asyncio.gather(*(migrate_url(postgres_url, is_dry_run=False) for _ in range(6)))

    assert sorted(len(migrations) for migrations in applied) == [0, 0, 0, 0, 0, len(load_migrations())]


async def test_a_migration_that_fails_leaves_nothing_behind(postgres_url: str) -> None:
    parsed = parse_url(postgres_url)
    connections = Connections(parsed, connections_max=3)
    broken = [*load_migrations(), Migration(99, "broken", "CREATE TABLE half (); SELECT no_such_function()")]

    with pytest.raises(StorageError, match="no_such_function"):
        await migrate(connections, parsed.schema, migrations=broken)

    await connections.close()
    assert not await schema_exists(postgres_url)


async def test_a_database_of_a_newer_release_is_refused(postgres_url: str) -> None:
    parsed = parse_url(postgres_url)
    connections = Connections(parsed, connections_max=3)
    newer = Migration(99, "newer", "SELECT 1")
    await migrate(connections, parsed.schema, migrations=[*load_migrations(), newer])
    await connections.close()

    with pytest.raises(StorageError, match="newer release; upgrade"):
        async with open_postgres(postgres_url, StoreOptions()):
            pass


async def test_the_tables_are_what_sqlalchemy_believes(postgres_url: str) -> None:
    parsed = parse_url(postgres_url)
    connections = Connections(parsed, connections_max=3)
    await migrate(connections, parsed.schema)

    def described(connection: sa.Connection) -> dict[str, dict[str, tuple[str, bool]]]:
        inspector = sa.inspect(connection)
        return {
            table: {
                column["name"]: (column["type"].compile(connection.dialect), bool(column["nullable"]))
                for column in inspector.get_columns(table, schema=parsed.schema)
            }
            for table in inspector.get_table_names(schema=parsed.schema)
        }

    async with connections.use_core() as connection:
        found = await connection.run_sync(described)
        dialect = connection.dialect
    await connections.close()

    assert found == {
        table.name: {
            column.name: (column.type.compile(dialect), bool(column.nullable)) for column in table.columns
        }
        for table in METADATA.tables.values()
    }


async def test_two_schemas_of_one_database_are_two_stores(postgres_url: str) -> None:
    other_url = f"{postgres_url}_b"
    async with (
        open_postgres(postgres_url, StoreOptions()) as one,
        open_postgres(other_url, StoreOptions()) as two,
    ):
        await one.commit(Batch(puts={b"a": b"1"}))

        assert await two.get(b"a") is None
        assert two.revision == 0

    parsed = parse_url(other_url)
    connection = await asyncpg.connect(parsed.dsn)
    await connection.execute(f'SET client_min_messages = warning; DROP SCHEMA "{parsed.schema}" CASCADE')
    await connection.close()
