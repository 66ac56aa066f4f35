"""Ranges whose records are all known, such as the members of a transaction: a read of one asks no database and no engine.

On PostgreSQL a range is known as of a revision: what this process committed after expecting the range, or the newest that the
feed has told. The commit checks it as of that revision, so a range that is out of date costs a second attempt and nothing else.
A local store tells of each batch as it is staged, so what is known is what a transaction sees.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from holdfast.storage.port import EMPTY, Batch, Record

RANGES_MAX = 10_000
RANGE_RECORDS_MAX = 64  # A longer range is read less often than it changes.
VALUE_BYTES_MAX = 1024
ENTRY_BYTES = 400  # Of one record or range beside its keys and its value.


class KnownRange:
    """All records of [start, end) as of a revision."""

    __slots__ = ("end", "records", "revision", "start")

    def __init__(self, start: bytes, end: bytes, records: dict[bytes, Record], revision: int) -> None:
        self.start = start
        self.end = end
        self.records = records
        self.revision = revision


class RangeCache:
    """Ranges that do not overlap; the least recently used go first."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self.size_bytes = 0
        self._ranges: OrderedDict[bytes, KnownRange] = OrderedDict()  # By their first key.
        self.starts: list[bytes] = []
        """The same, sorted; empty while no range is known."""
        self.told_revision = 0
        """Up to here the feed has told of every change."""

    def __len__(self) -> int:
        return len(self._ranges)

    def __contains__(self, key: bytes) -> bool:
        return bool(self.starts) and self._around(key) is not None

    def find(self, start: bytes, end: bytes | None) -> tuple[list[Record], int] | None:
        """The records in order, and the revision as of which they are known."""
        known = self._ranges.get(start)
        if known is None or known.end != end:
            return None
        self._ranges.move_to_end(start)
        records = known.records
        return [records[key] for key in sorted(records)], max(known.revision, self.told_revision)

    def fetched(self, start: bytes, end: bytes | None, records: Sequence[Record], revision: int) -> None:
        """The database says that these are all, as of `revision`."""
        if revision < self.told_revision:
            return  # What was told meanwhile would be missing.
        if end is None or end <= start or len(records) > RANGE_RECORDS_MAX or any(map(_is_large, records)):
            return
        known = self._ranges.get(start)
        if known is not None:
            if known.revision >= revision:
                return
            self.drop(start)
        place = bisect_left(self.starts, start)
        if place and self._ranges[self.starts[place - 1]].end > start:
            return
        if place < len(self.starts) and self.starts[place] < end:
            return
        self.starts.insert(place, start)
        self._ranges[start] = KnownRange(start, end, {record.key: record for record in records}, revision)
        self.size_bytes += _range_size(start) + sum(map(_size, records))
        self._make_room()

    def changed(self, key: bytes, record: Record | None, revision: int) -> None:
        """The feed tells of a key, in the order of revisions."""
        if not self.starts:
            return
        known = self._around(key)
        if known is not None and known.revision < revision:
            self._write(known, key, record)

    def staged(self, newest: Iterable[tuple[bytes, Record | None]], revision: int) -> None:
        """A local store has staged a batch; these are its keys."""
        starts = self.starts
        if not starts:
            return
        low, high = starts[0], self._ranges[starts[-1]].end
        for key, record in newest:
            if low <= key < high:  # Most keys are of other tables.
                self.changed(key, record, revision)
                if not starts:
                    return

    def committed(self, batch: Batch, revision: int) -> None:
        """This process has committed the batch: a range that it expected has not changed since it was read. The feed may have
        been quicker with it, and with what came after."""
        if self.told_revision >= revision:
            return
        for start, end, read_revision in batch.expect_ranges:
            if read_revision == EMPTY and end is not None:
                self._learn_new(start, end, batch, revision)
        if not self.starts:
            return
        checked: set[bytes] = set()
        touched: dict[bytes, KnownRange] = {}
        for start, end, read_revision in batch.expect_ranges:
            known = self._ranges.get(start)
            if known is not None and known.end == end:
                touched[start] = known
                # Else it was read past the cache, and what changed before that is not known.
                if read_revision <= max(known.revision, self.told_revision):
                    checked.add(start)
        low, high = self.starts[0], self._ranges[self.starts[-1]].end
        for key in (*batch.puts, *batch.deletes):
            if (
                low <= key < high and (known := self._around(key)) is not None
            ):  # Most keys are of other tables.
                touched[known.start] = known
        for start, known in touched.items():
            if known.revision >= revision:
                continue
            if start in checked or self.told_revision >= revision - 1:
                self._apply(known, batch, revision)
            else:
                self.drop(start)  # What others changed before is not told yet.

    def _learn_new(self, start: bytes, end: bytes, batch: Batch, revision: int) -> None:
        """The range was empty before the batch: what it wrote there is all."""
        puts = sorted((key, value) for key, value in batch.puts.items() if start <= key < end)
        self.fetched(start, end, [Record.after(None, key, value, revision) for key, value in puts], revision)

    def _apply(self, known: KnownRange, batch: Batch, revision: int) -> None:
        known.revision = revision
        for key, value in batch.puts.items():
            if known.start <= key < known.end:
                self._write(known, key, Record.after(known.records.get(key), key, value, revision))
        for key in batch.deletes:
            if known.start <= key < known.end:
                self._write(known, key, None)

    def _write(self, known: KnownRange, key: bytes, record: Record | None) -> None:
        if known.start not in self._ranges:
            return  # Dropped by an earlier change of the same commit.
        before = known.records.pop(key, None)
        if before is not None:
            self.size_bytes -= _size(before)
        if record is not None:
            known.records[key] = record
            self.size_bytes += _size(record)
        elif before is not None and not known.records:
            self.drop(known.start)  # As a transaction that is over: nothing asks for it again.
            return
        if len(known.records) > RANGE_RECORDS_MAX or (record is not None and _is_large(record)):
            self.drop(known.start)
        self._make_room()

    def _make_room(self) -> None:
        while self.size_bytes > self._size_bytes_max or len(self._ranges) > RANGES_MAX:
            self.drop(next(iter(self._ranges)))

    def drop(self, start: bytes) -> None:
        known = self._ranges.pop(start, None)
        if known is not None:
            del self.starts[bisect_left(self.starts, start)]
            self.size_bytes -= _range_size(start) + sum(map(_size, known.records.values()))

    def clear(self) -> None:
        self._ranges.clear()
        self.starts.clear()
        self.size_bytes = 0

    def _around(self, key: bytes) -> KnownRange | None:
        if not self.starts[0] <= key < self._ranges[self.starts[-1]].end:
            return None  # As most keys, which are of other tables.
        known = self._ranges[self.starts[bisect_right(self.starts, key) - 1]]
        return known if key < known.end else None


def _range_size(start: bytes) -> int:
    return ENTRY_BYTES + 2 * len(start)


def _size(record: Record) -> int:
    return ENTRY_BYTES + len(record.key) + len(record.value)


def _is_large(record: Record) -> bool:
    return len(record.value) > VALUE_BYTES_MAX
