"""How a local store lays its state out on an engine, and a batch in the journal; `PendingBatch` writes batches.

    r <key>                     stored record: u8 format · u64 create · u64 mod · u64 version · u8 blobs · [36 each] · value
    c <u64 revision>            change: u64 time in ms, then per key: u32 key · u32 stored · u32 previous · the three
    b <blob id> <key>           empty: the record of this key refers to this blob
    m <name>                    the store's own figures

A length of 2^32−1 stands for "none" (a delete, or a key that was not there). The journal's entry for a batch is
u64 revision · u64 revision before it · u64 time in ms, then per key: u32 key · u32 stored · the two. The revision
before lets a replay tell a hole from a number that was burnt by a failed write. All numbers are big-endian.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from holdfast.storage.errors import StoreCorrupt
from holdfast.storage.port import Event, Record, record_of

RECORD = b"r"
CHANGE = b"c"
BLOB_REFERENCE = b"b"
META_FORMAT = b"mformat"
META_PROGRESS = b"mprogress"  # u64 applied revision · u64 compacted revision
META_RESTORING = b"mrestoring"
META_CLOCK = b"mclock"  # u64 time of the newest commit when the history was compacted last

FORMAT = b"1"
STORED_FORMAT = 1
NONE_BYTES = 0xFFFF_FFFF
_BLOB_ID_BYTES = 36

HEAD = Struct(">BQQQB")
_HEAD_BYTES = HEAD.size
BLOBS_AT = _HEAD_BYTES - 1
REVISION = Struct(">Q")
PROGRESS = Struct(">QQ")
ENTRY = Struct(">QQQ")
_LENGTHS2 = Struct(">II")
LENGTHS2_BYTES = _LENGTHS2.size  # A change begins with the lengths of an entry.
LENGTHS3 = Struct(">III")


RecordChange = tuple[bytes, bytes | None, bytes | None]
"""One key of a batch as it is stored: the key, the new stored record, and the one before. Plain, because each commit makes several."""


class JournalEntry(NamedTuple):
    """One committed batch as the journal keeps it."""

    revision: int
    after_revision: int
    at_ms: int
    puts: list[tuple[bytes, bytes | None]]


def after_prefix(prefix: bytes) -> bytes:
    """The end of the range of all keys with a one-byte prefix."""
    return bytes([prefix[0] + 1])


def change_key(revision: int) -> bytes:
    return CHANGE + REVISION.pack(revision)


def blob_reference_key(blob_id: str, key: bytes) -> bytes:
    return BLOB_REFERENCE + blob_id.encode() + key


def encode_stored(record: Record, blobs: tuple[str, ...] = ()) -> bytes:
    _, value, create_revision, mod_revision, version = record
    head = HEAD.pack(STORED_FORMAT, create_revision, mod_revision, version, len(blobs))
    if not blobs:
        return head + value
    return b"".join([head, *[blob_id.encode() for blob_id in blobs], value])


def decode_stored(key: bytes, stored: bytes, *, keys_only: bool = False) -> Record:
    stored_format, create, mod, version, blob_count = HEAD.unpack_from(stored)
    if stored_format != STORED_FORMAT:
        raise StoreCorrupt(f"the record of key {key!r} has the unknown format {stored_format}")
    value = b"" if keys_only else stored[_HEAD_BYTES + blob_count * _BLOB_ID_BYTES :]
    return record_of((key, value, create, mod, version))


def change_revision(key: bytes) -> int:
    revision: int = REVISION.unpack_from(key, 1)[0]
    return revision


def stored_mod_revision(stored: bytes, at: int = 0) -> int:
    """Of the stored record that begins at this place."""
    revision: int = HEAD.unpack_from(stored, at)[2]
    return revision


def stored_blobs(stored: bytes | None) -> tuple[str, ...]:
    count = 0 if stored is None else stored[BLOBS_AT]
    if stored is None or not count:
        return ()
    return tuple(
        stored[at : at + _BLOB_ID_BYTES].decode()
        for at in range(HEAD.size, HEAD.size + count * _BLOB_ID_BYTES, _BLOB_ID_BYTES)
    )


def change_at_ms(raw: bytes | None) -> int:
    """When a change was committed, or a mark of the clock was set; 0 if there is none."""
    return 0 if raw is None or len(raw) < REVISION.size else int(REVISION.unpack_from(raw)[0])


def encode_clock(at_ms: int) -> bytes:
    return REVISION.pack(at_ms)


def decode_change(revision: int, raw: bytes) -> list[Event]:
    try:
        return _decode_change(revision, raw)
    except (StructError, IndexError):
        raise _damaged_change(revision) from None


def _decode_change(revision: int, raw: bytes) -> list[Event]:
    events: list[Event] = []
    at = REVISION.size
    while at < len(raw):
        key_bytes, stored_bytes, previous_bytes = LENGTHS3.unpack_from(raw, at)
        at += LENGTHS3.size
        key = raw[at : at + key_bytes]
        at += key_bytes
        record = previous = None
        if stored_bytes != NONE_BYTES:
            record = decode_stored(key, raw[at : at + stored_bytes])
            at += stored_bytes
        if previous_bytes != NONE_BYTES:
            previous = decode_stored(key, raw[at : at + previous_bytes])
            at += previous_bytes
        events.append(Event(revision, key, record, previous))
    if at != len(raw):
        raise _damaged_change(revision)
    return events


def previous_spans(revision: int, raw: bytes) -> list[tuple[bytes, int, int]]:
    """For each key of a change: where the record before it begins, and its size; 0 if the key was not there."""
    spans: list[tuple[bytes, int, int]] = []
    at, end = REVISION.size, len(raw)
    try:
        while at < end:
            key_bytes, stored_bytes, previous_bytes = LENGTHS3.unpack_from(raw, at)
            at += LENGTHS3.size
            key = raw[at : at + key_bytes]
            at += key_bytes + (0 if stored_bytes == NONE_BYTES else stored_bytes)
            size = 0 if previous_bytes == NONE_BYTES else previous_bytes
            spans.append((key, at, size))
            at += size
    except StructError:
        raise _damaged_change(revision) from None
    if at != end:
        raise _damaged_change(revision)
    return spans


def _damaged_change(revision: int) -> StoreCorrupt:
    return StoreCorrupt(f"the change of revision {revision} in the history is damaged; restore a backup")


def decode_entry(raw: bytes) -> JournalEntry:
    revision, after_revision, at_ms = ENTRY.unpack_from(raw)
    return JournalEntry(revision, after_revision, at_ms, list(_entry_puts(raw)))


def _entry_puts(raw: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    at = ENTRY.size
    while at < len(raw):
        key_bytes, stored_bytes = _LENGTHS2.unpack_from(raw, at)
        at += _LENGTHS2.size
        key = raw[at : at + key_bytes]
        at += key_bytes
        if stored_bytes == NONE_BYTES:
            yield key, None
        else:
            yield key, raw[at : at + stored_bytes]
            at += stored_bytes


def check_format(raw: bytes | None, folder: object) -> None:
    """Refuse an engine that another version of the layout wrote."""
    if raw not in (None, FORMAT):
        raise StoreCorrupt(
            f"{folder} has the format {raw!r}, this version reads {FORMAT!r}; use the version that wrote it"
        )


def encode_progress(applied_revision: int, compacted_revision: int) -> bytes:
    return PROGRESS.pack(applied_revision, compacted_revision)


def decode_progress(raw: bytes | None) -> tuple[int, int]:
    if raw is None:
        return 0, 0
    applied, compacted = PROGRESS.unpack(raw)
    return applied, compacted
