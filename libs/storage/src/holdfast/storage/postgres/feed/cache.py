"""Records that transactions may read without asking the database. The commit checks all that was read here,
so an entry that is out of date costs a second attempt and nothing else.

Three sources tell of a key, in any order: answers to fetches, commits of this process, the change feed. Each says what the key
was as of a revision, and older knowledge never replaces newer. For a key that is not in the cache the last changes are
remembered by revision alone, so that the answer to an old question does not come in after the event that overtook it:

    FOLLOWING  --the feed fails, or history was compacted under it-->  LOST: empty, takes nothing in
    LOST       --the feed is at the newest revision again-->           FOLLOWING
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.storage.known_ranges import ENTRY_BYTES, RangeCache
from holdfast.storage.port import ABSENT, Batch, Record

ENTRIES_MAX = 500_000
CHANGES_MAX = 4096  # Of keys that are not cached: more than pass during any fetch that is worth keeping.
GUESS_AFTER = 8  # Fetches in a row that found no key of a table, before a new one is taken to be absent.
TABLES_MAX = 256
RANGES_SHARE = 8  # One part in so many is for ranges.


class Known(NamedTuple):
    """What a key was at a revision; `record` None: it did not exist."""

    record: Record | None
    revision: int


class RecordCache:
    """The cache of one store; least recently used entries go first. A size of 0 switches it off."""

    def __init__(
        self,
        *,
        size_bytes_max: int,
        revision: int,
        lag_s_max: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size_bytes_max = size_bytes_max
        self._lag_s_max = lag_s_max
        self._now_s = now_s
        self._entries: OrderedDict[bytes, Known] = OrderedDict()
        self._size_bytes = 0
        self._changed: OrderedDict[bytes, int] = (
            OrderedDict()
        )  # Keys without an entry, and when they changed.
        self._floor = revision  # Changes up to here may be missing in `_changed`.
        self._is_following = size_bytes_max > 0
        self._followed_at_s = now_s()
        self._absences = _Absences()  # Of keys …
        self._empty_ranges = _Absences()  # … and of ranges, by their first key.
        self._ranges = RangeCache(size_bytes_max // RANGES_SHARE)
        self._ranges.told_revision = revision
        self.hits = 0
        self.misses = 0
        self.verified = 0
        self.conflicts = 0

    def __len__(self) -> int:
        return len(self._entries) + len(self._ranges)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries or key in self._ranges

    def figures(self) -> dict[str, float]:
        return {
            "cache_hits": self.hits,
            "cache_misses": self.misses,
            "cache_verified": self.verified,
            "cache_conflicts": self.conflicts,
            "cache_entries": len(self._entries),
            "cache_bytes": self._size_bytes + self._ranges.size_bytes,
            "cache_ranges": len(self._ranges),
        }

    # -- what a transaction reads

    @property
    def is_readable(self) -> bool:
        """Whether the feed keeps it: a database that has not been heard of for a while may have moved far on."""
        return self._is_following and self._now_s() - self._followed_at_s <= self._lag_s_max

    def find(self, key: bytes) -> Known | None:
        known = self._entries.get(key)
        if known is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return known

    def find_range(self, start: bytes, end: bytes | None) -> tuple[list[Record], int] | None:
        """All records of the range in order, and the revision as of which they are known."""
        known = self._ranges.find(start, end)
        if known is None:
            self.misses += 1
        else:
            self.hits += 1
        return known

    def record_at(self, key: bytes, mod_revision: int | None) -> Record | None:
        """The record that was written then, if it is here."""
        known = self._entries.get(key)
        record = known.record if known is not None else None
        return record if record is not None and record.mod_revision == mod_revision else None

    def guesses_absent(self, keys: Iterable[bytes]) -> bool:
        """Whether keys that nothing is known of are likely to be new, as those before them in their tables were."""
        return all(map(self._absences.is_likely, keys))

    def guesses_empty(self, start: bytes) -> bool:
        """Whether a range that is not known is likely to be empty, as those before it in its table were."""
        return self._empty_ranges.is_likely(start)

    def doubt(self, keys: Iterable[bytes]) -> None:
        """A commit refused what was read here of one of these keys, or of a range that begins with one."""
        self.conflicts += 1
        for key in keys:
            self._ranges.drop(key)
            if key in self._entries:
                self._drop(key)

    # -- what is told

    def fetched(self, records: Mapping[bytes, Record | None], revision: int) -> None:
        """The database says so, as of `revision`."""
        for key, record in records.items():
            if (
                key not in self._entries
            ):  # Else it was fetched again, and says nothing of keys that are not known.
                self._absences.seen(key, is_absent=record is None)
            self._learn(key, record, revision)

    def fetched_range(
        self, start: bytes, end: bytes | None, records: Sequence[Record], revision: int
    ) -> None:
        """The database says that these are all records of the range, as of `revision`."""
        self._empty_ranges.seen(start, is_absent=not records)
        if self._is_following:
            self._ranges.fetched(start, end, records, revision)

    def committed(self, batch: Batch, revision: int) -> None:
        """This process has committed the batch: what it expected was so, what it wrote is so."""
        self._ranges.committed(batch, revision)
        for key, value in batch.puts.items():
            self._learn_put(key, value, batch.expects.get(key), revision)
        for key in batch.deletes:
            if key in batch.expects or key in self._entries:
                self._learn(key, None, revision)
            else:
                self.passed(key, revision)
        for key, expected in batch.expects.items():
            if expected == ABSENT and key not in batch.puts:
                self._learn(key, None, revision)

    def changed(self, key: bytes, record: Record | None, revision: int) -> None:
        """The feed tells of a key that is in the cache, or that is watched: the record was read for that anyway, and what
        one process watches it is likely to decide on, such as the leases that another one granted; if it reads of that
        table at all."""
        self._ranges.changed(key, record, revision)
        if key in self._entries or self._absences.has_seen(key):
            self._learn(key, record, revision)
        else:
            self.passed(key, revision)

    def passed(self, key: bytes, revision: int) -> None:
        """A key changed, and what it is now is not told: for one without an entry that is enough."""
        if not self._is_following:
            return
        known = self._entries.get(key)
        if known is None:
            self._note_change(key, revision)
        elif known.revision < revision:
            self._drop(key, revision)

    def _learn_put(self, key: bytes, value: bytes, expected: int | None, revision: int) -> None:
        before = self.record_at(key, expected)
        if before is None and expected != ABSENT:
            self.passed(key, revision)  # Its version follows from a record that is not known.
            return
        self._learn(key, Record.after(before, key, value, revision), revision)

    def _learn(self, key: bytes, record: Record | None, revision: int) -> None:
        if not self._is_following:
            return
        known = self._entries.get(key)
        if known is None:
            if revision < self._floor or revision < self._changed.get(key, 0):
                return
            self._changed.pop(key, None)
        elif known.revision >= revision:
            return
        else:
            self._size_bytes -= _size(key, known)
        known = self._entries[key] = Known(record, revision)
        self._entries.move_to_end(key)
        self._size_bytes += _size(key, known)
        while (
            self._size_bytes > self._size_bytes_max - self._size_bytes_max // RANGES_SHARE
            or len(self._entries) > ENTRIES_MAX
        ):
            self._drop(next(iter(self._entries)))

    def _drop(self, key: bytes, revision: int = 0) -> None:
        """Nothing older than what was known is taken in later."""
        known = self._entries.pop(key)
        self._size_bytes -= _size(key, known)
        self._note_change(key, max(revision, known.revision))

    def _note_change(self, key: bytes, revision: int) -> None:
        changed = self._changed
        if changed.get(key, 0) < revision:
            changed[key] = revision
            changed.move_to_end(key)
        while len(changed) > CHANGES_MAX:
            self._floor = max(self._floor, changed.popitem(last=False)[1])

    # -- how the feed is

    def told(self, revision: int) -> None:
        """The feed has told of every change up to here."""
        self._ranges.told_revision = revision

    def followed(self, revision: int) -> None:
        """The feed has told everything up to `revision`, and that is where the database is."""
        self._followed_at_s = self._now_s()
        if not self._is_following and self._size_bytes_max > 0:
            self._floor = self._ranges.told_revision = revision
            self._is_following = True

    def skipped(self, revision: int) -> None:
        """The feed did not tell of the changes up to here, because there was no entry to keep."""
        assert not len(self), "entries are kept by events"
        self._floor = max(self._floor, revision)
        self._ranges.told_revision = revision

    def lost(self) -> None:
        """The feed may have missed changes, or it is unknown when it goes on."""
        self._is_following = False
        self._entries.clear()
        self._changed.clear()
        self._ranges.clear()
        self._size_bytes = 0


class _Absences:
    """Guesses by table whether what nothing is known of exists. If it does, that ends the guessing for a while."""

    def __init__(self) -> None:
        self._in_a_row: dict[bytes, int] = {}

    def has_seen(self, key: bytes) -> bool:
        """Whether a key of its table was ever asked for here."""
        return _table_of(key) in self._in_a_row

    def is_likely(self, key: bytes) -> bool:
        return self._in_a_row.get(_table_of(key), 0) >= GUESS_AFTER

    def seen(self, key: bytes, *, is_absent: bool) -> None:
        table = _table_of(key)
        if len(self._in_a_row) >= TABLES_MAX and table not in self._in_a_row:
            self._in_a_row.clear()
        self._in_a_row[table] = self._in_a_row.get(table, 0) + 1 if is_absent else 0


def _table_of(key: bytes) -> bytes:
    """The first element of the key's tuple."""
    return key[: key.find(0) + 1]


def _size(key: bytes, known: Known) -> int:
    value_bytes = 0 if known.record is None else len(known.record.value)
    return ENTRY_BYTES + len(key) + value_bytes
