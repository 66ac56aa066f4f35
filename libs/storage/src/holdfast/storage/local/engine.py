"""The engine port: an ordered map of bytes that a local store keeps its durable state on; and one in memory."""

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from holdfast.storage.errors import StorageError
from holdfast.storage.local.ordered import OrderedKeys

Write = tuple[bytes, bytes | None]
"""Key and value: a put, or a delete when the value is None. Plain, because each commit makes several."""


Prepared = object  # Known to the engine that made it.


class EngineView(Protocol):
    """The engine as of one moment."""

    def scan(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]: ...

    def close(self) -> None: ...


class Engine(Protocol):
    """What is written here is applied; whether it is durable yet is the journal's matter."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]: ...

    def write(self, writes: Sequence[Write]) -> None:
        """All or nothing."""
        ...

    def prepare(self, writes: Sequence[Write]) -> "Prepared":
        """Do the part of `write` that can be done before it is time."""
        ...

    def write_prepared(self, prepared: "Prepared") -> None:
        """All or nothing; each prepared write once."""
        ...

    def delete_range(self, start: bytes, end: bytes, also: Sequence[Write]) -> None:
        """Remove [start, end) and write `also`, all or nothing."""
        ...

    def view(self) -> EngineView: ...

    def keys_estimate(self) -> int: ...

    def flush(self) -> None:
        """Make all that was written before durable without the journal. Blocking: call it from a thread."""
        ...

    def close(self) -> None: ...


class MemoryEngine:
    """A dict and its sorted keys."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys = OrderedKeys()

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys.within_reversed(start, end) if reverse else self._keys.within(start, end)
        for key in keys:
            yield key, self._values[key]

    def write(self, writes: Sequence[Write]) -> None:
        for key, value in writes:
            if value is not None:
                if key not in self._values:
                    self._keys.add(key)
                self._values[key] = value
            elif self._values.pop(key, None) is not None:
                self._keys.remove(key)

    def prepare(self, writes: Sequence[Write]) -> Prepared:
        return writes

    def write_prepared(self, prepared: Prepared) -> None:
        self.write(cast(Sequence[Write], prepared))

    def delete_range(self, start: bytes, end: bytes, also: Sequence[Write]) -> None:
        self.write([(key, None) for key in list(self._keys.within(start, end))])
        self.write(also)

    def view(self) -> EngineView:
        return _MemoryView([(key, self._values[key]) for key in self._keys.within(b"", None)])

    def keys_estimate(self) -> int:
        return len(self._values)

    def flush(self) -> None:
        """Nothing outlives the process."""

    def close(self) -> None:
        self._values.clear()
        self._keys = OrderedKeys()


class _MemoryView:
    def __init__(self, items: list[tuple[bytes, bytes]]) -> None:
        self._items = items

    def scan(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return (item for item in self._items if start <= item[0] and (end is None or item[0] < end))

    def close(self) -> None:
        self._items = []


class ClosedEngine(MemoryEngine):
    """In the place of an engine whose store is closed: every read says so."""

    def __init__(self, error: StorageError) -> None:
        super().__init__()
        self._error = error

    def get(self, key: bytes) -> bytes | None:
        raise self._error

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        raise self._error
