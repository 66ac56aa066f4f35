"""Blobs: a row that says a blob is whole, and its content in rows of 256 KiB each."""

import hashlib
import uuid
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import sqlalchemy as sa

from holdfast.common.clock import SteadyClock
from holdfast.storage.blob import Removals, checked_end, checked_id
from holdfast.storage.errors import BlobNotFound, InvalidBatch, StorageError, StoreCorrupt
from holdfast.storage.port import BlobInfo, BlobRef
from holdfast.storage.postgres.connection import Connections
from holdfast.storage.postgres.snapshot import IS_SNAPSHOT_OPEN
from holdfast.storage.postgres.tables import BLOB_REFS, BLOBS

CHUNK_BYTES = 256 << 10
LIST_PAGE_BLOBS = 500
SWEEP_PAGE_BLOBS = 16
REMOVE_BYTES = 32 << 20  # What is larger is removed slice by slice; a page of less takes a second or two.
SLICE_CHUNKS = 1024

_ADD_CHUNK = "INSERT INTO blob_chunks (blob_id, seq, data, crc32) VALUES ($1, $2, $3, $4)"
_BEGIN = "INSERT INTO blobs (id, created_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING RETURNING id"
_FINISH = "UPDATE blobs SET size_bytes = $2, used_at = $3 WHERE id = $1 RETURNING id"
_REMOVE = (
    "DELETE FROM blobs b WHERE b.id = $1 "
    "AND NOT EXISTS (SELECT FROM blob_refs r WHERE r.blob_id = b.id) RETURNING b.id"
)
# One row each: a transaction that holds one lock and waits for none is in no deadlock with a commit that releases many.
_TOUCH = "UPDATE blobs SET used_at = $2 WHERE id = $1"
_REMOVE_SLICE = (
    "WITH gone AS (DELETE FROM blob_chunks WHERE blob_id = $1 AND seq IN "
    "(SELECT seq FROM blob_chunks WHERE blob_id = $1 ORDER BY seq LIMIT $2) RETURNING 1) SELECT count(*) FROM gone"
)
_IS_REFERRED = sa.exists().where(BLOB_REFS.c.blob_id == BLOBS.c.id)
_READ_CHUNK = "SELECT data, crc32 FROM blob_chunks WHERE blob_id = $1 AND seq = $2"


class BlobUse:
    """The blobs that this process reads and writes now, and how often each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @property
    def ids(self) -> list[str]:
        return list(self._counts)

    def begin(self, blob_id: str) -> None:
        self._counts[blob_id] += 1

    def end(self, blob_id: str) -> None:
        self._counts[blob_id] -= 1
        if not self._counts[blob_id]:
            del self._counts[blob_id]


class PostgresBlobs:
    """The `BlobStore` of the port.

    A blob without a reference is kept from removal by the times in its row: `released_at`, set by the commit that took its
    last reference, and `used_at`, which each process sets again and again for what it reads and writes. A process that
    dies stops doing so.
    """

    def __init__(self, connections: Connections, clock: SteadyClock) -> None:
        self._connections = connections
        self._clock = clock
        self._use = BlobUse()
        self.removals = Removals()

    def create(self, *, context: str = "", blob_id: str | None = None) -> "PostgresBlobWriter":
        new_id = str(uuid.uuid4()) if blob_id is None else checked_id(blob_id)
        return PostgresBlobWriter(self._connections, self._clock, self._use, new_id)

    async def read(
        self, ref: BlobRef, *, context: str = "", start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        position, end = start, checked_end(ref, start, end)
        self._use.begin(ref.id)
        try:
            size_bytes = await self._begin(ref.id)
            while position < end:
                seq, offset = divmod(position, CHUNK_BYTES)
                chunk = (await self._chunk(ref.id, seq))[offset : offset + end - position]
                if not chunk:
                    raise StoreCorrupt(
                        f"blob {ref.id} ends at byte {position} of {size_bytes}; restore a backup"
                    )
                yield chunk
                position += len(chunk)
        finally:
            self._use.end(ref.id)

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

    async def free(self, *, grace_s: float) -> int:
        before = self._ago(grace_s)
        candidates = (
            sa.select(BLOBS.c.id, BLOBS.c.size_bytes)
            .where(
                BLOBS.c.released_at <= before, sa.or_(BLOBS.c.used_at.is_(None), BLOBS.c.used_at <= before)
            )
            .order_by(BLOBS.c.released_at)
        )
        freed = 0
        while page := await self._remove_page(candidates):
            freed += sum(1 for _, was_finished in page if was_finished)
            if not any(was_finished for _, was_finished in page):
                break  # Others took all of them.
        return freed

    async def sweep(self, *, grace_s: float) -> int:
        """Unfinished blobs go too once they are older than `grace_s`; they are not counted."""
        last_use = sa.func.greatest(BLOBS.c.created_at, BLOBS.c.released_at, BLOBS.c.used_at)
        candidates = (
            sa.select(BLOBS.c.id, BLOBS.c.size_bytes)
            .where(last_use <= self._ago(grace_s))
            .order_by(BLOBS.c.id)
        )
        swept, last_id = 0, ""
        while page := await self._remove_page(candidates.where(BLOBS.c.id > last_id)):
            swept += sum(1 for _, was_finished in page if was_finished)
            last_id = max(blob_id for blob_id, _ in page)
        return swept

    async def touch(self) -> None:
        for blob_id in self._use.ids:
            async with self._connections.use() as connection:
                await connection.execute(_TOUCH, blob_id, self._ago(0))

    async def _remove_page(self, candidates: sa.Select[Any, Any]) -> Sequence[tuple[str, bool]]:
        """The first of the candidates that no record refers to, and whether each was a finished blob and is gone."""
        async with self._connections.use_core() as connection:
            if await connection.scalar(sa.text(IS_SNAPSHOT_OPEN)):
                return []
            locked = candidates.where(~_IS_REFERRED).limit(SWEEP_PAGE_BLOBS).with_for_update(skip_locked=True)
            found = [(row.id, row.size_bytes) for row in await connection.execute(locked)]
            large = [
                blob_id for blob_id, size_bytes in found if size_bytes is None or size_bytes > REMOVE_BYTES
            ]
            small = [blob_id for blob_id, _ in found if blob_id not in large]
            # Two steps: a commit may have referred to one before it was locked, and these statements see that.
            removal = sa.delete(BLOBS).where(BLOBS.c.id.in_(small), ~_IS_REFERRED).returning(BLOBS.c.id)
            gone = set(await connection.scalars(removal))
            # From here on no commit can refer to it: it is as if it had never been finished.
            closing = sa.update(BLOBS).where(BLOBS.c.id.in_(large), ~_IS_REFERRED).values(size_bytes=None)
            closed = list(await connection.scalars(closing.returning(BLOBS.c.id)))
        for blob_id in closed:
            await self._remove_by_slices(blob_id)
        gone.update(closed)
        sizes = {blob_id: size_bytes for blob_id, size_bytes in found if blob_id in gone}
        for size_bytes in sizes.values():
            if size_bytes is not None:
                self.removals.add(size_bytes)
        return [(blob_id, sizes.get(blob_id) is not None) for blob_id, _ in found]

    async def _remove_by_slices(self, blob_id: str) -> None:
        """No statement may take long; what is left when this process dies, the next sweep goes on with."""
        async with self._connections.use() as connection:
            while await connection.fetchval(_REMOVE_SLICE, blob_id, SLICE_CHUNKS):
                continue
            await connection.execute("DELETE FROM blobs WHERE id = $1 AND size_bytes IS NULL", blob_id)

    def _ago(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(self._clock.now_s(), UTC) - timedelta(seconds=seconds)

    async def _begin(self, blob_id: str) -> int:
        """The size of a blob that is about to be read. One that is released already may be removed at any moment."""
        async with self._connections.use() as connection:
            row = await connection.fetchrow(
                "SELECT size_bytes, released_at FROM blobs WHERE id = $1", blob_id
            )
            if row is not None and row[1] is not None:
                await connection.execute(_TOUCH, blob_id, self._ago(0))
        if row is None or row[0] is None:
            raise BlobNotFound(f"blob {blob_id} does not exist: never finished, or swept")
        return int(row[0])

    async def _chunk(self, blob_id: str, seq: int) -> bytes:
        async with self._connections.use() as connection:
            row = await connection.fetchrow(_READ_CHUNK, blob_id, seq)
        if row is None:
            await self._begin(blob_id)  # Removed under the reader: BlobNotFound.
            raise StoreCorrupt(f"blob {blob_id} lacks its chunk {seq}; restore a backup")
        data, crc32 = row
        if zlib.crc32(data) != crc32:
            raise StoreCorrupt(f"chunk {seq} of blob {blob_id} fails its checksum; restore a backup")
        return bytes(data)


class PostgresBlobWriter:
    """The `BlobWriter` of the port. Holds a connection only while a chunk is written."""

    def __init__(self, connections: Connections, clock: SteadyClock, use: BlobUse, blob_id: str) -> None:
        self._connections = connections
        self._clock = clock
        self._use = use
        self._is_in_use = False
        self._id = blob_id
        self._buffer = bytearray()
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self._chunk_count = 0
        self._is_finished = False

    async def __aenter__(self) -> Self:
        created_at = datetime.fromtimestamp(self._clock.now_s(), UTC)
        async with self._connections.use() as connection:
            begun = await connection.fetchval(_BEGIN, self._id, created_at)
        if begun is None:
            raise InvalidBatch(f"blob {self._id} exists already")
        self._use.begin(self._id)
        self._is_in_use = True
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
            # The time until a commit refers to it counts from here: a large one may have been hours on its way.
            finished_at = datetime.fromtimestamp(self._clock.now_s(), UTC)
            found = await connection.fetchval(_FINISH, self._id, self._size_bytes, finished_at)
        if found is None:
            raise BlobNotFound(f"blob {self._id} was swept while it was written; write it again")
        self._is_finished = True
        self._end_use()
        return BlobRef(id=self._id, size_bytes=self._size_bytes, sha256=self._hash.digest())

    async def __aexit__(self, *exc: object) -> None:
        self._end_use()
        if self._is_finished:
            return
        try:
            async with self._connections.use() as connection:
                await connection.execute("DELETE FROM blobs WHERE id = $1", self._id)
        except StorageError:
            return  # The sweep removes it later.

    def _end_use(self) -> None:
        if self._is_in_use:
            self._is_in_use = False
            self._use.end(self._id)

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
