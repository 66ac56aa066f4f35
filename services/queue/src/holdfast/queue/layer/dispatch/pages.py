"""What the store says of one queue, page by page: as entries for the window, with small messages already in hand."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from holdfast.queue.layer.dispatch.window import Entry, Order
from holdfast.queue.layer.message.records import MESSAGES, POLICIES, READY, TAKEN, keys_of
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import QueuePolicy
from holdfast.storage.port import RANGE_LIMIT_MAX, Record, Store, Transaction
from holdfast.storage.tables import Table

LATEST_ENTRIES_MAX = 500
CACHED_MESSAGE_BYTES_MAX = 4 << 10  # A larger one is read when it leaves.


class Pages:
    """Reads only. A page that is shorter than `size` is the last one."""

    def __init__(self, store: Store, address: QueueAddress, size: int) -> None:
        self.size = size
        self._store = store
        self._address = address
        self._keys = keys_of(address)

    async def policy(self) -> QueuePolicy:
        return await POLICIES.fetch(self._store, *self._address) or QueuePolicy()

    async def taken(self) -> AsyncIterator[list[Entry]]:
        """Everything that is out."""
        start, end = TAKEN.bounds(*self._address)
        while records := await self._store.range(start, end, limit=RANGE_LIMIT_MAX):
            yield [_entry(TAKEN, record) for record in records]
            start = records[-1].key + b"\x00"

    async def ready(self, *, after_priority: int | None = None) -> list[Entry]:
        """The first page of all that is ready, or of what comes after a priority."""
        start, end = READY.bounds(*self._address)
        if after_priority is not None:
            start = READY.bounds(*self._address, after_priority)[1]
        return await self._ready(start, end)

    async def ready_behind(self, horizon: Order) -> list[Entry]:
        """The next page of one priority."""
        _, end = READY.bounds(*self._address, horizon.priority)
        return await self._ready(self._keys.ready(*horizon) + b"\x00", end)

    async def latest(self, entries: Sequence[Entry]) -> list[Entry]:
        """As they will be when everything under way is durable, those that are taken or still where they were."""
        found: dict[bytes, Record] = {}
        for start in range(0, len(entries), LATEST_ENTRIES_MAX):
            part = entries[start : start + LATEST_ENTRIES_MAX]
            keys = [key for entry in part for key in (self._keys.taken(entry.message_id), entry.key)]
            found |= await self._store.transact(partial(_get_many, keys=keys), in_commit_order=True)
        records = [
            (entry, found.get(self._keys.taken(entry.message_id)) or found.get(entry.key))
            for entry in entries
        ]
        return [
            Entry(entry.message_id, record.key, record.mod_revision, TAKEN.decode(record))
            for entry, record in records
            if record is not None
        ]

    async def _ready(self, start: bytes, end: bytes) -> list[Entry]:
        records = await self._store.range(start, end, limit=self.size)
        entries = [_entry(READY, record) for record in records]
        found = await self._store.get_many([self._keys.message(entry.message_id) for entry in entries])
        for entry in entries:
            message = found.get(self._keys.message(entry.message_id))
            if message is not None and len(message.value) <= CACHED_MESSAGE_BYTES_MAX:
                entry.message = MESSAGES.decode(message)
        return entries


def _get_many(tx: Transaction, *, keys: Sequence[bytes]) -> dict[bytes, Record]:
    return tx.get_many(keys)


def _entry(table: Table[Any], record: Record) -> Entry:
    row = table.row(record)
    return Entry(str(row.parts[-1]), record.key, record.mod_revision, row.message)
