"""Opens the store on disk: owner, shelf, journal, blobs, and the tasks that keep it small."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from holdfast.common.logging import get_logger
from holdfast.storage.disk.blobs import FileBlobs
from holdfast.storage.disk.journal import DiskJournal
from holdfast.storage.disk.ownership import owned
from holdfast.storage.disk.rocks import RocksShelf
from holdfast.storage.disk.segment import DiskFile, JournalFileFactory
from holdfast.storage.errors import StorageError
from holdfast.storage.foreign import from_os
from holdfast.storage.local import layout
from holdfast.storage.local.store import LocalStore
from holdfast.storage.local.upkeep import Upkeep
from holdfast.storage.options import StoreOptions

RECOVERY_LOOK_S = 0.5

_log = get_logger("storage.backend.core")


@asynccontextmanager
async def open_disk(
    folder: Path, options: StoreOptions, *, file_factory: JournalFileFactory = DiskFile
) -> AsyncIterator[LocalStore]:
    """Own the folder, bring back what a crash left in the journal only, serve, and leave everything flushed."""
    async with AsyncExitStack() as stack:
        with from_os(f"opening the store {folder}"):
            stack.enter_context(owned(folder))
            shelf = ReopenableShelf(folder / "shelf")
            stack.callback(shelf.close)
            store = LocalStore(url=f"disk://{folder}", shelf=shelf.current, options=options)
            journal = DiskJournal(folder / "journal", options, file_factory)
            stack.callback(journal.stop)
            layout.check_format(shelf.current.get(layout.META_FORMAT), folder)
            shelf.current.write([(layout.META_FORMAT, layout.FORMAT)])
            for entry in journal.recover(store.revision):
                store.replay(entry)
            blobs = FileBlobs(folder / "blobs", store, options.clock.wall_s)
        store.attach(blobs, journal)
        journal.start(store)
        checkpoints = Checkpoints(store, shelf, journal)
        journal.on_rotation(checkpoints.ask)
        await stack.enter_async_context(
            Upkeep(store, options, also=[checkpoints.run(), recover(store, shelf, journal)])
        )
        try:
            yield store
        finally:
            await store.close()
        if store.problem is None:
            await asyncio.to_thread(shelf.current.flush)


class ReopenableShelf:
    """The shelf of a folder: after a failed flush RocksDB takes no more writes until it is opened again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.current = RocksShelf(folder)

    def reopen(self) -> RocksShelf:
        self.current.close()
        self.current = RocksShelf(self._folder)
        return self.current

    def close(self) -> None:
        self.current.close()


async def recover(store: LocalStore, shelf: ReopenableShelf, journal: DiskJournal) -> None:
    """Open a broken shelf again once there is room. There is no event for room on a disk, so it is looked at."""
    while True:
        await asyncio.sleep(RECOVERY_LOOK_S)
        if store.shelf_is_broken and journal.is_idle and journal.has_room():
            await asyncio.sleep(0)  # An idle journal has sent its last answer; let that one arrive first.
            try:
                store.reload(shelf.reopen(), journal.entries())
            except StorageError as error:
                _log.error("storage.recover.failed", reason=error.detail)
            else:
                _log.info("storage.recover.done", revision=store.revision)


class Checkpoints:
    """Flushes the shelf when a segment is full, so that the segment can be used again."""

    def __init__(self, store: LocalStore, shelf: ReopenableShelf, journal: DiskJournal) -> None:
        self._store = store
        self._shelf = shelf
        self._journal = journal
        self._asked = asyncio.Event()
        self._asked.set()  # The first turn prepares the first spare.

    def ask(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await asyncio.to_thread(self._checkpoint, self._store.revision)
            except (StorageError, OSError) as error:
                # Nothing is lost: the segments stay until a later flush succeeds, and a full disk is
                # reported to the writers by the journal itself.
                _log.warn("storage.checkpoint.failed", reason=str(error))

    def _checkpoint(self, applied_revision: int) -> None:
        """What was applied before the flush is on disk after it; only that much of the journal may go."""
        if self._journal.has_full_segments():
            self._shelf.current.flush()
            self._journal.release(applied_revision)
        self._journal.prepare_spare()
