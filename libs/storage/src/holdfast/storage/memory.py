"""The store in memory, for tests and demos: the same local store as on disk, without a journal."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self

from holdfast.common.ids import uuid7
from holdfast.storage.blob import Removals, checked_end, checked_id
from holdfast.storage.errors import BlobNotFound, InvalidBatch
from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.released import References, ReleasedBlobs
from holdfast.storage.local.store import LocalStore
from holdfast.storage.local.upkeep import Upkeep
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import BlobInfo, BlobRef
from holdfast.storage.store_clock import StoreClock

READ_BYTES = 64 << 10


@asynccontextmanager
async def open_memory(options: StoreOptions) -> AsyncIterator[LocalStore]:
    store = LocalStore(url="mem://", engine=MemoryEngine(), options=options)
    store.attach(MemoryBlobs(store, store.clock))
    async with Upkeep(store, options).running():
        yield store
        await store.close()


class MemoryBlobs:
    """The `BlobStore` of a store in memory."""

    def __init__(self, references: References, clock: StoreClock) -> None:
        self._references = references
        self._now_s = clock.now_s
        self._released = ReleasedBlobs(clock)
        self.removals = Removals()
        self._contents: dict[str, tuple[bytes, float]] = {}

    def create(self, *, context: str = "", blob_id: str | None = None) -> "MemoryBlobWriter":
        return MemoryBlobWriter(self, uuid7() if blob_id is None else checked_id(blob_id))

    async def read(
        self, ref: BlobRef, *, context: str = "", start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        end = checked_end(ref, start, end)
        if ref.id not in self._contents:
            raise BlobNotFound(f"blob {ref.id} does not exist, or was swept")
        content = self._contents[ref.id][0]
        for at in range(start, end, READ_BYTES):
            yield content[at : min(end, at + READ_BYTES)]

    async def info(self, blob_id: str) -> BlobInfo | None:
        if blob_id not in self._contents:
            return None
        content, created_at_s = self._contents[blob_id]
        return BlobInfo(blob_id, len(content), created_at_s)

    async def list(self) -> AsyncIterator[BlobInfo]:
        for blob_id, (content, created_at_s) in list(self._contents.items()):
            yield BlobInfo(blob_id, len(content), created_at_s)

    async def remove(self, blob_id: str) -> bool:
        if self._references.is_blob_referenced(blob_id):
            return False
        return self._drop(blob_id)

    async def free(self, *, grace_s: float) -> int:
        return self._released.free(self._references, self._drop, grace_s=grace_s)

    async def sweep(self, *, grace_s: float) -> int:
        if self._references.has_snapshots:
            return 0
        oldest_s = self._now_s() - grace_s
        gone = [
            blob_id
            for blob_id, (_, created_at_s) in self._contents.items()
            if created_at_s <= oldest_s
            and not self._released.is_younger(blob_id, grace_s)
            and not self._references.is_blob_referenced(blob_id)
        ]
        return sum(map(self._drop, gone))

    async def touch(self) -> None:
        """There are no other processes."""

    def released(self, blob_ids: Sequence[str]) -> None:
        self._released.add(blob_ids)

    def _drop(self, blob_id: str) -> bool:
        if blob_id not in self._contents:
            return False
        self.removals.add(len(self._contents.pop(blob_id)[0]))
        return True

    def exists(self, blob_id: str) -> bool:
        return blob_id in self._contents

    def keep(self, blob_id: str, content: bytes) -> None:
        self._contents[blob_id] = (content, self._now_s())


class MemoryBlobWriter:
    """One blob on its way in."""

    def __init__(self, blobs: MemoryBlobs, blob_id: str) -> None:
        self._blobs = blobs
        self._id = blob_id
        self._content = bytearray()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._content.clear()

    async def write(self, chunk: bytes) -> None:
        self._content += chunk

    async def finish(self) -> BlobRef:
        if self._blobs.exists(self._id):
            raise InvalidBatch(f"blob {self._id} exists already")
        content = bytes(self._content)
        self._blobs.keep(self._id, content)
        return BlobRef(self._id, len(content), hashlib.sha256(content).digest())
