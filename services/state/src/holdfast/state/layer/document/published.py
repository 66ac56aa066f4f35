"""What was made of published documents, kept in memory for as long as they are what is published.

The store forgets here what a commit changes before anything can read the change (`Store.keep_current`), and whatever comes in was
made of a durable record by a function of `view`, during which no commit happens: no entry is older than what a read would
find, and none is of anything staged.
"""

from collections import OrderedDict
from collections.abc import Container, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

ENTRY_BYTES: Final = 1152
"""What an entry takes beside its key, its name and its content: objects, lines of headers, its places in the dicts."""
SHARES_MIN: Final = 16
"""What would take a larger share of the memory than one in so many is not kept. One share is for what was missed lately."""
MISSED_BYTES: Final = 128
"""What the hash of a name takes in a set."""


class Entry(NamedTuple, Generic[T]):
    key: bytes
    value: T
    size_bytes: int


class PublishedCache(Generic[T]):
    """Entries by the name under which readers ask for them, and by the stored key of their document, which may have several
    names. Least recently used ones go first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self._entries_bytes_max = bytes_max - bytes_max // SHARES_MIN
        self._entries: OrderedDict[bytes, Entry[T]] = OrderedDict()
        self._names: dict[bytes, list[bytes]] = {}  # By key.
        self.kept: Container[bytes] = self._names
        self._missed: set[int] = set()
        self._missed_max = bytes_max // SHARES_MIN // MISSED_BYTES

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: bytes) -> T | None:
        entry = self._entries.get(name)
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(name)
        return entry.value

    def wants(self, name: bytes) -> bool:
        """Whether this was missed before, not long ago: what is read once costs more to keep than it saves, and would push out
        what is read often. About as many names are remembered as entries fit."""
        mark = hash(name)
        if mark in self._missed:
            return True
        if len(self._missed) >= self._missed_max:
            self._missed.clear()
        self._missed.add(mark)
        return False

    def keep(self, key: bytes, name: bytes, value: T, content_bytes: int) -> None:
        """Called by a function of `view` that has read this key there."""
        if name in self._entries:
            self._drop(name)
        size_bytes = ENTRY_BYTES + len(key) + len(name) + content_bytes
        if size_bytes * SHARES_MIN > self.bytes_max:
            return
        self._entries[name] = Entry(key, value, size_bytes)
        self._names.setdefault(key, []).append(name)
        self.size_bytes += size_bytes
        while self.size_bytes > self._entries_bytes_max:
            self._drop(next(iter(self._entries)))

    def forget(self, keys: Iterable[bytes]) -> None:
        names = self._names
        for key in keys:
            for name in names.pop(key, ()):
                self.size_bytes -= self._entries.pop(name).size_bytes

    def forget_all(self) -> None:
        self._entries.clear()
        self._names.clear()
        self.size_bytes = 0

    def _drop(self, name: bytes) -> None:
        entry = self._entries.pop(name)
        self.size_bytes -= entry.size_bytes
        names = self._names[entry.key]
        names.remove(name)
        if not names:
            del self._names[entry.key]
