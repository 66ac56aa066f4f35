"""The background tasks of a local store: history is compacted, released blobs are freed, lost ones are swept."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from holdfast.common.background import background
from holdfast.common.logging import get_logger
from holdfast.storage.errors import StorageError
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.local.store import LocalStore
from holdfast.storage.options import StoreOptions

_log = get_logger("storage.backend.core")


class Upkeep:
    """Owns the tasks: they begin with the block of `running` and are gone at its end."""

    def __init__(
        self, store: LocalStore, options: StoreOptions, also: Sequence[Coroutine[Any, Any, None]] = ()
    ) -> None:
        self._store = store
        self._options = options
        self._also = also

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with background(
            self._compact(), self._free(), self._sweep(), *self._also, name="storage.upkeep"
        ):
            yield

    async def _compact(self) -> None:
        while True:
            await asyncio.sleep(self._options.compact_interval_s)
            if self._store.is_read_only:
                continue  # Told already, and this would only fail too. On a full disk it may free some room.
            try:
                await self._store.compact()
            except StorageError as error:
                warn_unless_told(_log, "storage.compact.failed", error)

    async def _free(self) -> None:
        while True:
            await asyncio.sleep(self._options.blob_free_interval_s)
            try:
                removed = await self._store.blobs.free(grace_s=self._options.blob_free_grace_s)
            except (StorageError, OSError) as error:
                _log.warn("storage.free.failed", reason=str(error))
            else:
                if removed:
                    _log.debug("storage.free.done", removed=removed)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._options.blob_sweep_interval_s)
            try:
                removed = await self._store.blobs.sweep(grace_s=self._options.blob_sweep_grace_s)
            except StorageError as error:
                _log.warn("storage.sweep.failed", reason=error.detail)
            else:
                _log.debug("storage.sweep.done", removed=removed)
