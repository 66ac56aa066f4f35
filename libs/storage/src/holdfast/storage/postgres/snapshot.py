"""Snapshots read every record as of one moment; restore fills an empty store with one."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from holdfast.storage.errors import BlobNotFound, InvalidBatch
from holdfast.storage.port import Record, SnapshotRecord
from holdfast.storage.postgres.connection import Connections, Cursor, RawConnection
from holdfast.storage.postgres.fault import FOREIGN_ERRORS, translate

PAGE_BYTES = 4 << 20
PAGE_RECORDS_FIRST = 16  # Values may be large: begin small, then aim at PAGE_BYTES.
PAGE_RECORDS_MAX = 2000

_ALL = "SELECT key, value, create_revision, mod_revision, version, blobs FROM records ORDER BY key"
_COUNT = "SELECT greatest(0, reltuples)::bigint FROM pg_class WHERE oid = 'records'::regclass"
_RECORD_COLUMNS = ("key", "value", "create_revision", "mod_revision", "version", "blobs")


class PostgresSnapshot:
    """The `Snapshot` of the port, inside one repeatable-read transaction."""

    def __init__(self, connection: RawConnection, revision: int, record_count: int) -> None:
        self.revision = revision
        self.record_count = record_count
        self._connection = connection

    async def records(self) -> AsyncIterator[Sequence[SnapshotRecord]]:
        cursor: Cursor | None = None
        count = PAGE_RECORDS_FIRST
        while True:
            try:
                cursor = cursor or await self._connection.cursor(_ALL)
                rows = await cursor.fetch(count)
            except FOREIGN_ERRORS as error:
                raise translate(error) from error
            if not rows:
                return
            yield [SnapshotRecord(Record(*row[:5]), tuple(row[5] or ())) for row in rows]
            mean_bytes = 1 + sum(len(row[1]) for row in rows) // len(rows)
            count = max(1, min(PAGE_RECORDS_MAX, count * 4, PAGE_BYTES // mean_bytes))


@asynccontextmanager
async def take_snapshot(connections: Connections) -> AsyncGenerator[PostgresSnapshot, None]:
    of_caller: BaseException | None = None
    async with (
        connections.use() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        revision = await connection.fetchval("SELECT revision FROM store")
        record_count = await connection.fetchval(_COUNT)
        try:
            yield PostgresSnapshot(connection, revision, record_count)
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
