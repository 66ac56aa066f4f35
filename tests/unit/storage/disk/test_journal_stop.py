"""The journal's thread ends only when everything that was offered is written."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.storage.disk.fsync_policy import FsyncPolicy
from holdfast.storage.disk.segment import DiskFile
from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import StoreClosed
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch


class HeldFile(DiskFile):
    """Its first record is written when the test says so."""

    is_writing: threading.Event
    may_write: threading.Event
    is_closed = False

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        self.is_writing.set()
        self.may_write.wait(10)
        super().pwrite_synced(data, offset)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            super().close()


class Unmoved(FsyncPolicy):
    """Takes every sync for a quick one, also those that a test or a busy machine holds up."""

    def took(self, seconds: float) -> None:
        super().took(0.0)


class Loop(asyncio.SelectorEventLoop):
    """Tells when the thread gives the journal back."""

    on_given_back: Callable[[], None] = staticmethod(lambda: None)

    def call_soon_threadsafe(  # type: ignore[override]  # simpler than typeshed's type variables
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if getattr(callback, "__name__", "") == "_flush_soon":
            self.on_given_back()
        return super().call_soon_threadsafe(callback, *args, context=context)


async def _stop_while_the_thread_gives_back(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    is_writing = HeldFile.is_writing = threading.Event()
    may_write = HeldFile.may_write = threading.Event()
    is_given_back = threading.Event()
    async with open_disk(folder, StoreOptions(loop_syncs_after=1), file_factory=HeldFile) as store:
        journal: Any = store._journal
        journal._fsync_policy = Unmoved(1)

        def given_back() -> None:
            journal._is_stopping = True  # As if `stop` got the lock as soon as the thread lets it go.
            is_given_back.set()

        loop.on_given_back = given_back
        first = asyncio.ensure_future(store.commit(Batch(puts={b"a": b""})))
        await asyncio.to_thread(is_writing.wait, 10)
        second = asyncio.ensure_future(store.commit(Batch(puts={b"b": b""})))
        await asyncio.sleep(0)
        may_write.set()
        assert is_given_back.wait(10)
        journal.stop()

        _, left = await asyncio.wait({first, second}, timeout=5)
        if left:
            store.failed(StoreClosed("lost"), problem=None)  # Else closing waits for it.
        assert (first.result(), second.result()) == (1, 2)


def test_a_batch_that_is_given_back_while_the_journal_stops_is_written(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(_stop_while_the_thread_gives_back(tmp_path))
