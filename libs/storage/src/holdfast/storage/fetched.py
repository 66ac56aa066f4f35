"""What one transaction may read of a remote store, and what it has to ask for first."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from holdfast.storage.errors import Conflict
from holdfast.storage.port import ABSENT, EMPTY, NO_STAMP, RANGE_LIMIT_MAX, Bounds, Record

_CACHED = 0  # In the place of a statement's number: nothing was fetched.


class RangeRead(NamedTuple):
    """The arguments of one read of a range."""

    start: bytes
    end: bytes | None
    limit: int
    reverse: bool
    is_expected: bool
    """The commit checks what was read."""


class Missing(Exception):
    """Raised by a read of a remote store: these have to be fetched before the function can go on."""

    def __init__(self, keys: Sequence[bytes] = (), ranges: Sequence[RangeRead] = ()) -> None:
        super().__init__(f"{len(keys)} keys and {len(ranges)} ranges are not fetched yet")
        self.keys = keys
        self.ranges = ranges


_NO_RANGES: Mapping[RangeRead, list[Record]] = MappingProxyType({})


class CachedRecord(Protocol):
    """What a cache knows of a key; `record` None: it does not exist."""

    @property
    def record(self) -> Record | None: ...


class ReadCache(Protocol):
    """What a remote store knows without asking; it may be out of date."""

    verified: int

    @property
    def is_readable(self) -> bool: ...

    def find(self, key: bytes) -> CachedRecord | None: ...

    def find_range(self, start: bytes, end: bytes | None) -> tuple[list[Record], int] | None: ...

    def guesses_absent(self, keys: Sequence[bytes]) -> bool: ...

    def guesses_empty(self, start: bytes) -> bool: ...

    def doubt(self, keys: Iterable[bytes]) -> None: ...


class Fetched:
    """What one transaction may read of a remote store: what was fetched for it, and before the first conflict also what the
    cache has. Remembers which statement each read of an attempt came from."""

    __slots__ = (
        "_cache",
        "_is_renewed",
        "_named",
        "_read_before",
        "_sources",
        "_statements",
        "_used",
        "is_kept",
        "ranges",
        "records",
    )

    stamp = NO_STAMP
    undurable: Mapping[bytes, tuple[int, bytes | None]] = MappingProxyType({})
    """What a database shows is durable."""

    def __init__(self, cache: ReadCache | None = None) -> None:
        self.is_kept = cache is not None  # What is fetched may be read by later transactions.
        self.records: dict[bytes, Record | None] = {}
        self.ranges: dict[RangeRead, tuple[list[Record], int, int]] = {}
        self._cache = cache if cache is not None and cache.is_readable else None
        self._sources: dict[bytes, int] = {}
        self._statements = 0
        self._used: set[int] = set()
        self._named: Missing | None = None
        self._read_before: Missing | None = None
        self._is_renewed = False

    def begin(self) -> None:
        """The function is about to run."""
        self._used.clear()
        self._named, self._read_before = self._read_before, None
        self._is_renewed = False

    @property
    def is_unverified(self) -> bool:
        """Whether the function read something that no statement has shown."""
        return _CACHED in self._used

    @property
    def is_of_one_moment(self) -> bool:
        """Whether one statement has shown all that the function read."""
        return len(self._used) == 1 and _CACHED not in self._used

    def take(
        self,
        records: Mapping[bytes, Record | None],
        ranges: Mapping[RangeRead, list[Record]] = _NO_RANGES,
        revision: int = 0,
    ) -> None:
        """The answer to one statement; `revision` is what its ranges are as of."""
        self._statements += 1
        self.records.update(records)
        self._sources.update(dict.fromkeys(records, self._statements))
        for read, found in ranges.items():
            self.ranges[read] = (found, revision, self._statements)

    def get(self, key: bytes) -> Record | None:
        if key not in self.records and not self._recall(key):
            raise self._missing(keys=[key])
        self._used.add(self._sources[key])
        return self.records[key]

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        if missing := self._unknown(keys):
            raise self._missing(keys=missing)
        self._used.update([self._sources[key] for key in keys])
        found = ((key, self.records[key]) for key in keys)
        return {key: record for key, record in found if record is not None}

    def range(self, read: RangeRead) -> tuple[list[Record], int]:
        if read not in self.ranges and not self._recall_range(read):
            raise self._missing(ranges=[read])
        records, revision, source = self.ranges[read]
        self._used.add(source)
        return records, revision

    def prefetch(
        self, keys: Callable[[], Sequence[bytes]], ranges: Callable[[], Sequence[Bounds]] | None = None
    ) -> None:
        """What is not known of these is fetched with the first read that is not. Keys that are likely to be new are not asked
        for: if one is there, the commit will say so."""
        missing = self._unknown(keys())
        if missing and self._cache is not None and self._cache.guesses_absent(missing):
            for key in missing:
                self.records[key] = None
                self._sources[key] = _CACHED
            missing = []
        bounds = () if ranges is None else ranges()
        reads = [RangeRead(start, end, RANGE_LIMIT_MAX, False, True) for start, end in bounds]
        reads = [read for read in reads if read not in self.ranges and not self._recall_range(read)]
        if missing or reads:
            self._named = self._missing(missing, reads)

    def _missing(self, keys: Sequence[bytes] = (), ranges: Sequence[RangeRead] = ()) -> Missing:
        """These, and all that was named before."""
        named = self._named
        if named is None:
            return Missing(keys, ranges)
        return Missing(
            list(dict.fromkeys((*named.keys, *keys))), list(dict.fromkeys((*named.ranges, *ranges)))
        )

    def verified(self, expects: Mapping[bytes, int]) -> Conflict | None:
        """One statement has shown all of these again; the first that is not what the function read, if there is one."""
        assert self._cache is not None, "only what came from a cache is verified"
        self._cache.verified += 1
        self._is_renewed = True
        for key, expected in expects.items():
            record = self.records[key]
            if expected != (ABSENT if record is None else record.mod_revision):
                return Conflict(key)
        return None

    def start_over(self, lost: Conflict | None) -> bool:
        """Forget what an attempt read; whether that failed because of the cache, which is not read from now on."""
        cache, self._cache = self._cache, None
        is_cached = cache is not None and self.is_unverified
        if cache is not None and is_cached and lost is not None:
            recalled = [key for key, source in self._sources.items() if source == _CACHED]
            recalled += [read.start for read, (_, _, source) in self.ranges.items() if source == _CACHED]
            cache.doubt([lost.key] if lost.key in recalled else recalled)
        if not self._is_renewed:
            # The function is likely to read the same again: one statement brings it all.
            self._read_before = Missing(list(self.records), list(self.ranges))
            self.clear()
        return is_cached

    def clear(self) -> None:
        self.records.clear()
        self.ranges.clear()
        self._sources.clear()

    def _unknown(self, keys: Sequence[bytes]) -> list[bytes]:
        return [key for key in keys if key not in self.records and not self._recall(key)]

    def _recall(self, key: bytes) -> bool:
        known = None if self._cache is None else self._cache.find(key)
        if known is None:
            return False
        self.records[key] = known.record
        self._sources[key] = _CACHED
        return True

    def _recall_range(self, read: RangeRead) -> bool:
        """Only what the commit checks: what is cached may be out of date."""
        if self._cache is None or not read.is_expected:
            return False
        known = self._cache.find_range(read.start, read.end)
        if known is None and self._cache.guesses_empty(read.start):
            known = [], EMPTY
        if known is None or len(known[0]) >= read.limit:
            return False
        records, revision = known
        self.ranges[read] = (records[::-1] if read.reverse else records, revision, _CACHED)
        return True
