"""Blobs: a row that says a blob is whole, and its content in rows of 256 KiB each."""

import hashlib
import uuid
import zlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import sqlalchemy as sa

from holdfast.common.clock import Clock
from holdfast.storage.blob import checked_end, checked_id
from holdfast.storage.errors import BlobNotFound, InvalidBatch, StorageError, StoreCorrupt
from holdfast.storage.port import BlobInfo, BlobRef
from holdfast.storage.postgres.connection import Connections
from holdfast.storage.postgres.tables import BLOB_REFS, BLOBS

CHUNK_BYTES = 256 << 10
LIST_PAGE_BLOBS = 500
SWEEP_PAGE_BLOBS = 100

_ADD_CHUNK = "INSERT INTO blob_chunks (blob_id, seq, data, crc32) VALUES ($1, $2, $3, $4)"
_BEGIN = "INSERT INTO blobs (id, created_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING RETURNING id"
_REMOVE = (
    "DELETE FROM blobs b WHERE b.id = $1 "
    "AND NOT EXISTS (SELECT FROM blob_refs r WHERE r.blob_id = b.id) RETURNING b.id"
)
_READ_CHUNK = "SELECT data, crc32 FROM blob_chunks WHERE blob_id = $1 AND seq = $2"


class PostgresBlobs:
    """The `BlobStore` of the port."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock

    def create(self, *, context: str = "", blob_id: str | None = None) -> "PostgresBlobWriter":
        new_id = str(uuid.uuid4()) if blob_id is None else checked_id(blob_id)
        return PostgresBlobWriter(self._connections, self._clock, new_id)

    async def read(
        self, ref: BlobRef, *, context: str = "", start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        position, end = start, checked_end(ref, start, end)
        size_bytes = await self._size_bytes(ref.id)
        while position < end:
            seq, offset = divmod(position, CHUNK_BYTES)
            chunk = (await self._chunk(ref.id, seq))[offset : offset + end - position]
            if not chunk:
                raise StoreCorrupt(f"blob {ref.id} ends at byte {position} of {size_bytes}; restore a backup")
            yield chunk
            position += len(chunk)

    async def info(self, blob_id: str) -> BlobInfo | None:
        async with self._connections.use_core() as connection:
            found = await connection.execute(_finished().where(BLOBS.c.id == blob_id))
            row = found.one_or_none()
        return None if row is None else _info(row)

    async def list(self) -> AsyncIterator[BlobInfo]:
        last_id = ""
        while True:
            page = _finished().where(BLOBS.c.id > last_id).order_by(BLOBS.c.id).limit(LIST_PAGE_BLOBS)
            async with self._connections.use_core() as connection:
                infos = [_info(row) for row in await connection.execute(page)]
            for info in infos:
                yield info
            if len(infos) < LIST_PAGE_BLOBS:
                return
            last_id = infos[-1].id

    async def remove(self, blob_id: str) -> bool:
        async with self._connections.use() as connection, connection.transaction():
            # Two steps, as in the sweep: a commit that refers to the blob is waited for, and then seen.
            await connection.execute("SELECT FROM blobs WHERE id = $1 FOR UPDATE", blob_id)
            removed = await connection.fetchval(_REMOVE, blob_id)
        return removed is not None

    async def sweep(self, *, grace_s: float) -> int:
        """Unfinished blobs go too once they are older than `grace_s`; they are not counted."""
        before = datetime.fromtimestamp(self._clock.wall_s(), UTC) - timedelta(seconds=grace_s)
        swept, last_id = 0, ""
        while True:
            page = await self._sweep_page(before, last_id)
            if not page:
                return swept
            swept += sum(1 for _, was_finished in page if was_finished)
            last_id = max(blob_id for blob_id, _ in page)

    async def _sweep_page(self, before: datetime, last_id: str) -> Sequence[tuple[str, bool]]:
        is_referred = sa.exists().where(BLOB_REFS.c.blob_id == BLOBS.c.id)
        candidates = (
            sa.select(BLOBS.c.id)
            .where(BLOBS.c.id > last_id, BLOBS.c.created_at <= before, ~is_referred)
            .order_by(BLOBS.c.id)
            .limit(SWEEP_PAGE_BLOBS)
            .with_for_update(skip_locked=True)
        )
        async with self._connections.use_core() as connection:
            ids = list(await connection.scalars(candidates))
            # Two steps: a commit may have referred to one before it was locked, and this statement sees that.
            removal = (
                sa.delete(BLOBS)
                .where(BLOBS.c.id.in_(ids), ~is_referred)
                .returning(BLOBS.c.id, BLOBS.c.size_bytes)
            )
            removed = {row.id: row.size_bytes is not None for row in await connection.execute(removal)}
        return [(blob_id, removed.get(blob_id, False)) for blob_id in ids]

    async def _size_bytes(self, blob_id: str) -> int:
        async with self._connections.use() as connection:
            size_bytes = await connection.fetchval("SELECT size_bytes FROM blobs WHERE id = $1", blob_id)
        if size_bytes is None:
            raise BlobNotFound(f"blob {blob_id} does not exist: never finished, or swept")
        return int(size_bytes)

    async def _chunk(self, blob_id: str, seq: int) -> bytes:
        async with self._connections.use() as connection:
            row = await connection.fetchrow(_READ_CHUNK, blob_id, seq)
        if row is None:
            await self._size_bytes(blob_id)  # Swept under the reader: BlobNotFound.
            raise StoreCorrupt(f"blob {blob_id} lacks its chunk {seq}; restore a backup")
        data, crc32 = row
        if zlib.crc32(data) != crc32:
            raise StoreCorrupt(f"chunk {seq} of blob {blob_id} fails its checksum; restore a backup")
        return bytes(data)


class PostgresBlobWriter:
    """The `BlobWriter` of the port. Holds a connection only while a chunk is written."""

    def __init__(self, connections: Connections, clock: Clock, blob_id: str) -> None:
        self._connections = connections
        self._clock = clock
        self._id = blob_id
        self._buffer = bytearray()
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self._chunk_count = 0
        self._is_finished = False

    async def __aenter__(self) -> Self:
        created_at = datetime.fromtimestamp(self._clock.wall_s(), UTC)
        async with self._connections.use() as connection:
            begun = await connection.fetchval(_BEGIN, self._id, created_at)
        if begun is None:
            raise InvalidBatch(f"blob {self._id} exists already")
        return self

    async def write(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self._size_bytes += len(chunk)
        for start in range(0, len(chunk), CHUNK_BYTES):
            self._buffer += chunk[start : start + CHUNK_BYTES]
            if len(self._buffer) >= CHUNK_BYTES:
                await self._flush(CHUNK_BYTES)

    async def finish(self) -> BlobRef:
        if self._buffer:
            await self._flush(len(self._buffer))
        async with self._connections.use() as connection:
            found = await connection.fetchval(
                "UPDATE blobs SET size_bytes = $2 WHERE id = $1 RETURNING id", self._id, self._size_bytes
            )
        if found is None:
            raise BlobNotFound(f"blob {self._id} was swept while it was written; write it again")
        self._is_finished = True
        return BlobRef(id=self._id, size_bytes=self._size_bytes, sha256=self._hash.digest())

    async def __aexit__(self, *exc: object) -> None:
        if self._is_finished:
            return
        try:
            async with self._connections.use() as connection:
                await connection.execute("DELETE FROM blobs WHERE id = $1", self._id)
        except StorageError:
            return  # The sweep removes it later.

    async def _flush(self, size_bytes: int) -> None:
        data = bytes(self._buffer[:size_bytes])
        async with self._connections.use() as connection:
            await connection.execute(_ADD_CHUNK, self._id, self._chunk_count, data, zlib.crc32(data))
        del self._buffer[:size_bytes]
        self._chunk_count += 1


def _finished() -> sa.Select[Any]:
    return sa.select(BLOBS).where(BLOBS.c.size_bytes.is_not(None))


def _info(row: sa.Row[Any]) -> BlobInfo:
    return BlobInfo(row.id, row.size_bytes, row.created_at.timestamp())
