"""A store in memory that is some way off: between a question and its answer others have their turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryBlobs
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Record


class DistantStore(LocalStore):
    """What was sent arrives, also if its sender has gone; commits arrive in order, when `is_open` lets them."""

    def __init__(self) -> None:
        options = StoreOptions()
        super().__init__(url="mem://", engine=MemoryEngine(), options=options)
        self.attach(MemoryBlobs(self, self.clock))
        self.is_open = asyncio.Event()
        self.is_open.set()
        self._holds: list[asyncio.Event] = []

    def hold_next_read(self) -> asyncio.Event:
        """The answer to the next read of a range comes when this is set."""
        self._holds.append(asyncio.Event())
        return self._holds[-1]

    async def range(
        self,
        start: bytes,
        end: bytes | None,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        at_revision: int | None = None,
    ) -> list[Record]:
        records = await super().range(
            start, end, limit=limit, reverse=reverse, keys_only=keys_only, at_revision=at_revision
        )
        if self._holds:
            await self._holds.pop().wait()
        await asyncio.sleep(0)
        return records

    async def commit(self, batch: Batch) -> int:
        return await asyncio.shield(asyncio.create_task(self._arrive(batch)))

    async def _arrive(self, batch: Batch) -> int:
        await self.is_open.wait()
        return await super().commit(batch)


@asynccontextmanager
async def open_distant() -> AsyncIterator[DistantStore]:
    store = DistantStore()
    yield store
    await store.close()
