"""The background tasks of a local store: history is compacted, unreferenced blobs are swept."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Self

from holdfast.common.logging import get_logger
from holdfast.storage.errors import StorageError
from holdfast.storage.local.store import LocalStore
from holdfast.storage.options import StoreOptions

_log = get_logger("storage.backend.core")


class Upkeep:
    """Owns the tasks: they begin on entering and are gone on leaving."""

    def __init__(
        self, store: LocalStore, options: StoreOptions, also: Sequence[Coroutine[Any, Any, None]] = ()
    ) -> None:
        self._store = store
        self._options = options
        self._jobs = [self._compact(), self._sweep(), *also]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(job, name="storage.upkeep") for job in self._jobs]
        for task in self._tasks:
            task.add_done_callback(_tell_of_an_early_end)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _compact(self) -> None:
        while True:
            await asyncio.sleep(self._options.compact_interval_s)
            try:
                await self._store.compact()
            except StorageError as error:
                _log.warn("storage.compact.failed", reason=error.detail)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._options.blob_sweep_interval_s)
            try:
                removed = await self._store.blobs.sweep(grace_s=self._options.blob_sweep_grace_s)
            except StorageError as error:
                _log.warn("storage.sweep.failed", reason=error.detail)
            else:
                _log.debug("storage.sweep.done", removed=removed)


def _tell_of_an_early_end(task: asyncio.Task[None]) -> None:
    """These tasks run as long as the store; one that ends with an error is a defect, and must not be a silent one."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("storage.upkeep.died", exception=error)
