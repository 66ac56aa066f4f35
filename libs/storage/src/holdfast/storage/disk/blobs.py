"""Blobs as files: written beside, synced, then renamed into place; every chunk carries its checksum.

file    `HFB1`, u64 size of the content, then chunks of 64 KiB (the last one shorter, an empty blob has none), each
        followed by its u32 crc
"""

import asyncio
import hashlib
import os
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import BinaryIO, Self

from holdfast.common.clock import SteadyClock
from holdfast.common.ids import uuid7
from holdfast.storage.blob import Removals, checked_end, checked_id
from holdfast.storage.disk.room import Room
from holdfast.storage.errors import BlobNotFound, InvalidBatch, StoreCorrupt, StoreFull, from_os
from holdfast.storage.hosting.trouble import WriteTrouble
from holdfast.storage.local.released import References, ReleasedBlobs
from holdfast.storage.port import BlobInfo, BlobRef
from holdfast.storage.whole_file import begin_sync, sync_folder

CHUNK_BYTES = 64 << 10
STEP_BYTES = 1 << 20  # What one trip to a thread reads or writes.
_MAGIC = b"HFB1"
_HEADER = Struct(">4sQ")
_CRC = Struct(">I")
_STORED_CHUNK_BYTES = CHUNK_BYTES + _CRC.size


class FileBlobs:
    """The `BlobStore` of a store on disk."""

    def __init__(
        self,
        folder: Path,
        references: References,
        clock: SteadyClock,
        *,
        room: Room | None = None,
        trouble: WriteTrouble | None = None,
    ) -> None:
        self._folder = folder
        self._room = room
        self._trouble = trouble
        self._incoming = folder / "incoming"
        self._references = references
        self._clock = clock
        self._released = ReleasedBlobs(clock)
        self.removals = Removals()
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left_over in self._incoming.iterdir():
            left_over.unlink()

    def create(self, *, context: str = "", blob_id: str | None = None) -> "FileBlobWriter":
        blob_id = uuid7() if blob_id is None else checked_id(blob_id)
        if self.exists(blob_id):
            raise InvalidBatch(f"blob {blob_id} exists already")
        return FileBlobWriter(
            blob_id, self._incoming / blob_id, self._path(blob_id), self._writing, self._clock
        )

    @contextmanager
    def _writing(self, doing: str) -> Iterator[None]:
        """The errors of a write become ours, and a full device is told; nothing is taken from the reserve."""
        try:
            with from_os(doing):
                if self._room is not None:
                    self._room.check()
                yield
        except StoreFull as error:
            if self._trouble is not None:
                self._trouble.began(error)
            raise

    async def read(
        self, ref: BlobRef, *, context: str = "", start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        end = checked_end(ref, start, end)
        path = self._path(ref.id)
        with from_os(f"reading blob {ref.id}"):
            try:
                file = await asyncio.to_thread(_open_whole, path)
            except FileNotFoundError as error:
                raise BlobNotFound(f"blob {ref.id} does not exist, or was swept") from error
            with file:
                at = start
                while at < end:
                    piece = await asyncio.to_thread(_read_step, file, path, at, min(end, at + STEP_BYTES))
                    at += len(piece)
                    yield piece

    async def info(self, blob_id: str) -> BlobInfo | None:
        try:
            stat = self._path(blob_id).stat()
        except FileNotFoundError:
            return None
        return BlobInfo(blob_id, _content_bytes(stat.st_size), stat.st_mtime)

    async def list(self) -> AsyncIterator[BlobInfo]:
        for drawer in await asyncio.to_thread(lambda: sorted(self._folder.glob("??"))):
            for info in await asyncio.to_thread(_infos, drawer):
                yield info

    async def remove(self, blob_id: str) -> bool:
        return not self._references.is_blob_referenced(blob_id) and self._unlink(blob_id)

    async def free(self, *, grace_s: float) -> int:
        return self._released.free(self._references, self._unlink, grace_s=grace_s)

    async def sweep(self, *, grace_s: float) -> int:
        removed = 0
        oldest_s = self._clock.now_s() - grace_s
        async for info in self.list():
            if info.created_at_s > oldest_s or self._released.is_younger(info.id, grace_s):
                continue
            # No await between the questions and the removal: no commit can come in between.
            if not self._references.has_snapshots and not self._references.is_blob_referenced(info.id):
                removed += self._unlink(info.id)
        return removed

    async def touch(self) -> None:
        """There are no other processes: one owns the folder."""

    def released(self, blob_ids: Sequence[str]) -> None:
        self._released.add(blob_ids)

    def _unlink(self, blob_id: str) -> bool:
        """A reader that has the file open reads it to its end, and only then its room is free."""
        path = self._path(blob_id)
        try:
            size_bytes = _content_bytes(path.stat().st_size)
            path.unlink()
        except FileNotFoundError:
            return False
        self.removals.add(size_bytes)
        return True

    def exists(self, blob_id: str) -> bool:
        return self._path(blob_id).exists()

    def _path(self, blob_id: str) -> Path:
        # The tail of a UUIDv7 is random: it spreads the files evenly.
        return self._folder / blob_id[-2:] / blob_id


class FileBlobWriter:
    """One blob on its way in.

    A cancelled task does not stop a thread: the steps take turns by a lock, and the last one, `_discard`, finds what
    any earlier one has left.
    """

    def __init__(
        self,
        blob_id: str,
        incoming: Path,
        final: Path,
        writing: Callable[[str], AbstractContextManager[None]],
        clock: SteadyClock,
    ) -> None:
        self._id = blob_id
        self._writing = writing
        self._incoming = incoming
        self._final = final
        self._clock = clock
        self._turn = Lock()
        self._is_over = False
        self._file: BinaryIO | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._step: asyncio.Future[None] | None = None
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0

    async def __aenter__(self) -> Self:
        try:
            with self._writing("creating a blob"):
                await asyncio.to_thread(self._open)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._is_over:
            # Shielded, because a second cancellation would take it out of the queue of the threads.
            await asyncio.shield(asyncio.to_thread(self._discard))

    async def write(self, chunk: bytes) -> None:
        self._pending.append(chunk)
        self._pending_bytes += len(chunk)
        if self._pending_bytes >= STEP_BYTES:
            await self._store(self._pending_bytes // CHUNK_BYTES * CHUNK_BYTES)

    async def finish(self) -> BlobRef:
        await self._store(self._pending_bytes)
        with self._writing(f"finishing blob {self._id}"):
            await self._stored()
            await asyncio.to_thread(self._keep)
        return BlobRef(self._id, self._size_bytes, self._sha256.digest())

    async def _store(self, count: int) -> None:
        """Give so many bytes to a thread as soon as it has done with the bytes before: the next ones come in meanwhile."""
        assert not self._is_over, "write or finish after the end"
        pending = b"".join(self._pending)
        rest = pending[count:]
        self._pending, self._pending_bytes = [rest], len(rest)
        with self._writing(f"writing blob {self._id}"):
            await self._stored()
            self._step = asyncio.get_running_loop().run_in_executor(
                None, self._append, memoryview(pending)[:count]
            )
            self._step.add_done_callback(_look_at)
        self._size_bytes += count

    async def _stored(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            await step

    def _open(self) -> None:
        with self._turn:
            if not self._is_over:
                self._file = self._incoming.open("xb")
                self._file.write(_HEADER.pack(_MAGIC, 0))

    def _append(self, piece: memoryview) -> None:
        with self._turn:
            if self._is_over:
                return
            assert self._file is not None, "write outside of `async with`"
            self._sha256.update(piece)
            stored: list[bytes | memoryview] = []
            for at in range(0, len(piece), CHUNK_BYTES):
                chunk = piece[at : at + CHUNK_BYTES]
                stored += (chunk, _CRC.pack(zlib.crc32(chunk)))
            self._file.write(b"".join(stored))
            begin_sync(self._file.fileno())

    def _keep(self) -> None:
        with self._turn:
            if self._is_over:
                return
            assert self._file is not None, "finish outside of `async with`"
            self._file.seek(0)
            self._file.write(_HEADER.pack(_MAGIC, self._size_bytes))
            self._file.flush()
            # In the time of the store, by which it is swept: the machine's clock may be set meanwhile.
            os.utime(self._file.fileno(), (self._clock.now_s(), self._clock.now_s()))
            os.fsync(self._file.fileno())
            self._final.parent.mkdir(mode=0o700, exist_ok=True)
            self._incoming.rename(self._final)
            self._is_over = True
            self._file.close()
            sync_folder(self._final.parent)
            sync_folder(self._final.parent.parent)

    def _discard(self) -> None:
        with self._turn:
            if self._is_over:
                return
            self._is_over = True
            if self._file is not None:
                self._incoming.unlink(missing_ok=True)
                with suppress(OSError):  # What it still had to write may find no room.
                    self._file.close()


def _look_at(step: asyncio.Future[None]) -> None:
    """A step that failed when its blob was given up has no other reader."""
    if not step.cancelled():
        step.exception()


def _infos(folder: Path) -> list[BlobInfo]:
    with os.scandir(folder) as entries:
        stats = [(entry.name, entry.stat()) for entry in entries]
    return [BlobInfo(name, _content_bytes(stat.st_size), stat.st_mtime) for name, stat in stats]


def _content_bytes(file_bytes: int) -> int:
    whole, rest = divmod(max(0, file_bytes - _HEADER.size), _STORED_CHUNK_BYTES)
    return whole * CHUNK_BYTES + max(0, rest - _CRC.size)


def _open_whole(path: Path) -> BinaryIO:
    """A file cut at a chunk's border has good checksums all the same: its header tells."""
    file = path.open("rb")
    header = file.read(_HEADER.size)
    if header != _HEADER.pack(_MAGIC, _content_bytes(os.fstat(file.fileno()).st_size)):
        file.close()
        raise StoreCorrupt(f"blob {path} is damaged or cut short; restore a backup")
    return file


def _read_step(file: BinaryIO, path: Path, start: int, end: int) -> bytes:
    first = start // CHUNK_BYTES
    file.seek(_HEADER.size + first * _STORED_CHUNK_BYTES)
    wanted = (end - first * CHUNK_BYTES + CHUNK_BYTES - 1) // CHUNK_BYTES
    raw = file.read(wanted * _STORED_CHUNK_BYTES)
    plain = b"".join(_checked_chunks(raw, path))
    skip = start - first * CHUNK_BYTES
    piece = plain[skip : skip + end - start]
    if len(piece) != end - start:
        raise StoreCorrupt(f"blob {path} is cut short; restore a backup")
    return piece


def _checked_chunks(raw: bytes, path: Path) -> Iterator[bytes]:
    for at in range(0, len(raw), _STORED_CHUNK_BYTES):
        stored = raw[at : at + _STORED_CHUNK_BYTES]
        chunk, crc = stored[: -_CRC.size], stored[-_CRC.size :]
        if len(stored) <= _CRC.size or _CRC.unpack(crc)[0] != zlib.crc32(chunk):
            raise StoreCorrupt(f"blob {path} is damaged; restore a backup")
        yield chunk
