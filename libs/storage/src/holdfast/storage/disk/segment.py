"""One file of the journal: preallocated, filled record by record, read back with every byte checked.

    file    64-byte header: `HFJSEG01` · u64 salt · u64 base revision · u32 crc, then records, then old bytes or zeros
    record  `HFJR` · u32 crc · u32 payload bytes · u32 entries · u64 last revision · payload (u32 length + entry, each)

The crc of a record starts from the file's random salt, so what an earlier life of a reused file left behind never
passes for a record. A record without entries is a mark: everything up to its revision was synced. It is written,
unsynced, whenever the journal falls idle and is overwritten by the next record. So damage to any synced record,
also to the last one, is followed by something valid and is told apart from a torn write at the end.
"""

import mmap
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Protocol

from holdfast.storage.errors import StoreCorrupt

HEADER_BYTES = 64
_SEGMENT_MAGIC = b"HFJSEG01"
_RECORD_MAGIC = b"HFJR"
_SEGMENT_HEAD = Struct(">8sQQI")
_RECORD_HEAD = Struct(">4sIIIQ")
_CHECKED = Struct(">IIQ")  # The part of a record's head that its crc covers.
_LENGTH = Struct(">I")
_ZEROS = bytes(1 << 20)

RECORD_HEAD_BYTES = _RECORD_HEAD.size


class JournalFile(Protocol):
    """What the journal needs of a file; tests put one here that forgets what was not synced."""

    def pwrite(self, data: bytes, offset: int) -> None: ...

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        """Write, and return when the device has it."""
        ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


JournalFileFactory = Callable[[Path], JournalFile]


class DiskFile:
    """A real file, open for writing."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def pwrite(self, data: bytes, offset: int) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], offset + written)

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        # One call for both: every return into Python costs a commit more than the sync of a byte.
        if os.pwritev(self._descriptor, [data], offset, os.RWF_DSYNC) != len(data):
            self.pwrite(data, offset)
            self.sync()

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class SegmentRecord(NamedTuple):
    """A checked record: where it ends and what it holds."""

    end_offset: int
    last_revision: int
    entries: list[bytes]


def allocate(path: Path, size_bytes: int) -> None:
    """Write zeros, so that later syncs find every block in place; no file is left behind on failure."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for at in range(0, size_bytes, len(_ZEROS)):
            os.write(descriptor, _ZEROS[: min(len(_ZEROS), size_bytes - at)])
        os.fsync(descriptor)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def encode_header(salt: int, base_revision: int) -> bytes:
    fields = _SEGMENT_HEAD.pack(_SEGMENT_MAGIC, salt, base_revision, 0)[:-4]
    return (fields + _LENGTH.pack(zlib.crc32(fields))).ljust(HEADER_BYTES, b"\x00")


def decode_header(path: Path, raw: bytes) -> tuple[int, int]:
    """Salt and base revision."""
    if len(raw) < HEADER_BYTES:
        raise StoreCorrupt(f"{path}: the journal segment is cut short; restore a backup")
    magic, salt, base_revision, crc = _SEGMENT_HEAD.unpack_from(raw)
    if magic != _SEGMENT_MAGIC or crc != zlib.crc32(raw[: _SEGMENT_HEAD.size - 4]):
        raise StoreCorrupt(f"{path}: the header of the journal segment is damaged; restore a backup")
    return salt, base_revision


def encode_record(salt: int, last_revision: int, entries: list[bytes]) -> bytes:
    parts: list[bytes] = []
    for entry in entries:
        parts += (_LENGTH.pack(len(entry)), entry)
    payload = b"".join(parts)
    crc = _record_crc(salt, len(payload), len(entries), last_revision, payload)
    return _RECORD_HEAD.pack(_RECORD_MAGIC, crc, len(payload), len(entries), last_revision) + payload


def room_for(entry: bytes) -> int:
    """What a record of this entry alone takes, and the mark behind it."""
    return RECORD_HEAD_BYTES + _LENGTH.size + len(entry) + RECORD_HEAD_BYTES


def encode_mark(salt: int, durable_revision: int) -> bytes:
    return encode_record(salt, durable_revision, [])


def read_header(path: Path) -> tuple[int, int]:
    """Salt and base revision of a segment file."""
    with path.open("rb") as file:
        return decode_header(path, file.read(HEADER_BYTES))


def read_records(path: Path, salt: int) -> Iterator[SegmentRecord]:
    """Every record up to the end; StoreCorrupt if something valid stands behind something that is not."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        at = HEADER_BYTES
        while (record := _record_at(raw, at, salt)) is not None:
            if record.entries:
                yield record
            at = record.end_offset
        if _has_record_after(raw, at, salt):
            raise StoreCorrupt(f"{path}: the journal is damaged at byte {at}; restore a backup")


def _record_at(raw: mmap.mmap, at: int, salt: int) -> SegmentRecord | None:
    if at + RECORD_HEAD_BYTES > len(raw):
        return None
    magic, crc, payload_bytes, count, last_revision = _RECORD_HEAD.unpack_from(raw, at)
    start = at + RECORD_HEAD_BYTES
    end = start + payload_bytes
    if magic != _RECORD_MAGIC or end > len(raw):
        return None
    payload = raw[start:end]
    if crc != _record_crc(salt, payload_bytes, count, last_revision, payload):
        return None
    return SegmentRecord(end, last_revision, list(_entries(payload)))


def _entries(payload: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(payload):
        length: int = _LENGTH.unpack_from(payload, at)[0]
        yield payload[at + _LENGTH.size : at + _LENGTH.size + length]
        at += _LENGTH.size + length


def _has_record_after(raw: mmap.mmap, at: int, salt: int) -> bool:
    found = raw.find(_RECORD_MAGIC, at + 1)
    while found != -1:
        if _record_at(raw, found, salt) is not None:
            return True
        found = raw.find(_RECORD_MAGIC, found + 1)
    return False


def _record_crc(salt: int, payload_bytes: int, count: int, last_revision: int, payload: bytes) -> int:
    seed = zlib.crc32(_CHECKED.pack(payload_bytes, count, last_revision), salt & 0xFFFF_FFFF)
    return zlib.crc32(payload, seed)
