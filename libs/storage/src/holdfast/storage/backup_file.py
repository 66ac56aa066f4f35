"""The file of a backup: frames behind one another, closed by a trailer that vouches for all before it.

file    `HOLDFAST BACKUP` and a line feed, then frames
frame   its size as a varint, then a `BackupFrame` message; the first is a header, the last a trailer

It is written under another name, synced and then renamed: a file with the right name is whole.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO, Self

from google.protobuf.message import DecodeError

from holdfast.storage.errors import InvalidArchive
from holdfast.storage.foreign import from_os
from holdfast.storage.records_pb2 import BackupFrame, BackupHeader, BackupTrailer

FORMAT_VERSION = 1
FRAME_BYTES_MAX = 2 << 20  # The largest record with its key and 255 blob ids takes a little over 1 MiB.
STEP_BYTES = 1 << 20  # What one trip to a thread reads or writes, at least.
MAGIC = b"HOLDFAST BACKUP\n"
_VARINT_BYTES_MAX = 4


class BackupFileWriter:
    """Frames on their way into a file. Leaving the `async with` without `finish` removes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        self._file: BinaryIO | None = None
        self._pending = bytearray(MAGIC)
        self._sha256 = hashlib.sha256()

    async def __aenter__(self) -> Self:
        with from_os(f"creating the backup {self._path}"):
            self._file = await asyncio.to_thread(self._open)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._partial.unlink(missing_ok=True)

    async def add(self, frame: BackupFrame) -> None:
        self._pending += _framed(frame)
        if len(self._pending) >= STEP_BYTES:
            await self._store()

    async def finish(self, trailer: BackupTrailer) -> None:
        """Make the file durable under its name."""
        await self._store()
        trailer.sha256 = self._sha256.digest()
        self._pending += _framed(BackupFrame(trailer=trailer))
        await self._store()
        assert self._file is not None, "finish outside of `async with`"
        file, self._file = self._file, None
        with from_os(f"finishing the backup {self._path}"):
            await asyncio.to_thread(self._keep, file)

    async def _store(self) -> None:
        assert self._file is not None, "add outside of `async with`"
        piece, self._pending = bytes(self._pending), bytearray()
        with from_os(f"writing the backup {self._path}"):
            await asyncio.to_thread(self._append, self._file, piece)

    def _open(self) -> BinaryIO:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # It may hold everything that the store holds: for the owner's eyes.
        return os.fdopen(os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def _append(self, file: BinaryIO, piece: bytes) -> None:
        self._sha256.update(piece)
        file.write(piece)

    def _keep(self, file: BinaryIO) -> None:
        with file:
            file.flush()
            os.fsync(file.fileno())
        self._partial.rename(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


async def read_header(path: Path) -> BackupHeader:
    """What the file says of itself; InvalidArchive if it is no backup."""
    with from_os(f"opening the backup {path}"):
        file = await asyncio.to_thread(path.open, "rb")
    with file:
        return await asyncio.to_thread(_header, file, path)


async def read_frames(path: Path) -> AsyncIterator[BackupFrame]:
    """Records and pieces of blobs. Ends only if header, order and trailer are right; else raises InvalidArchive.

    The proof comes at the end: until then what was read may be damaged.
    """
    with from_os(f"reading the backup {path}"):
        file = await asyncio.to_thread(path.open, "rb")
        with file:
            await asyncio.to_thread(_header, file, path)
            file.seek(0)
            frames = _checked_frames(file, path)
            while step := await asyncio.to_thread(_take, frames):
                for frame in step:
                    yield frame


def _take(frames: Iterator[BackupFrame]) -> list[BackupFrame]:
    taken: list[BackupFrame] = []
    size_bytes = 0
    for frame in frames:
        taken.append(frame)
        size_bytes += frame.ByteSize()
        if size_bytes >= STEP_BYTES:
            break
    return taken


def _header(file: BinaryIO, path: Path) -> BackupHeader:
    if file.read(len(MAGIC)) != MAGIC:
        raise InvalidArchive(f"{path} is no backup of a holdfast store")
    _, frame = _read_frame(file, path)
    if frame.WhichOneof("frame") != "header":
        raise InvalidArchive(f"{path} is damaged: it does not begin with a header")
    if frame.header.format_version != FORMAT_VERSION:
        raise InvalidArchive(
            f"{path} has backup format {frame.header.format_version}, this program knows {FORMAT_VERSION}; "
            "use the release that wrote it"
        )
    return frame.header


def _checked_frames(file: BinaryIO, path: Path) -> Iterator[BackupFrame]:
    """The frames between header and trailer, counted and hashed on the way."""
    sha256 = hashlib.sha256(file.read(len(MAGIC)))
    counts = BackupTrailer()
    is_first = True
    while True:
        raw, frame = _read_frame(file, path)
        kind = frame.WhichOneof("frame")
        if kind == "trailer":
            counts.sha256 = sha256.digest()
            _check_trailer(frame.trailer, counts, path)
            if file.read(1):
                raise InvalidArchive(f"{path} is damaged: it goes on after its end")
            return
        sha256.update(raw)
        if is_first != (kind == "header"):
            raise InvalidArchive(f"{path} is damaged: a header stands where none belongs, or is missing")
        is_first = False
        if kind == "record":
            counts.record_count += 1
        elif kind == "blob_chunk":
            counts.blob_count += frame.blob_chunk.last
            counts.blob_bytes += len(frame.blob_chunk.data)
        elif kind is None:
            raise InvalidArchive(f"{path} is damaged: it holds a frame of an unknown kind")
        if kind != "header":
            yield frame


def _check_trailer(trailer: BackupTrailer, counted: BackupTrailer, path: Path) -> None:
    if trailer.sha256 != counted.sha256:
        raise InvalidArchive(f"{path} is damaged: its checksum does not match; take another backup")
    if trailer != counted:
        raise InvalidArchive(f"{path} is damaged: it does not hold what its end says; take another backup")


def _read_frame(file: BinaryIO, path: Path) -> tuple[bytes, BackupFrame]:
    """The bytes of the next frame, its size included, and what they say."""
    prefix = bytearray()
    size_bytes = 0
    while not prefix or prefix[-1] & 0x80:
        byte = file.read(1)
        if not byte or len(prefix) == _VARINT_BYTES_MAX:
            raise _cut_short(path) if not byte else InvalidArchive(f"{path} is damaged")
        size_bytes |= (byte[0] & 0x7F) << 7 * len(prefix)
        prefix += byte
    if size_bytes > FRAME_BYTES_MAX:
        raise InvalidArchive(f"{path} is damaged: a frame of {size_bytes} bytes is too large")
    body = file.read(size_bytes)
    if len(body) < size_bytes:
        raise _cut_short(path)
    try:
        return bytes(prefix) + body, BackupFrame.FromString(body)
    except DecodeError as error:
        raise InvalidArchive(f"{path} is damaged: a frame can't be read; take another backup") from error


def _cut_short(path: Path) -> InvalidArchive:
    return InvalidArchive(f"{path} is cut short: its end is missing; take another backup")


def _framed(frame: BackupFrame) -> bytes:
    body = frame.SerializeToString(deterministic=True)
    assert len(body) <= FRAME_BYTES_MAX, "no frame that is read back is larger"
    prefix = bytearray()
    rest = len(body)
    while rest > 0x7F:
        prefix.append(rest & 0x7F | 0x80)
        rest >>= 7
    prefix.append(rest)
    return bytes(prefix) + body
