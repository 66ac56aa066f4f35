"""A store that is a dict: plain functions run on it at once, without an event loop."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from holdfast.storage.fetched import RangeRead
from holdfast.storage.port import NO_STAMP, Record
from holdfast.storage.transact import BufferedTransaction

T = TypeVar("T")


class DictStore:
    """Just enough of a store for rules: a function that raises leaves nothing behind."""

    url = "dict://"
    stamp = NO_STAMP
    undurable: Mapping[bytes, tuple[int, bytes | None]] = MappingProxyType({})

    def __init__(self) -> None:
        self.records: dict[bytes, Record] = {}
        self.revision = 0

    def run(self, rule: Callable[[BufferedTransaction], T]) -> T:
        tx = BufferedTransaction(self)
        result = rule(tx)
        self.apply(tx)
        return result

    def apply(self, tx: BufferedTransaction) -> None:
        if not tx.has_writes:
            return
        self.revision += 1
        for key, value in tx.batch.puts.items():
            known = self.records.get(key)
            created = self.revision if known is None else known.create_revision
            version = 1 if known is None else known.version + 1
            self.records[key] = Record(key, value, created, self.revision, version)
        for key in tx.batch.deletes:
            self.records.pop(key, None)

    def get(self, key: bytes) -> Record | None:
        return self.records.get(key)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        return {key: self.records[key] for key in keys if key in self.records}

    def range(self, read: RangeRead) -> tuple[list[Record], int]:
        start, end, limit, reverse, _ = read
        keys = sorted(
            (key for key in self.records if start <= key and (end is None or key < end)), reverse=reverse
        )
        return [self.records[key] for key in keys[:limit]], self.revision

    def prefetch(self, keys: Callable[[], Sequence[bytes]], ranges: object = None) -> None:
        """Everything is at hand."""
