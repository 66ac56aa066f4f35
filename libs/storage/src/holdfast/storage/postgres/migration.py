"""Migrations: numbered SQL files, applied in one transaction under an advisory lock."""

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from holdfast.storage.errors import StorageError
from holdfast.storage.postgres.connection import Connections, RawConnection
from holdfast.storage.postgres.fault import retried
from holdfast.storage.postgres.url import parse_url

OPEN_RETRY_S = 10.0  # Services may start before their database does.
_FILE_NAME = re.compile(r"^(\d{4})_(\w+)\.sql$")
_CREATE_VERSION_TABLE = """
CREATE TABLE IF NOT EXISTS schema_version (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class Migration(NamedTuple):
    """One numbered file of `migrations/`."""

    version: int
    name: str
    sql: str


def load_migrations() -> list[Migration]:
    """All migrations of this package, oldest first."""
    found: list[Migration] = []
    for file in files("holdfast.storage.postgres").joinpath("migrations").iterdir():
        match = _FILE_NAME.match(file.name)
        if match is not None:
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return sorted(found)


async def migrate(
    connections: Connections, schema: str, *, migrations: Sequence[Migration] | None = None
) -> list[Migration]:
    """Bring the schema up to date; returns what was applied. Any number of processes may call this at once."""
    known = load_migrations() if migrations is None else migrations
    async with connections.use() as connection:
        if not _pending(await _version(connection, schema), known):
            return []
        async with connection.transaction():
            # Held until the end of the transaction: a second starter waits, then finds nothing left to do.
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.' || $1, 0))", schema
            )
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            await connection.execute(_CREATE_VERSION_TABLE)
            pending = _pending(await _version(connection, schema), known)
            for migration in pending:
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO schema_version (version, name) VALUES ($1, $2)",
                    migration.version,
                    migration.name,
                )
    return pending


async def pending_migrations(connections: Connections, schema: str) -> list[Migration]:
    """What `migrate` would apply now; changes nothing."""
    async with connections.use() as connection:
        return _pending(await _version(connection, schema), load_migrations())


async def migrate_url(url: str, *, is_dry_run: bool) -> list[Migration]:
    """Migrate the store at `url`, or only tell what would be applied."""
    parsed = parse_url(url)
    connections = Connections(parsed, connections_max=3)
    step = pending_migrations if is_dry_run else migrate
    try:
        return await retried(lambda: step(connections, parsed.schema), for_s=OPEN_RETRY_S)
    finally:
        await connections.close()


async def _version(connection: RawConnection, schema: str) -> int:
    """The newest migration that the database has; 0 for a database that has none."""
    if await connection.fetchval("SELECT to_regclass($1)::text", f'"{schema}".schema_version') is None:
        return 0
    version = await connection.fetchval(f'SELECT coalesce(max(version), 0) FROM "{schema}".schema_version')
    return int(version)


def _pending(version: int, known: Sequence[Migration]) -> list[Migration]:
    newest = known[-1].version
    if version > newest:
        raise StorageError(
            f"the database has schema version {version}, this program knows {newest}: "
            "it was used by a newer release; upgrade this program"
        )
    return [migration for migration in known if migration.version > version]
