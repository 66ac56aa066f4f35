"""`holdfast store migrate`: bring the schema of a PostgreSQL store up to date, or show what that would do."""

import asyncio
import json
from typing import Annotated

import typer

from holdfast.cli.output import Output, OutputFormat
from holdfast.storage.errors import StorageError
from holdfast.storage.postgres.migration import Migration, migrate_url

_SCHEMELESS = ("mem://", "disk://")


def migrate(
    url: Annotated[
        str, typer.Argument(help="Storage URL, such as postgres://user@host/database?schema=holdfast.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be applied, with its SQL; change nothing.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Apply the migrations that a store lacks. A store does this by itself when it is opened."""
    try:
        found = [] if url.startswith(_SCHEMELESS) else asyncio.run(migrate_url(url, is_dry_run=dry_run))
    except StorageError as error:
        typer.echo(f"holdfast: {error.detail}", err=True)
        raise typer.Exit(1) from None
    typer.echo(_as_json(found, dry_run) if output is OutputFormat.JSON else _as_text(found, dry_run))


def _as_json(migrations: list[Migration], dry_run: bool) -> str:
    rows = [{"version": item.version, "name": item.name, "sql": item.sql} for item in migrations]
    return json.dumps({"dry_run": dry_run, "migrations": rows}, indent=2)


def _as_text(migrations: list[Migration], dry_run: bool) -> str:
    if not migrations:
        return "nothing to migrate: the store is up to date"
    if not dry_run:
        return "\n".join(f"applied {item.version:04} {item.name}" for item in migrations)
    return "\n".join(f"-- would apply {item.version:04} {item.name}\n{item.sql}" for item in migrations)
