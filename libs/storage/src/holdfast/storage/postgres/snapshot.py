"""Snapshots read every record as of one moment; restore fills an empty store with one."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from holdfast.storage.errors import BlobNotFound, InvalidBatch
from holdfast.storage.port import Event, Record, SnapshotRecord
from holdfast.storage.postgres.connection import Connections, Cursor, RawConnection, Row
from holdfast.storage.postgres.fault import FOREIGN_ERRORS, translate
from holdfast.storage.postgres.feed.follower import change_event

PAGE_BYTES = 4 << 20
PAGE_RECORDS_FIRST = 16  # Values may be large: begin small, then aim at PAGE_BYTES.
PAGE_RECORDS_MAX = 2000

_ALL = "SELECT key, value, create_revision, mod_revision, version, blobs FROM records ORDER BY key"
_CHANGES = """
SELECT revision, key, value, create_revision, version,
    prev_value, prev_create_revision, prev_mod_revision, prev_version
FROM changes WHERE revision > $1 ORDER BY revision, seq
"""
_COUNT = "SELECT greatest(0, reltuples)::bigint FROM pg_class WHERE oid = 'records'::regclass"
# Held until the transaction ends, however it ends: blobs that the snapshot refers to are not removed meanwhile.
_LOCK = "1751215333, 'store'::regclass::oid::bigint::bit(32)::integer"
HOLD_BLOBS = f"SELECT pg_advisory_xact_lock_shared({_LOCK})"
IS_SNAPSHOT_OPEN = (
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 1751215333 "
    "AND objid = 'store'::regclass::oid "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)
_RECORD_COLUMNS = ("key", "value", "create_revision", "mod_revision", "version", "blobs")


class PostgresSnapshot:
    """The `Snapshot` of the port, inside one repeatable-read transaction."""

    def __init__(
        self, connection: RawConnection, revision: int, compacted_revision: int, record_count: int
    ) -> None:
        self.revision = revision
        self.compacted_revision = compacted_revision
        self.record_count = record_count
        self._connection = connection

    async def records(self) -> AsyncIterator[Sequence[SnapshotRecord]]:
        async for rows in self._pages(_ALL, sized=(1,)):
            yield [SnapshotRecord(Record(*row[:5]), tuple(row[5] or ())) for row in rows]

    async def changes(self) -> AsyncIterator[Sequence[Event]]:
        async for rows in self._pages(_CHANGES, self.compacted_revision, sized=(2, 5)):
            yield [change_event(row) for row in rows]

    async def _pages(self, query: str, *arguments: object, sized: Sequence[int]) -> AsyncIterator[list[Row]]:
        """Rows in pages of about PAGE_BYTES, judged by the columns `sized`."""
        cursor: Cursor | None = None
        count = PAGE_RECORDS_FIRST
        while True:
            try:
                cursor = cursor or await self._connection.cursor(query, *arguments)
                rows = await cursor.fetch(count)
            except FOREIGN_ERRORS as error:
                raise translate(error) from error
            if not rows:
                return
            yield rows
            mean_bytes = 1 + sum(len(row[column] or b"") for row in rows for column in sized) // len(rows)
            count = max(1, min(PAGE_RECORDS_MAX, count * 4, PAGE_BYTES // mean_bytes))


@asynccontextmanager
async def take_snapshot(connections: Connections) -> AsyncGenerator[PostgresSnapshot, None]:
    of_caller: BaseException | None = None
    async with (
        connections.use() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        await connection.execute(HOLD_BLOBS)
        row = await connection.fetchrow("SELECT revision, compacted_revision FROM store")
        assert row is not None, "the migration wrote it"
        revision, compacted_revision = row
        record_count = await connection.fetchval(_COUNT)
        try:
            yield PostgresSnapshot(connection, revision, compacted_revision, record_count)
        except BaseException as error:  # noqa: BLE001 - raised again below, where it is not taken for a database's.
            of_caller = error
    if of_caller is not None:
        raise of_caller


class _PagesFailed(Exception):
    """Carries an error of the caller's pages past the place where errors are taken for the database's."""


async def restore(
    connections: Connections, revision: int, pages: AsyncIterable[Sequence[SnapshotRecord]]
) -> None:
    """All of it or nothing. Writers wait meanwhile."""
    try:
        async with connections.use() as connection, connection.transaction():
            await connection.execute("SELECT queue_writer()")
            if await connection.fetchval("SELECT revision > 0 OR EXISTS (SELECT FROM records) FROM store"):
                raise InvalidBatch("the store is not empty; restore into a new schema or database")
            async for page in _pages_of_caller(pages):
                await _restore_page(connection, page)
            await connection.execute("UPDATE store SET revision = $1, compacted_revision = $1", revision)
    except _PagesFailed as failed:
        assert failed.__cause__ is not None
        raise failed.__cause__ from None


async def _pages_of_caller(
    pages: AsyncIterable[Sequence[SnapshotRecord]],
) -> AsyncIterator[Sequence[SnapshotRecord]]:
    try:
        async for page in pages:
            yield page
    except FOREIGN_ERRORS as error:
        raise _PagesFailed from error


async def _restore_page(connection: RawConnection, page: Sequence[SnapshotRecord]) -> None:
    rows = [(*record, list(blobs) or None) for record, blobs in page]
    await connection.copy_records_to_table("records", records=rows, columns=_RECORD_COLUMNS)
    references = sorted({(record.key, blob_id) for record, blobs in page for blob_id in blobs})
    if not references:
        return
    wanted = list({blob_id for _, blob_id in references})
    query = (
        "SELECT id FROM unnest($1::text[]) AS w(id) WHERE NOT EXISTS (SELECT FROM blobs b WHERE b.id = w.id)"
    )
    missing = await connection.fetchval(query, wanted)
    if missing is not None:
        raise BlobNotFound(f"blob {missing} of the snapshot is not in this store; restore the blobs first")
    await connection.copy_records_to_table("blob_refs", records=references, columns=("key", "blob_id"))
