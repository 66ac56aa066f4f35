"""A local store as of an earlier revision, made from the records of now and the changes since then.

A record whose mod_revision is at most R is the same at R and now. Of every other key that existed at R, the first change
after R carries that record as `previous`. So the store as of R is

    every record                           with a mod_revision of at most R, and
    every `previous` of a change after R   with a mod_revision of at most R

and no key comes twice. Nothing is written for this at commit. A single key is followed back from change to change where that
is short; else its first change after R is searched, over whole blocks at a time once `KeyFilters` knows them.

Reads go page by page, and each page is made within one turn of the event loop, from the newest state: no view of the store
is held. Commits between two pages cannot tear the answer, because what a key was at R does not change any more; a
page takes note of all changes up to its own moment first. A compaction between two pages is found by `engine_at`.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from heapq import merge
from operator import itemgetter
from typing import NamedTuple, Protocol

from holdfast.storage.errors import StoreCorrupt
from holdfast.storage.keys import next_key
from holdfast.storage.local import key_filter, layout
from holdfast.storage.local.engine import Engine
from holdfast.storage.local.key_filter import KeyFilters
from holdfast.storage.port import Record

PAGE_COST = 512  # About a millisecond: a key costs 1, and 1 more for every 4 KiB.
COST_BYTES_SHIFT = 12
HOPS_MAX = 64  # Versions of a key followed back before its first change is searched from the other end.
BLOCK_KEYS_MAX = (
    2048  # A block of revisions with more changes gets no filter: making it would hold up the loop.
)
WINDOW_KEYS_SPARE = (
    1024  # Changed keys in memory beyond the limit of a range, before the last ones are dropped.
)
ROWS_BYTES_MAX = 16 << 20  # Changes in memory at once: a large batch is asked for once per key.


class Source(Protocol):
    """What is read: the store."""

    @property
    def revision(self) -> int: ...

    def engine_at(self, revision: int) -> Engine:
        """Raises FutureRevision or Compacted if this revision cannot be read, now."""
        ...


class Span(NamedTuple):
    """Where the record before a change stands: in the change of this revision, from here on, so many bytes."""

    revision: int
    at: int
    size: int


class KeyChange(NamedTuple):
    """One key in a change, with its stored record before."""

    previous: bytes | None


class LocalPast:
    """Point and range reads as of a revision."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._filters = KeyFilters()

    async def get(self, key: bytes, at_revision: int) -> Record | None:
        stored, upto = _followed_back(
            self._source.engine_at(at_revision), key, at_revision, self._source.revision
        )
        after = at_revision
        while after < upto:
            change, after = self._search(self._source.engine_at(at_revision), key, after, upto)
            if change is not None:
                stored = change.previous
                break
            await asyncio.sleep(0)
        if stored is None:
            return None
        record = layout.decode_stored(key, stored)
        if record.mod_revision > at_revision:
            raise _hole(record.mod_revision)
        return record

    def _search(self, engine: Engine, key: bytes, after: int, upto: int) -> tuple[KeyChange | None, int]:
        """The first change of a key in (after, upto], and how far one page of the search has come."""
        after = self._filters.skip(key, after, upto)
        block = (after + 1) >> key_filter.BLOCK_SHIFT
        # Most searches end soon after they began; a search that comes to the start of a block is a long one.
        if (
            after + 1 == key_filter.block_start(block)
            and key_filter.block_end(block) <= min(upto, self._source.revision)
            and self._filters.is_missing(block)
        ):
            return self._search_block(engine, key, block)
        return _first_change(engine, key, after, min(upto, key_filter.block_end(block)))

    def _search_block(self, engine: Engine, key: bytes, block: int) -> tuple[KeyChange | None, int]:
        """The same for a block, of which a filter is made on the way; unless that would take too long."""
        first, last = key_filter.block_start(block), key_filter.block_end(block)
        found: KeyChange | None = None
        keys: list[bytes] = []
        for row_key, raw in engine.scan(layout.change_key(first), layout.change_key(last + 1)):
            revision = layout.change_revision(row_key)
            spans = layout.previous_spans(revision, raw)
            keys += [name for name, _, _ in spans]
            if found is None:
                found = _of_key(spans, raw, key)
            if len(keys) > BLOCK_KEYS_MAX:
                return found, revision
        self._filters.add(block, keys)
        return found, last

    async def range(
        self,
        start: bytes,
        end: bytes | None,
        *,
        limit: int,
        reverse: bool,
        keys_only: bool,
        at_revision: int,
    ) -> list[Record]:
        window = Window(start, end, at_revision, limit=limit, reverse=reverse)
        await self._fill(window)
        return await self._collect(window, keys_only=keys_only)

    async def _fill(self, window: "Window") -> None:
        seen, is_filled = self._source.revision, False
        while not is_filled:
            engine, newest = self._source.engine_at(window.at_revision), self._source.revision
            # Commits go on meanwhile: a page takes more than they add, or the walk would never end.
            is_filled = window.note_changes(engine, newest, cost_max=PAGE_COST, rows_min=2 * (newest - seen))
            seen = newest
            await asyncio.sleep(0)

    async def _collect(self, window: "Window", *, keys_only: bool) -> list[Record]:
        found: list[Record] = []
        rows = ChangeRows()
        while True:
            engine = self._source.engine_at(window.at_revision)
            window.note_changes(engine, self._source.revision)
            cost = 0
            for key, stored in window.candidates(engine, rows):
                cost += 1 + (len(stored) >> COST_BYTES_SHIFT)
                window.pass_by(key)
                if layout.stored_mod_revision(stored) <= window.at_revision:
                    found.append(layout.decode_stored(key, stored, keys_only=keys_only))
                if len(found) == window.limit:
                    return found
                if cost >= PAGE_COST:
                    break
            else:
                return found
            await asyncio.sleep(0)


class Window:
    """The part of a range that is still to be read, and where its changed keys stand as they were at the revision.

    Each of those keys is a record of the answer. So with more than `limit` of them the range can end earlier, and
    however much was changed since, only so many are kept in memory.
    """

    def __init__(
        self, start: bytes, end: bytes | None, at_revision: int, *, limit: int, reverse: bool
    ) -> None:
        self.at_revision = at_revision
        self.limit = limit
        self._start = start
        self._end = end
        self._reverse = reverse
        self._noted_revision = at_revision
        self._changed: dict[bytes, Span] = {}
        self._order: list[bytes] | None = None

    def note_changes(
        self, engine: Engine, upto: int, *, cost_max: int | None = None, rows_min: int = 0
    ) -> bool:
        """Take in the changes up to a revision, or one page of them; False if there may be more."""
        cost = 0
        changes = engine.scan(layout.change_key(self._noted_revision + 1), layout.change_key(upto + 1))
        for row, (row_key, raw) in enumerate(changes, 1):
            self._noted_revision = layout.change_revision(row_key)
            spans = layout.previous_spans(self._noted_revision, raw)
            self._note(raw, spans)
            cost += len(spans) + (len(raw) >> COST_BYTES_SHIFT)
            if cost_max is not None and cost >= cost_max and row > rows_min:
                return False
        self._noted_revision = upto
        return True

    def candidates(self, engine: Engine, rows: "ChangeRows") -> Iterator[tuple[bytes, bytes]]:
        """Stored records of what is left, in order: as they were before they changed, and those of now, which may be newer
        than the revision. Of one key the changed one comes first, so a reader may stop after it."""
        engine_end = layout.after_prefix(layout.RECORD) if self._end is None else layout.RECORD + self._end
        now = engine.scan(layout.RECORD + self._start, engine_end, reverse=self._reverse)
        changed = ((key, rows.previous(engine, self._changed[key])) for key in self._changed_keys())
        return merge(
            changed, ((key[1:], stored) for key, stored in now), key=itemgetter(0), reverse=self._reverse
        )

    def pass_by(self, key: bytes) -> None:
        """This key, and all before it, are read."""
        if self._reverse:
            self._end = key
        else:
            self._start = next_key(key)

    def _note(self, raw: bytes, spans: list[tuple[bytes, int, int]]) -> None:
        for key, at, size in spans:
            if not size or key < self._start or (self._end is not None and key >= self._end):
                continue
            if layout.stored_mod_revision(raw, at) <= self.at_revision:
                self._changed[key] = Span(self._noted_revision, at, size)
                self._order = None
        if len(self._changed) > self.limit + WINDOW_KEYS_SPARE:
            self._end_earlier()

    def _end_earlier(self) -> None:
        order = sorted(self._changed, reverse=self._reverse)
        first_left_out = order[self.limit]
        if self._reverse:
            self._start = next_key(first_left_out)
        else:
            self._end = first_left_out
        self._changed = {key: self._changed[key] for key in order[: self.limit]}
        self._order = None

    def _changed_keys(self) -> Iterator[bytes]:
        if self._order is None:
            self._order = sorted(self._changed)
        first = bisect_left(self._order, self._start)
        last = len(self._order) if self._end is None else bisect_left(self._order, self._end)
        places = range(last - 1, first - 1, -1) if self._reverse else range(first, last)
        order = self._order
        return (order[place] for place in places)


class ChangeRows:
    """Changes read lately."""

    def __init__(self) -> None:
        self._raw: dict[int, bytes] = {}
        self._size_bytes = 0

    def previous(self, engine: Engine, span: Span) -> bytes:
        raw = self._raw.get(span.revision)
        if raw is None:
            raw = _change(engine, span.revision)
            if self._size_bytes + len(raw) > ROWS_BYTES_MAX:
                self._raw.clear()
                self._size_bytes = 0
            self._raw[span.revision] = raw
            self._size_bytes += len(raw)
        return raw[span.at : span.at + span.size]


def _followed_back(engine: Engine, key: bytes, at_revision: int, newest: int) -> tuple[bytes | None, int]:
    """The key as of the revision given back, which is `at_revision` if the versions of the key tell so much."""
    stored = engine.get(layout.RECORD + key)
    upto = newest
    hops = cost = 0
    while stored is not None:
        mod_revision = layout.stored_mod_revision(stored)
        if mod_revision <= at_revision:
            return stored, at_revision
        if hops == HOPS_MAX or cost >= PAGE_COST:
            break
        raw = _change(engine, mod_revision)
        change = _of_key(layout.previous_spans(mod_revision, raw), raw, key)
        if change is None:
            raise _hole(mod_revision)
        stored = change.previous
        upto = mod_revision - 1
        hops += 1
        cost += len(raw) >> COST_BYTES_SHIFT
    return stored, upto


def _first_change(engine: Engine, key: bytes, after: int, upto: int) -> tuple[KeyChange | None, int]:
    """The first change of a key in (after, upto], and how far one page of the search has come."""
    cost = 0
    for row_key, raw in engine.scan(layout.change_key(after + 1), layout.change_key(upto + 1)):
        if (
            key in raw
        ):  # Quick, and nearly always False; a key may also be part of another one, or of a value.
            revision = layout.change_revision(row_key)
            change = _of_key(layout.previous_spans(revision, raw), raw, key)
            if change is not None:
                return change, revision
        cost += 1 + (len(raw) >> COST_BYTES_SHIFT)
        if cost >= PAGE_COST:
            return None, layout.change_revision(row_key)
    return None, upto


def _of_key(spans: list[tuple[bytes, int, int]], raw: bytes, key: bytes) -> KeyChange | None:
    for name, at, size in spans:
        if name == key:
            return KeyChange(raw[at : at + size] if size else None)
    return None


def _change(engine: Engine, revision: int) -> bytes:
    raw = engine.get(layout.change_key(revision))
    if raw is None:
        raise _hole(revision)
    return raw


def _hole(revision: int) -> StoreCorrupt:
    return StoreCorrupt(f"the history lacks what revision {revision} changed; restore a backup")
