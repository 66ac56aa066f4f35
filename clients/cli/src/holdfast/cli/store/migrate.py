"""What `holdfast store migrate` does and tells."""

from holdfast.storage.postgres.migration import Migration, migrate_url

_SCHEMELESS = ("mem://", "disk://")


async def migrate_store(url: str, *, is_dry_run: bool) -> list[Migration]:
    """Bring the schema of a PostgreSQL store up to date, or find what that would do; other stores have none."""
    return [] if url.startswith(_SCHEMELESS) else await migrate_url(url, is_dry_run=is_dry_run)


def members_of(migrations: list[Migration], *, is_dry_run: bool) -> dict[str, object]:
    return {"dry_run": is_dry_run, "migrations": [item._asdict() for item in migrations]}


def text_of(migrations: list[Migration], *, is_dry_run: bool) -> str:
    if not migrations:
        return "nothing to migrate: the store is up to date"
    if not is_dry_run:
        return "\n".join(f"applied {item.version:04} {item.name}" for item in migrations)
    return "\n".join(f"-- would apply {item.version:04} {item.name}\n{item.sql}" for item in migrations)
