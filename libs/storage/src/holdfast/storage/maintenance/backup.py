"""Backup and restore: a store as stored, at one revision, with every blob it refers to.

Both work on the backend itself (`open_backend`): what is encrypted stays encrypted, and is read with the same root
keys after a restore. The backend of the restored store may be of another kind.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from holdfast.common.clock import Clock, SystemClock
from holdfast.storage.blob import checked_id
from holdfast.storage.codec.descriptor import MAGIC as SEALED_MAGIC
from holdfast.storage.codec.identity import IDENTITY_KEY
from holdfast.storage.errors import BlobNotFound, InvalidArchive
from holdfast.storage.maintenance.backup_file import (
    FORMAT_VERSION,
    BackupFileWriter,
    read_frames,
    read_header,
)
from holdfast.storage.maintenance.progress import Advance, silent
from holdfast.storage.port import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    BlobRef,
    BlobStore,
    BlobWriter,
    Record,
    SnapshotRecord,
    Store,
)
from holdfast.storage.records_pb2 import (
    BackendIdentity,
    BackupBlobChunk,
    BackupFrame,
    BackupHeader,
    BackupRecord,
    BackupTrailer,
)
from holdfast.storage.transact import BLOBS_PER_RECORD_MAX, SEALED_VALUE_BYTES
from holdfast.storage.whole_file import written_whole

PAGE_RECORDS = 500
PAGE_BYTES = 4 << 20
CHUNK_BYTES = 1 << 20
_REVISION_MAX = (1 << 63) - 1


class BackupSummary(NamedTuple):
    """What a backup holds."""

    path: Path
    revision: int
    records: int
    blobs: int
    blob_bytes: int
    is_encrypted: bool


def backup_path(target: Path, *, revision: int, clock: Clock) -> Path:
    """`target`, or a name with date and revision in it if `target` is a folder."""
    if not target.is_dir():
        return target
    now = datetime.fromtimestamp(clock.wall_s(), UTC)
    return target / f"holdfast-{now:%Y%m%dT%H%M%SZ}-r{revision}.hfbackup"


async def backup(
    store: Store, target: Path, *, advance: Advance = silent, clock: Clock | None = None
) -> BackupSummary:
    """Write everything as of now to `target`, a new file, or a new file in that folder."""
    clock = clock or SystemClock()
    identity = await store.get(IDENTITY_KEY)
    async with store.snapshot() as snapshot:
        path = backup_path(target, revision=snapshot.revision, clock=clock)
        if path.exists():
            raise InvalidArchive(f"{path} exists; name a new file or a folder")
        header = BackupHeader(
            format_version=FORMAT_VERSION,
            created_at_ms=int(clock.wall_s() * 1000),
            revision=snapshot.revision,
            record_count=snapshot.record_count,
            store_url=store.url,
            encryption=identity is not None and identity.value.startswith(SEALED_MAGIC),
        )
        if identity is not None and not header.encryption:
            header.backend_id = BackendIdentity.FromString(identity.value).id
        with written_whole(path) as file:
            writer = BackupFileWriter(file, path)
            await writer.add(BackupFrame(header=header))
            saving = _Saving(store.blobs, writer, advance)
            async for page in snapshot.records():
                for item in page:
                    await saving.add(item)
            await writer.finish(saving.counts)
    counts = saving.counts
    return BackupSummary(
        path,
        snapshot.revision,
        counts.record_count,
        counts.blob_count,
        counts.blob_bytes,
        header.encryption,
    )


class _Saving:
    """Records with their blobs before them, so that a restore meets no reference to what is not there yet."""

    def __init__(self, blobs: BlobStore, file: BackupFileWriter, advance: Advance) -> None:
        self.counts = BackupTrailer()
        self._blobs = blobs
        self._file = file
        self._advance = advance
        # Several records may share a blob. An id takes about 130 bytes here, the blob itself hundreds of times that.
        self._saved: set[str] = set()

    async def add(self, item: SnapshotRecord) -> None:
        for blob_id in item.blobs:
            if blob_id not in self._saved:
                self._saved.add(blob_id)
                await self._add_blob(blob_id)
        key, value, create_revision, mod_revision, version = item.record
        record = BackupRecord(
            key=key,
            value=value,
            create_revision=create_revision,
            mod_revision=mod_revision,
            version=version,
            blobs=item.blobs,
        )
        await self._file.add(BackupFrame(record=record))
        self.counts.record_count += 1
        self._advance(1, len(key) + len(value))

    async def _add_blob(self, blob_id: str) -> None:
        offset = 0
        async for data in stored_blob(self._blobs, blob_id):
            chunk = BackupBlobChunk(id=blob_id, offset=offset, data=data)
            await self._file.add(BackupFrame(blob_chunk=chunk))
            offset += len(data)
            self._advance(0, len(data))
        await self._file.add(BackupFrame(blob_chunk=BackupBlobChunk(id=blob_id, offset=offset, last=True)))
        self.counts.blob_count += 1
        self.counts.blob_bytes += offset


async def stored_blob(blobs: BlobStore, blob_id: str) -> AsyncIterator[bytes]:
    """The bytes of a blob as this blob store holds them, known by its id alone, in pieces of CHUNK_BYTES.

    The pieces are the same for every backend, so that equal stores give equal files.
    """
    info = await blobs.info(blob_id)
    if info is None:
        raise BlobNotFound(
            f"blob {blob_id} is gone although a record refers to it: "
            "swept after another process deleted the record; try again, and if it stays gone restore a backup"
        )
    pending = bytearray()
    async for piece in blobs.read(BlobRef(blob_id, info.stored_bytes, b"")):
        pending += piece
        while len(pending) >= CHUNK_BYTES:
            yield bytes(pending[:CHUNK_BYTES])
            del pending[:CHUNK_BYTES]
    if pending:
        yield bytes(pending)


async def check_backup(path: Path, *, advance: Advance = silent) -> BackupHeader:
    """Read the whole file and raise InvalidArchive if anything is wrong with it; touches no store."""
    header = await read_header(path)
    order = _Order(header, path)
    async for frame in read_frames(path):
        if frame.WhichOneof("frame") == "record":
            order.check(frame.record)
            advance(1, 0)
    return header


async def restore(store: Store, path: Path, *, advance: Advance = silent) -> BackupSummary:
    """Fill `store`, which must be empty, from a backup. An error leaves no store that looks whole.

    Run `check_backup` before the store is opened: then a damaged file touches nothing.
    """
    header = await read_header(path)
    loading = _Loading(store.blobs, header, path, advance)
    try:
        await store.restore(header.revision, loading.pages())
    finally:
        await loading.close()
    return BackupSummary(
        path, header.revision, loading.records, loading.blobs, loading.blob_bytes, header.encryption
    )


class _Order:
    """What must hold of the records of a backup, so that the restored store keeps the rules of the port."""

    def __init__(self, header: BackupHeader, path: Path) -> None:
        if header.revision > _REVISION_MAX:
            raise InvalidArchive(f"{path} is damaged: revision {header.revision} can't be")
        self._revision = header.revision
        self._path = path
        self._last_key: bytes | None = None

    def check(self, record: BackupRecord) -> None:
        is_right = (
            (self._last_key is None or self._last_key < record.key)
            and len(record.key) <= KEY_BYTES_MAX
            and len(record.value) <= VALUE_BYTES_MAX + SEALED_VALUE_BYTES
            and len(record.blobs) <= BLOBS_PER_RECORD_MAX
            and 1 <= record.create_revision <= record.mod_revision <= self._revision
            and 1 <= record.version <= record.mod_revision
        )
        if not is_right:
            raise InvalidArchive(f"{self._path} is damaged: the record {record.key[:100]!r} can't be")
        self._last_key = record.key


class _Loading:
    """Frames into pages of records; blobs are written on the way."""

    def __init__(self, blobs: BlobStore, header: BackupHeader, path: Path, advance: Advance) -> None:
        self.records = self.blobs = self.blob_bytes = 0
        self._blob_store = blobs
        self._order = _Order(header, path)
        self._path = path
        self._advance = advance
        self._writer: BlobWriter | None = None
        self._blob_id = ""
        self._offset = 0

    async def pages(self) -> AsyncIterator[Sequence[SnapshotRecord]]:
        page: list[SnapshotRecord] = []
        page_bytes = 0
        async for frame in read_frames(self._path):
            if frame.WhichOneof("frame") == "blob_chunk":
                await self._add_chunk(frame.blob_chunk)
                continue
            page.append(self._record(frame.record))
            page_bytes += len(frame.record.value)
            if len(page) == PAGE_RECORDS or page_bytes >= PAGE_BYTES:
                yield page
                page, page_bytes = [], 0
        yield page

    async def close(self) -> None:
        """Throw an unfinished blob away."""
        if self._writer is not None:
            await self._writer.__aexit__(None, None, None)
            self._writer = None

    def _record(self, message: BackupRecord) -> SnapshotRecord:
        if self._writer is not None:
            raise InvalidArchive(f"{self._path} is damaged: blob {self._blob_id} has no end")
        self._order.check(message)
        self.records += 1
        self._advance(1, len(message.key) + len(message.value))
        record = Record(
            message.key, message.value, message.create_revision, message.mod_revision, message.version
        )
        return SnapshotRecord(record, tuple(message.blobs))

    async def _add_chunk(self, chunk: BackupBlobChunk) -> None:
        if self._writer is None:
            await self._begin(chunk.id)
        if self._writer is None or (chunk.id, chunk.offset) != (self._blob_id, self._offset):
            raise InvalidArchive(
                f"{self._path} is damaged: the pieces of blob {chunk.id[:40]!r} are mixed up"
            )
        if chunk.data:
            await self._writer.write(chunk.data)
            self._offset += len(chunk.data)
            self._advance(0, len(chunk.data))
        if chunk.last:
            await self._writer.finish()
            self._writer = None
            self.blobs += 1
            self.blob_bytes += self._offset

    async def _begin(self, blob_id: str) -> None:
        # What an earlier, failed restore has left is not trusted: no record refers to it, so it goes.
        await self._blob_store.remove(checked_id(blob_id))
        self._writer = await self._blob_store.create(blob_id=blob_id).__aenter__()
        self._blob_id, self._offset = blob_id, 0
