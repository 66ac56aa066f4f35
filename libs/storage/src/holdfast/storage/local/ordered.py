"""A set of keys that stays sorted: chunks of sorted lists, so that adding to a million costs microseconds."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

CHUNK_KEYS_MAX = 1024


class OrderedKeys:
    """Every chunk is sorted and not empty; chunk i ends before chunk i+1 begins."""

    __slots__ = ("_chunks", "_lasts")

    def __init__(self) -> None:
        self._chunks: list[list[bytes]] = []
        self._lasts: list[bytes] = []

    def add(self, key: bytes) -> None:
        """Add a key that is not there yet."""
        if not self._chunks:
            self._chunks.append([key])
            self._lasts.append(key)
            return
        index = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        chunk = self._chunks[index]
        insort(chunk, key)
        if len(chunk) > CHUNK_KEYS_MAX:
            middle = len(chunk) // 2
            self._chunks[index : index + 1] = [chunk[:middle], chunk[middle:]]
            self._lasts.insert(index, chunk[middle - 1])
            index += 1
        self._lasts[index] = self._chunks[index][-1]

    def remove(self, key: bytes) -> None:
        """Remove a key that is there."""
        index = bisect_left(self._lasts, key)
        chunk = self._chunks[index]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._lasts[index] = chunk[-1]
        else:
            del self._chunks[index]
            del self._lasts[index]

    def within(self, start: bytes, end: bytes | None) -> Iterator[bytes]:
        """Keys of [start, end), rising."""
        for index in range(bisect_left(self._lasts, start), len(self._chunks)):
            chunk = self._chunks[index]
            first = bisect_left(chunk, start) if chunk[0] < start else 0
            last = len(chunk) if end is None or chunk[-1] < end else bisect_left(chunk, end)
            yield from chunk[first:last]
            if last < len(chunk):
                return

    def within_reversed(self, start: bytes, end: bytes | None) -> Iterator[bytes]:
        """Keys of [start, end), falling."""
        top = (
            len(self._chunks) - 1
            if end is None
            else min(bisect_right(self._lasts, end), len(self._chunks) - 1)
        )
        for index in range(top, -1, -1):
            chunk = self._chunks[index]
            first = bisect_left(chunk, start) if chunk[0] < start else 0
            last = len(chunk) if end is None or chunk[-1] < end else bisect_left(chunk, end)
            yield from reversed(chunk[first:last])
            if first > 0:
                return
