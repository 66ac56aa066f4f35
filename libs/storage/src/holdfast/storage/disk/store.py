"""Opens the store on disk: owner, engine, journal, blobs, and the tasks that keep it small."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from holdfast.common import failpoint
from holdfast.common.logging import get_logger
from holdfast.storage.disk.blobs import FileBlobs
from holdfast.storage.disk.clock_mark import open_mark
from holdfast.storage.disk.journal import DiskJournal
from holdfast.storage.disk.ownership import owned
from holdfast.storage.disk.rocks import RocksEngine
from holdfast.storage.disk.room import Room
from holdfast.storage.disk.segment import DiskFile, JournalFileFactory
from holdfast.storage.errors import StorageError, from_os
from holdfast.storage.local import layout
from holdfast.storage.local.store import LocalStore
from holdfast.storage.local.upkeep import Upkeep
from holdfast.storage.options import StoreOptions

RECOVERY_LOOK_S = 0.5
PROBE_BYTES = 64 << 10

P = ParamSpec("P")
T = TypeVar("T")

_log = get_logger("storage.backend.core")


@asynccontextmanager
async def open_disk(
    folder: Path, options: StoreOptions, *, file_factory: JournalFileFactory = DiskFile
) -> AsyncIterator[LocalStore]:
    """Own the folder, bring back what a crash left in the journal only, serve, and leave everything flushed."""
    async with AsyncExitStack() as stack:
        with from_os(f"opening the store {folder}"):
            stack.enter_context(owned(folder))
            # An older word for the engine: stores on disk have their folder under this name.
            engine = ReopenableEngine(folder / "shelf")
            stack.callback(engine.close)
            store = LocalStore(url=f"disk://{folder}", engine=engine.current, options=options)
            journal = DiskJournal(folder / "journal", options, file_factory)
            stack.callback(journal.stop)
            layout.check_format(engine.current.get(layout.META_FORMAT), folder)
            engine.current.write([(layout.META_FORMAT, layout.FORMAT)])
            for entry in journal.recover(store.revision):
                store.replay(entry)
            blobs = FileBlobs(
                folder / "blobs",
                store,
                store.clock,
                room=Room(folder, options.free_bytes_min),
                trouble=store.trouble,
            )
            mark = stack.enter_context(open_mark(folder, store.clock))
        store.clock.tell_lead(store.url)
        store.attach(blobs, journal)
        journal.start(store)
        checkpoints = Checkpoints(store, engine, journal)
        journal.on_rotation(checkpoints.ask)
        await stack.enter_async_context(
            Upkeep(
                store,
                options,
                also=[checkpoints.run(), recover(store, engine, journal, checkpoints), mark.run()],
            ).running()
        )
        try:
            yield store
        finally:
            await store.close()
        if store.problem is None:
            await asyncio.to_thread(engine.current.flush)


class ReopenableEngine:
    """The engine of a folder: after a failed flush RocksDB takes no more writes until it is opened again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.current = RocksEngine(folder)

    def can_be_opened(self) -> bool:
        """Whether files can be made there, as opening it does: a quota or a read-only mount may not allow it. Blocking."""
        probe = self._folder.with_name("probe")
        try:
            with probe.open("wb") as file:
                file.write(bytes(PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return False
        finally:
            with suppress(OSError):
                probe.unlink()
        return True

    def reopen(self) -> RocksEngine:
        self.current.close()
        self.current = RocksEngine(self._folder)
        return self.current

    def close(self) -> None:
        self.current.close()


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """A thread can't be cancelled, and must not work in the folder when its store is closed: its end is waited for."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # The caller is gone, so the error is dropped.
        raise


async def recover(
    store: LocalStore, engine: ReopenableEngine, journal: DiskJournal, checkpoints: "Checkpoints"
) -> None:
    """See when writes can go on, and open a broken engine again. There is no event for room on a disk, so it is looked at."""
    while True:
        await asyncio.sleep(RECOVERY_LOOK_S)
        if store.may_write_again and await in_thread(journal.can_write):
            store.trouble.end()
        is_at_rest = journal.is_idle and not checkpoints.is_flushing
        if store.engine_is_broken and is_at_rest and await in_thread(can_recover, engine, journal):
            await asyncio.sleep(0)  # An idle journal has sent its last answer; let that one arrive first.
            try:
                store.reload(engine.reopen(), journal.entries())
            except StorageError as error:
                store.trouble.began(error)
            else:
                _log.info("storage.recover.done", revision=store.revision)


def can_recover(engine: ReopenableEngine, journal: DiskJournal) -> bool:
    """Whether closing the engine, which still serves reads, is likely to be worth it. Blocking."""
    return journal.can_write() and engine.can_be_opened()


class Checkpoints:
    """Flushes the engine when a segment is full, so that the segment can be used again."""

    def __init__(self, store: LocalStore, engine: ReopenableEngine, journal: DiskJournal) -> None:
        self._store = store
        self._engine = engine
        self._journal = journal
        self._is_failing = False
        self.is_flushing = False
        self._asked = asyncio.Event()
        self._asked.set()  # The first turn prepares the first spare.

    def ask(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            engine = self._engine.current
            self.is_flushing = True
            try:
                await in_thread(self._checkpoint, self._store.revision, engine)
            except (StorageError, OSError) as error:
                # Nothing is lost: the segments stay until a later flush succeeds, and a full disk is
                # reported to the writers by the journal itself.
                if not self._is_failing:
                    _log.warn("storage.checkpoint.failed", reason=str(error))
                self._is_failing = True
                if isinstance(error, StorageError) and engine is self._engine.current:
                    # After a failed flush RocksDB takes no writes either: the next one would be the first to know.
                    self._store.engine_failed(error)
            else:
                self._is_failing = False
            finally:
                self.is_flushing = False

    def _checkpoint(self, applied_revision: int, engine: RocksEngine) -> None:
        """What was applied before the flush is on disk after it; only that much of the journal may go."""
        if failpoint.ARMED and failpoint.hit("journal.release"):
            return
        if self._journal.has_full_segments():
            engine.flush()
            self._journal.release(applied_revision)
        self._journal.prepare_spare()
