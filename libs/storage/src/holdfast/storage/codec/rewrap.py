"""Rotation: every sealed value gets a descriptor under the current root key; bodies stay as they are."""

from typing import NamedTuple

from holdfast.storage.codec.descriptor import DESCRIPTOR_BYTES, root_id_of
from holdfast.storage.codec.encoded import is_bare, value_context
from holdfast.storage.codec.hf1 import Codec
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.errors import Conflict, TransactionContended
from holdfast.storage.maintenance.progress import Advance, silent
from holdfast.storage.port import Batch, Record, SnapshotRecord, Store

BATCH_RECORDS = 200
BATCH_BYTES = 4 << 20
PASSES_MAX = 10


class RewrapSummary(NamedTuple):
    """How many values got a new descriptor, and how many needed none."""

    rewrapped: int
    current: int


async def rewrap_values(store: Store, keyring: Keyring, *, advance: Advance = silent) -> RewrapSummary:
    """Walk all values of the backend `store`, opened with `keyring`. Servers may go on working meanwhile.

    A value that changed under the walk is left to the next pass. Descriptors of blobs lie within values that only
    their layer can read; they are not touched.
    """
    rewrapped, lost = 0, b""
    for _ in range(PASSES_MAX):
        walk = _Walk(store, keyring, advance)
        await walk.run()
        rewrapped += walk.rewrapped
        if walk.lost is None:
            return RewrapSummary(rewrapped, walk.current)
        lost = walk.lost
    raise TransactionContended(lost, PASSES_MAX)


class _Walk:
    """One pass over a snapshot."""

    def __init__(self, store: Store, keyring: Keyring, advance: Advance) -> None:
        self.rewrapped = self.current = 0
        self.lost: bytes | None = None
        self._store = store
        self._codec = Codec(keyring)
        self._advance = advance
        self._batch = Batch()
        self._batch_bytes = 0

    async def run(self) -> None:
        async with self._store.snapshot() as snapshot:
            async for page in snapshot.records():
                for item in page:
                    await self._look_at(item)
                self._advance(len(page), 0)
        await self._commit()

    async def _look_at(self, item: SnapshotRecord) -> None:
        record, blobs = item
        if is_bare(record.key, record.value):
            return
        if root_id_of(record.value[:DESCRIPTOR_BYTES]) == self._codec.keyring.current_id:
            self.current += 1
            return
        self._batch.expects[record.key] = record.mod_revision
        self._batch.puts[record.key] = self._rewrapped(record)
        if blobs:
            self._batch.blobs[record.key] = blobs  # A put without them would give the blobs up to the sweep.
        self._batch_bytes += len(record.value)
        if len(self._batch.puts) == BATCH_RECORDS or self._batch_bytes >= BATCH_BYTES:
            await self._commit()

    def _rewrapped(self, record: Record) -> bytes:
        context = value_context(record.key)
        return self._codec.rewrap_inline(record.value, context, context)

    async def _commit(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, Batch(), 0
        while batch.puts:
            try:
                await self._store.commit(batch)
            except Conflict as conflict:
                self.lost = conflict.key
                for members in (batch.expects, batch.puts, batch.blobs):
                    members.pop(conflict.key, None)
                continue
            self.rewrapped += len(batch.puts)
            return
