"""A store that is a dict: plain functions run on it at once, without an event loop."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.storage.port import Record
from holdfast.storage.transact import BufferedTransaction, Fetched, RangeRead, TransactMixin

T = TypeVar("T")


class DictStore(TransactMixin):
    """Just enough of a store for rules: a function that raises leaves nothing behind."""

    url = "dict://"

    def __init__(self) -> None:
        self.records: dict[bytes, Record] = {}
        self.revision = 0

    def run(self, rule: Callable[[BufferedTransaction], T]) -> T:
        tx = BufferedTransaction(self, Fetched())
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

    def _tx_get(self, key: bytes, fetched: Fetched) -> Record | None:
        return self.records.get(key)

    def _tx_get_many(self, keys: Sequence[bytes], fetched: Fetched) -> dict[bytes, Record]:
        return {key: self.records[key] for key in keys if key in self.records}

    def _tx_range(self, read: RangeRead, fetched: Fetched) -> tuple[list[Record], int]:
        start, end, limit, reverse = read
        keys = sorted(
            (key for key in self.records if start <= key and (end is None or key < end)), reverse=reverse
        )
        return [self.records[key] for key in keys[:limit]], self.revision
