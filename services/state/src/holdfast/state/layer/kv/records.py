"""The records of the key space: the keys as they are, and the log of what changed.

Its revisions are its own: they grow by one for each change of the key space, whatever else is committed to the store
(decision 21). The log has every change with what was there before, so that the past can be read by taking changes back, and a
watch goes on from any revision that is kept. It also has the values that are not small, once: a key and what replaced it
point there.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from holdfast.state.layer.kv.errors import KeyMissing, KvRequestTooLarge
from holdfast.state.layer.kv.operation import UNBOUNDED, KeyValue
from holdfast.state.layer.records_pb2 import KvEvent, KvLease, KvProgress, KvRecord
from holdfast.storage.keys import pack, unpack
from holdfast.storage.port import KEY_BYTES_MAX, RANGE_LIMIT_MAX, Bounds, Record, View
from holdfast.storage.tables import Subspace, Table

FIRST_REVISION: Final = 1
"""Of a key space that nothing was written to."""
INLINE_BYTES_MAX: Final = 256
"""A larger value lies in the log alone."""
PIECE_BYTES: Final = 512 << 10
"""A larger value lies in pieces of this size."""
KEY_BYTES: Final = 2000
HISTORY_PAGE: Final = 256
"""Records of the log that are read at once: one may have half a megabyte."""

PROGRESS: Final = pack(("kvrevision",))
LOG = Table("kvlog", KvEvent)
LEASES = Table("kvlease", KvLease)
LEASE_KEYS: Final = Subspace("kvleasekey")
"""A key for each pair of a lease and a key that ends with it; the records are empty."""
VALUES: Final = Subspace("kvvalue")
_LOG: Final = pack(("kvlog",))
_KEYS: Final = pack(("kv",)) + b"@"
_END: Final = pack(("kv",)) + b"\xff"

record_of = KvRecord.FromString
event_of = KvEvent.FromString


def key_of(key: bytes) -> bytes:
    """Where the record of a key lies."""
    if 0 in key:
        key = key.replace(b"\0", b"\0\xff")
    found = b"%b%b\0" % (_KEYS, key)
    if len(found) > KEY_BYTES_MAX:
        raise KvRequestTooLarge(
            f"{KvRequestTooLarge.text}: a key has at most {KEY_BYTES} bytes, zero bytes count twice"
        )
    return found


def plain_key(record_key: bytes) -> bytes:
    """The key that a record is of."""
    key = record_key[len(_KEYS) : -1]
    return key.replace(b"\0\xff", b"\0") if 0 in key else key


def bounds_of(key: bytes, range_end: bytes) -> Bounds:
    """Where the records of [key, range_end) lie; nothing if the end is not behind the key."""
    if not key:
        raise KeyMissing
    start = key_of(key[:KEY_BYTES])
    if len(key) > KEY_BYTES:
        start += b"\0"  # No key is as long, so what comes next begins the range.
    if range_end == UNBOUNDED:
        return start, _END
    return start, key_of(range_end[:KEY_BYTES]) + b"\0" * (len(range_end) > KEY_BYTES)


def is_within(key: bytes, start: bytes, range_end: bytes) -> bool:
    """Whether a range as clients give it has this key."""
    if not range_end:
        return key == start
    return key >= start and (range_end == UNBOUNDED or key < range_end)


class Entry(NamedTuple):
    """A key with its record, decoded and as it is stored."""

    key: bytes
    record: KvRecord
    raw: bytes

    @classmethod
    def of(cls, record: Record) -> "Entry":
        return cls(plain_key(record.key), record_of(record.value), record.value)


class MoreThanAPage(Exception):
    """There are more keys, or there is more history, than is read at once."""


def entries(view: View, start: bytes, end: bytes | None, *, is_one_page: bool = False) -> list[Entry]:
    """All keys whose records lie there; MoreThanAPage if only one page may be read and there are more."""
    found: list[Entry] = []
    while end is None or start < end:
        page = view.range(start, end, limit=RANGE_LIMIT_MAX)
        found += map(Entry.of, page)
        if len(page) < RANGE_LIMIT_MAX:
            break
        if is_one_page:
            raise MoreThanAPage
        start = page[-1].key + b"\0"
    return found


def key_value(key: bytes, record: KvRecord, value: bytes) -> KeyValue:
    return KeyValue(key, value, record.create_revision, record.mod_revision, record.version, record.lease)


def value_of(view: View, record: KvRecord) -> bytes:
    """Where the record points to is there as long as anybody may read the record."""
    if not record.value_bytes:
        return record.value
    return content_in(view.get_many(content_keys(record)), record)


def content_keys(record: KvRecord) -> list[bytes]:
    """The records that its value is read from, if it has none itself."""
    if not record.value_bytes:
        return []
    if record.value_bytes <= PIECE_BYTES:
        return [log_key(record.mod_revision, record.sub)]
    return piece_keys(record)


def content_in(found: Mapping[bytes, Record], record: KvRecord) -> bytes:
    """Its value, of records that were read."""
    if not record.value_bytes:
        return record.value
    contents = [found[key].value for key in content_keys(record)]
    return event_of(contents[0]).value if record.value_bytes <= PIECE_BYTES else b"".join(contents)


def value_keys(record: KvRecord) -> list[bytes]:
    """The records that hold its value, if it has none itself."""
    if not record.value_bytes:
        return []
    return [log_key(record.mod_revision, record.sub)] + (
        piece_keys(record) if record.value_bytes > PIECE_BYTES else []
    )


def piece_keys(record: KvRecord) -> list[bytes]:
    """Where a very large value lies."""
    pieces = -(-record.value_bytes // PIECE_BYTES)
    return [VALUES.key(record.mod_revision, record.sub, piece) for piece in range(pieces)]


def note_earlier(
    earlier: dict[bytes, bytes], changes: Iterable[KvEvent], key: bytes, range_end: bytes
) -> None:
    """Of changes in their order: the record that each key of a range had before the first of them; empty if there was none."""
    for event in changes:
        if event.key not in earlier and is_within(event.key, key, range_end):
            earlier[event.key] = event.previous


def read_progress(view: View) -> KvProgress:
    record = view.get(PROGRESS)
    return KvProgress(revision=FIRST_REVISION) if record is None else KvProgress.FromString(record.value)


def log_key(revision: int, sub: int) -> bytes:
    """As `LOG.key` makes it, several times as fast."""
    return _LOG + pack((revision, sub))


def log_bounds(first: int, last: int | None = None) -> tuple[bytes, bytes]:
    """Where the log of these revisions lies; without a last one, of all from the first on."""
    end = LOG.bounds()[1] if last is None else LOG.key(last + 1)
    return LOG.key(first), end


def revision_of(log_key: bytes) -> int:
    """Of a record of the log."""
    revision = unpack(log_key)[1]
    assert isinstance(revision, int)
    return revision
