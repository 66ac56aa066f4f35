"""The file of a backup: frames behind one another, closed by a trailer that vouches for all before it.

file    `HOLDFAST BACKUP` and a line feed, then frames
frame   its size as a varint, then a `BackupFrame` message; the first is a header, the last a trailer
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError

from holdfast.storage.errors import InvalidArchive, from_os
from holdfast.storage.records_pb2 import BackupFrame, BackupHeader, BackupTrailer

FORMAT_VERSION = 1
FRAME_BYTES_MAX = 2 << 20  # The largest record with its key and 255 blob ids takes a little over 1 MiB.
STEP_BYTES = 1 << 20  # What one trip to a thread reads or writes, at least.
MAGIC = b"HOLDFAST BACKUP\n"
_VARINT_BYTES_MAX = 4


class BackupFileWriter:
    """Frames on their way into a file, which must be written with `finish` as its last call."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._pending = bytearray(MAGIC)
        self._sha256 = hashlib.sha256()

    async def add(self, frame: BackupFrame) -> None:
        self._pending += _framed(frame)
        if len(self._pending) >= STEP_BYTES:
            await self._store()

    async def finish(self, trailer: BackupTrailer) -> None:
        await self._store()
        trailer.sha256 = self._sha256.digest()
        self._pending += _framed(BackupFrame(trailer=trailer))
        await self._store()

    async def _store(self) -> None:
        piece, self._pending = bytes(self._pending), bytearray()
        with from_os(f"writing the backup {self._path}"):
            await asyncio.to_thread(self._append, piece)

    def _append(self, piece: bytes) -> None:
        self._sha256.update(piece)
        self._file.write(piece)


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
