"""One file of the journal: preallocated, overwritten in place and synced record by record, read back with every byte checked.

    file    64-byte header: `HFJSEG02` · u64 salt · u64 base revision · u64 file size · u32 crc
            records, then free space: the fill pattern, or records of an earlier life of a reused file
            seal sector, 512 bytes: fill, or `HFJSEAL2` · u64 end offset · u64 last revision · u32 crc, then fill
            end sector, 512 bytes: `HFJEND02` · u64 salt · u64 file size · u32 crc, then fill
    record  `HFJR` · u32 crc · u32 payload bytes · u32 entries · u64 last revision · payload (u32 length + entry, each)

The crc of a record starts from the file's random salt, so what an earlier life of a reused file left behind never
passes for a record. A record without entries is an end marker: everything up to its revision was synced. It
is written, unsynced, whenever the journal falls idle and is overwritten by the next record. So damage to any
synced record, also to the last one, is followed by something valid and is told apart from a torn write at the
end.

How a segment that lost bytes is told apart from one that a power cut left behind. Always true of a file in use:

1. It has the size of its header, and its end sector is whole: both are synced before the file gets its name, and
   nothing is written over them. A file that was cut fails this, also if it was grown again.
2. No aligned 512-byte sector of it is all zeros. Free space is filled with another byte, synced before use; a payload
   with 512 zeros in a row is stuffed (a 1 after every 256 bytes, and the top bit of `entries` set). A device keeps
   the old or the new content of a sector, so this holds after a power cut too. Zeros therefore are lost bytes.
3. A sealed segment has a successor, and its records end where the seal says: a full segment is sealed, synced, after
   its successor is durable and before the successor gets its first record.

Legal after a crash: unsealed and last, with a torn write behind its records (any subset of the sectors of the one
group that was not synced); unsealed with an empty successor; sealed with a successor.
Not told apart from a torn write: damage to the last group alone that is no whole sector of zeros, if the process was
killed before it wrote the end marker (20 ms after that group). And an older copy of the whole file passes for
the file, unless the engine or the next segment is newer.

`HFJSEG01` files of earlier versions have no size, no seal and zeros as fill: they are read, but a cut is taken for a
torn write there. Opening a store starts a new segment behind such a file.
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
SECTOR_BYTES = 512
TAIL_BYTES = 2 * SECTOR_BYTES  # The seal sector and the end sector.
FILL_SECTOR = b"\xa5" * SECTOR_BYTES

_MAGIC_1 = b"HFJSEG01"
_MAGIC_2 = b"HFJSEG02"
_SEAL_MAGIC = b"HFJSEAL2"
_END_MAGIC = b"HFJEND02"
_RECORD_MAGIC = b"HFJR"
_HEAD_1 = Struct(">8sQQ")
_HEAD_2 = Struct(">8sQQQ")
_SEAL = Struct(">8sQQ")
_END = Struct(">8sQQ")
_CRC = Struct(">I")
_RECORD_HEAD = Struct(">4sIIIQ")
_CHECKED = Struct(">IIQ")  # The part of a record's head that its crc covers.
_LENGTH = Struct(">I")
_ZERO_SECTOR = bytes(SECTOR_BYTES)
_STUFFED = 0x8000_0000
_STUFF_EVERY = 256
_CURE = "put the whole file back or restore a backup"
_FILL = FILL_SECTOR * ((1 << 20) // SECTOR_BYTES)

RECORD_HEAD_BYTES = _RECORD_HEAD.size


class SegmentHeader(NamedTuple):
    """What a segment says of itself."""

    version: int
    salt: int
    base_revision: int
    size_bytes: int

    @property
    def records_limit(self) -> int:
        """Where the space for records ends."""
        return self.size_bytes - (TAIL_BYTES if self.version > 1 else 0)


class Seal(NamedTuple):
    """Where a full segment ends."""

    end_offset: int
    last_revision: int


class SegmentRecord(NamedTuple):
    """A checked record: where it ends and what it holds."""

    end_offset: int
    last_revision: int
    entries: list[bytes]


def encode_header(header: SegmentHeader) -> bytes:
    fields = _HEAD_2.pack(_MAGIC_2, header.salt, header.base_revision, header.size_bytes)
    return _with_crc(fields).ljust(HEADER_BYTES, b"\x00")


def encode_tail(header: SegmentHeader) -> bytes:
    """The last two sectors of a new segment: not sealed, and the end."""
    return FILL_SECTOR + _end_sector(header)


def encode_seal(seal: Seal) -> bytes:
    return _sector(_SEAL.pack(_SEAL_MAGIC, *seal))


def read_header(path: Path) -> SegmentHeader:
    """Checked, and so are the size and the end of the file that it belongs to."""
    with path.open("rb") as file:
        raw = file.read(HEADER_BYTES)
        found_bytes = file.seek(0, 2)
        header = _decode_header(path, raw, found_bytes)
        if header.version == 1:
            return header
        if found_bytes < header.size_bytes:
            raise StoreCorrupt(
                f"{path}: the journal segment is cut short: {found_bytes} bytes found, "
                f"{header.size_bytes} expected; {_CURE}"
            )
        file.seek(header.size_bytes - SECTOR_BYTES)
        if file.read(SECTOR_BYTES) != _end_sector(header):
            raise StoreCorrupt(
                f"{path}: the end of the journal segment is missing, at byte {header.size_bytes - SECTOR_BYTES} "
                f"of {header.size_bytes}: it was cut and grown again, or overwritten; {_CURE}"
            )
    return header


def is_reusable(path: Path) -> bool:
    """Whether what is left in it keeps the rule about zeros, which files of the old format do not."""
    try:
        return read_header(path).version > 1
    except StoreCorrupt:
        return False


def read_seal(path: Path, header: SegmentHeader) -> Seal | None:
    """None if the segment is not sealed; StoreCorrupt if the place of the seal holds something else."""
    if header.version == 1:
        return None
    with path.open("rb") as file:
        file.seek(header.records_limit)
        sector = file.read(SECTOR_BYTES)
    if sector == FILL_SECTOR:
        return None
    magic, *fields = _SEAL.unpack_from(sector)
    seal = Seal(*fields)
    if magic != _SEAL_MAGIC or sector != encode_seal(seal):
        raise StoreCorrupt(
            f"{path}: the seal of the journal segment is damaged, at byte {header.records_limit}; {_CURE}"
        )
    return seal


def encode_record(salt: int, last_revision: int, entries: list[bytes]) -> bytes:
    parts: list[bytes] = []
    for entry in entries:
        parts += (_LENGTH.pack(len(entry)), entry)
    payload = b"".join(parts)
    count = len(entries)
    if _ZERO_SECTOR in payload:
        payload = _stuffed(payload)
        count |= _STUFFED
    crc = _record_crc(salt, len(payload), count, last_revision, payload)
    return _RECORD_HEAD.pack(_RECORD_MAGIC, crc, len(payload), count, last_revision) + payload


def room_for(entry: bytes) -> int:
    """What a record of this entry alone takes at most, and the end marker behind it."""
    payload_bytes = _LENGTH.size + len(entry)
    return RECORD_HEAD_BYTES + payload_bytes + payload_bytes // _STUFF_EVERY + RECORD_HEAD_BYTES


def encode_end_marker(salt: int, durable_revision: int) -> bytes:
    return encode_record(salt, durable_revision, [])


def read_records(path: Path, header: SegmentHeader) -> Iterator[SegmentRecord]:
    """Every record up to the end; StoreCorrupt if what stands behind them is not what a crash may leave there."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        at = HEADER_BYTES
        while (record := _record_at(raw, at, header)) is not None:
            if record.entries:
                yield record
            at = record.end_offset
        if _has_record_after(raw, at, header):
            raise StoreCorrupt(f"{path}: the journal is damaged at byte {at}; restore a backup")
        if header.version > 1 and (lost_at := _zero_sector_after(raw, at, header)) is not None:
            raise StoreCorrupt(
                f"{path}: the journal is damaged behind byte {at}: byte {lost_at} and those after it are zeros, "
                f"which are never written there; {_CURE}"
            )


def _decode_header(path: Path, raw: bytes, found_bytes: int) -> SegmentHeader:
    if len(raw) < HEADER_BYTES:
        raise StoreCorrupt(
            f"{path}: the journal segment is cut short: {found_bytes} bytes found, at least {HEADER_BYTES} "
            f"expected; {_CURE}"
        )
    for version, magic, head in ((1, _MAGIC_1, _HEAD_1), (2, _MAGIC_2, _HEAD_2)):
        fields = raw[: head.size]
        if raw.startswith(magic) and raw.startswith(_with_crc(fields)):
            _, salt, base_revision, *size_bytes = head.unpack(fields)
            return SegmentHeader(version, salt, base_revision, *(size_bytes or [found_bytes]))
    raise StoreCorrupt(f"{path}: the header of the journal segment is damaged; restore a backup")


def _end_sector(header: SegmentHeader) -> bytes:
    return _sector(_END.pack(_END_MAGIC, header.salt, header.size_bytes))


def _sector(fields: bytes) -> bytes:
    checked = _with_crc(fields)
    return checked + FILL_SECTOR[len(checked) :]


def _with_crc(fields: bytes) -> bytes:
    return fields + _CRC.pack(zlib.crc32(fields))


def _record_at(raw: mmap.mmap, at: int, header: SegmentHeader) -> SegmentRecord | None:
    if at + RECORD_HEAD_BYTES > header.records_limit:
        return None
    magic, crc, payload_bytes, count, last_revision = _RECORD_HEAD.unpack_from(raw, at)
    start = at + RECORD_HEAD_BYTES
    end = start + payload_bytes
    if magic != _RECORD_MAGIC or end > header.records_limit:
        return None
    payload = raw[start:end]
    if crc != _record_crc(header.salt, payload_bytes, count, last_revision, payload):
        return None
    return SegmentRecord(
        end, last_revision, list(_entries(_unstuffed(payload) if count & _STUFFED else payload))
    )


def _entries(payload: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(payload):
        length: int = _LENGTH.unpack_from(payload, at)[0]
        yield payload[at + _LENGTH.size : at + _LENGTH.size + length]
        at += _LENGTH.size + length


def _stuffed(payload: bytes) -> bytes:
    return b"\x01".join(payload[at : at + _STUFF_EVERY] for at in range(0, len(payload), _STUFF_EVERY))


def _unstuffed(payload: bytes) -> bytes:
    plain = bytearray(payload)
    del plain[_STUFF_EVERY :: _STUFF_EVERY + 1]
    return bytes(plain)


def _has_record_after(raw: mmap.mmap, at: int, header: SegmentHeader) -> bool:
    found = raw.find(_RECORD_MAGIC, at + 1)
    while found != -1:
        if _record_at(raw, found, header) is not None:
            return True
        found = raw.find(_RECORD_MAGIC, found + 1)
    return False


def _zero_sector_after(raw: mmap.mmap, at: int, header: SegmentHeader) -> int | None:
    """The offset of an aligned sector of zeros, wholly behind `at`."""
    found = raw.find(_ZERO_SECTOR, at, header.records_limit)
    while found != -1:
        aligned = -(-found // SECTOR_BYTES) * SECTOR_BYTES
        if raw[aligned : aligned + SECTOR_BYTES] == _ZERO_SECTOR:
            return aligned if aligned + SECTOR_BYTES <= header.records_limit else None
        found = raw.find(_ZERO_SECTOR, aligned, header.records_limit)
    return None


def _record_crc(salt: int, payload_bytes: int, count: int, last_revision: int, payload: bytes) -> int:
    seed = zlib.crc32(_CHECKED.pack(payload_bytes, count, last_revision), salt & 0xFFFF_FFFF)
    return zlib.crc32(payload, seed)


# -- the file itself


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


def allocate(path: Path, size_bytes: int) -> None:
    """Write the fill pattern, so that later syncs find every block in place; no file is left behind on failure."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for at in range(0, size_bytes, len(_FILL)):
            _write_all(descriptor, _FILL[: min(len(_FILL), size_bytes - at)])
        os.fsync(descriptor)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    """A write may stop short of a full disk; the next one then says so."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])
