"""The loop and the journal's thread take turns: what one has written is applied before what the other writes after it."""

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from holdfast.storage.disk import journal as journal_module
from holdfast.storage.disk.journal import TURN_BATCHES_ENOUGH
from holdfast.storage.disk.store import open_disk
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from tests.unit.storage.disk.test_journal_stop import HeldFile, Loop, Unmoved

ALL: Final = list(range(1, TURN_BATCHES_ENOUGH + 2))


async def _overtake(folder: Path) -> list[int]:
    """The revisions in the order in which they become visible, when the loop is to sync a turn before it has heard that the
    thread is done with the one before."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    is_writing = HeldFile.is_writing = threading.Event()
    may_write = HeldFile.may_write = threading.Event()
    is_given_back = threading.Event()
    async with (
        open_disk(folder, StoreOptions(loop_syncs_after=1), file_factory=HeldFile) as store,
        store.watch(b"", None, after=0) as watch,
    ):
        journal: Any = store._journal
        journal._fsync_policy = Unmoved(1)
        loop.on_given_back = is_given_back.set
        first = asyncio.ensure_future(store.commit(Batch(puts={b"a": b""})))
        await asyncio.to_thread(is_writing.wait, 10)
        more = [
            asyncio.ensure_future(store.commit(Batch(puts={b"%d" % number: b""})))
            for number in range(TURN_BATCHES_ENOUGH)  # So many that the loop looks for no others.
        ]
        await asyncio.sleep(0)
        journal._flush_soon()  # As it was scheduled for an earlier turn; now it stands before the thread's report.
        may_write.set()
        assert is_given_back.wait(10)

        assert await asyncio.gather(first, *more) == ALL
        shown: list[int] = []
        while len(shown) < len(ALL):
            shown += [event.revision for event in await asyncio.wait_for(anext(watch), 5)]
        assert store.revision == ALL[-1]
        return shown


def test_the_loop_does_not_overtake_what_the_thread_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = SimpleNamespace(perf_counter=lambda: 0.0, monotonic=time.monotonic)  # However long it is held.
    monkeypatch.setattr(journal_module, "time", quick)
    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(_overtake(tmp_path)) == ALL
