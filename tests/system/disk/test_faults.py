"""Devices that fail, fill up or are slow: what readers, writers and watchers see."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.common import failpoint
from holdfast.storage.disk import segment
from holdfast.storage.disk.fsync_policy import SYNCS_AFTER_STALL
from holdfast.storage.disk.journal import DiskJournal
from holdfast.storage.disk.store import RECOVERY_LOOK_S, open_disk
from holdfast.storage.errors import (
    Conflict,
    OutcomeUnknown,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import ABSENT, Batch, Store, Transaction
from tests.conformance.interleaving import Commit, before_commits
from tests.infra.device import Device, Fault
from tests.infra.files import BrokenFile, FullFile, GatedFile, NotedFile, UnmarkableFile

OPTIONS = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=0)
synced_by = pytest.mark.parametrize(
    "options", [OPTIONS, replace(OPTIONS, loop_syncs_after=0)], ids=["thread", "loop"]
)
TIMEOUT_S = 10


@pytest.fixture(autouse=True)
def healthy() -> Iterator[None]:
    GatedFile.gate.set()
    FullFile.is_full = False
    BrokenFile.is_broken = False
    yield
    GatedFile.gate.set()


async def turns(count: int = 20) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until_well(store: Store) -> None:
    for _ in range(TIMEOUT_S * 20):
        if store.problem is None:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(store.problem)


async def test_nothing_is_visible_before_it_is_durable(tmp_path: Path) -> None:
    async with open_disk(tmp_path, OPTIONS, file_factory=GatedFile) as store:
        await store.commit(Batch(puts={b"a": b"old"}))
        watch = store.watch(b"", None)
        GatedFile.gate.clear()

        commit = asyncio.ensure_future(store.commit(Batch(puts={b"a": b"new", b"b": b""})))
        event = asyncio.ensure_future(anext(watch))
        await turns()
        record = await store.get(b"a")
        assert record is not None
        assert record.value == b"old"
        assert await store.get_many([b"b"]) == {}
        assert [r.key for r in await store.range(b"", None, limit=9)] == [b"a"]
        assert store.revision == 1
        assert not commit.done()
        assert not event.done()

        GatedFile.gate.set()
        assert await commit == 2
        assert len(await event) == 2
        assert await store.get(b"b") is not None


async def test_while_one_group_syncs_the_next_one_gathers(tmp_path: Path) -> None:
    async with open_disk(tmp_path, OPTIONS, file_factory=GatedFile) as store:
        GatedFile.gate.clear()
        GatedFile.is_syncing.clear()
        first = asyncio.ensure_future(store.commit(Batch(puts={b"first": b""})))
        await asyncio.to_thread(GatedFile.is_syncing.wait)
        rest = [asyncio.ensure_future(store.commit(Batch(puts={b"%d" % n: b""}))) for n in range(50)]
        await turns()
        GatedFile.gate.set()
        await asyncio.gather(first, *rest)

        assert store.figures()["syncs"] == 2


async def test_no_more_batches_share_a_sync_than_the_options_say(tmp_path: Path) -> None:
    async with open_disk(tmp_path, replace(OPTIONS, group_batches_max=10), file_factory=GatedFile) as store:
        GatedFile.gate.clear()
        GatedFile.is_syncing.clear()
        first = asyncio.ensure_future(store.commit(Batch(puts={b"first": b""})))
        await asyncio.to_thread(GatedFile.is_syncing.wait)
        rest = [asyncio.ensure_future(store.commit(Batch(puts={b"%d" % n: b""}))) for n in range(50)]
        await turns()
        GatedFile.gate.set()
        await asyncio.gather(first, *rest)

        assert store.figures()["syncs"] == 6


@synced_by
async def test_an_unexpected_error_in_the_journal_fails_the_commits_instead_of_hanging_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: StoreOptions
) -> None:
    async with open_disk(tmp_path, options) as store:
        await store.commit(Batch(puts={b"a": b"1"}))

        def defect(*_: object) -> bytes:
            raise ArithmeticError("defect")

        monkeypatch.setattr(segment, "encode_record", defect)
        with pytest.raises(StoreReadOnly):
            await store.commit(Batch(puts={b"a": b"2"}))

        assert store.problem is not None
        assert await store.get(b"a") is not None


async def test_a_transaction_builds_on_what_is_staged_but_is_held_back_with_it(tmp_path: Path) -> None:
    def add(tx: Transaction) -> int:
        record = tx.get(b"n")
        value = int(record.value) + 1 if record else 1
        tx.put(b"n", b"%d" % value)
        return value

    def look(tx: Transaction) -> bytes | None:
        record = tx.get(b"n")
        return record.value if record else None

    def refuse(tx: Transaction) -> None:
        if tx.get(b"n") is not None:
            raise KeyError("held")

    async with open_disk(tmp_path, OPTIONS, file_factory=GatedFile) as store:
        GatedFile.gate.clear()
        adds = [asyncio.ensure_future(store.transact(add)) for _ in range(5)]
        await turns()
        looking = asyncio.ensure_future(store.transact(look))
        refused = asyncio.ensure_future(store.transact(refuse))
        conflict = asyncio.ensure_future(store.commit(Batch(expects={b"n": ABSENT}, puts={b"n": b"0"})))
        await turns()
        assert not any(task.done() for task in [*adds, looking, refused, conflict])

        GatedFile.gate.set()
        assert await asyncio.gather(*adds) == [1, 2, 3, 4, 5]
        assert await looking == b"5"
        with pytest.raises(KeyError):
            await refused
        with pytest.raises(Conflict):
            await conflict


@synced_by
async def test_a_failed_sync_turns_the_store_read_only_until_it_is_opened_again(
    tmp_path: Path, options: StoreOptions
) -> None:
    async with open_disk(tmp_path, options) as store:
        await store.commit(Batch(puts={b"a": b"kept"}))
        watch = store.watch(b"", None)

        with failpoint.armed("journal.sync:error"):
            answers = await asyncio.gather(
                *[store.commit(Batch(puts={b"a": b"lost", b"n%d" % n: b""})) for n in range(10)],
                return_exceptions=True,
            )

        assert all(isinstance(answer, StoreReadOnly) for answer in answers)
        assert store.problem is not None
        with pytest.raises(StoreReadOnly):
            await store.commit(Batch(puts={b"b": b""}))
        with pytest.raises(StoreReadOnly):
            await store.check()
        record = await store.get(b"a")
        assert record is not None
        assert record.value == b"kept"
        assert len(await store.range(b"", None, limit=99)) == 1
        assert watch.revision == 1

    async with open_disk(tmp_path, options) as store:
        records = await store.range(b"", None, limit=99)
        assert store.problem is None
        # The device may have kept the failed group or not, but only as a whole, and from now on for good.
        values = {record.value for record in records if record.key == b"a"}
        assert (values, len(records)) == ({b"kept"}, 1) or values == {b"lost"}
        await store.commit(Batch(puts={b"b": b""}))


@synced_by
async def test_a_full_device_refuses_writes_and_goes_on_when_there_is_room(
    tmp_path: Path, options: StoreOptions
) -> None:
    async with open_disk(tmp_path, options, file_factory=FullFile) as store:
        await store.commit(Batch(puts={b"a": b"1"}))

        FullFile.is_full = True
        with pytest.raises(StoreFull):
            await store.commit(Batch(puts={b"a": b"2"}))
        record = await store.get(b"a")
        assert record is not None
        assert record.value == b"1"

        FullFile.is_full = False
        await store.commit(Batch(puts={b"a": b"3"}))

    async with open_disk(tmp_path, options) as store:
        record = await store.get(b"a")
        assert record is not None
        assert (record.value, record.version) == (b"3", 2)


@synced_by
async def test_what_a_full_device_kept_of_a_refused_group_does_not_spoil_its_segment(
    tmp_path: Path, options: StoreOptions
) -> None:
    """A device may have no room for what it was given only when it is to sync it, and then have all of it nevertheless."""
    device = Device()
    folder, copy = tmp_path / "store", tmp_path / "copy"
    small = replace(options, journal_segment_bytes=8 << 10)
    with failpoint.armed("journal.release:skip"):  # The full segment is still there when the power goes out.
        async with open_disk(folder, small, file_factory=device.open) as store:
            await store.commit(Batch(puts={b"a": b"1"}))
            device.faults.append(Fault.FULL_ALL)
            with pytest.raises(StoreFull):
                await store.commit(Batch(puts={b"b": b"refused"}))
            await store.commit(Batch(puts={b"c": bytes(9000)}))  # Into the next segment.
            await asyncio.to_thread(device.copy, folder, copy, 0)

    async with open_disk(copy, small) as store:
        assert [record.key for record in await store.range(b"", None, limit=9)] == [b"a", b"c"]


@synced_by
async def test_a_mark_that_can_not_be_written_stops_no_commit(tmp_path: Path, options: StoreOptions) -> None:
    async with open_disk(tmp_path, options, file_factory=UnmarkableFile) as store:
        await store.commit(Batch(puts={b"a": b"1"}))
        await asyncio.to_thread(UnmarkableFile.has_failed.wait, TIMEOUT_S)

        async with asyncio.timeout(TIMEOUT_S):
            await store.commit(Batch(puts={b"a": b"2"}))

    async with open_disk(tmp_path, options) as store:
        record = await store.get(b"a")
        assert record is not None
        assert (record.value, record.version) == (b"2", 2)


async def test_what_a_transaction_read_of_a_lost_group_is_never_taken_for_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_disk(tmp_path, OPTIONS, file_factory=FullFile) as store:
        started, go_on = asyncio.Event(), asyncio.Event()
        FullFile.is_full = True
        lost = asyncio.ensure_future(store.commit(Batch(puts={b"a": b"lost"})))
        await asyncio.sleep(0)
        seen: list[bytes | None] = []

        def work(tx: Transaction) -> None:
            record = tx.get(b"a")
            seen.append(record.value if record else None)
            tx.put(b"b", b"built on " + (record.value if record else b"nothing"))

        async def pause(commit: Commit) -> None:
            started.set()
            await go_on.wait()

        before_commits(monkeypatch, store, pause)
        running = asyncio.ensure_future(store.transact(work))
        await started.wait()
        with pytest.raises(StoreFull):
            await lost
        FullFile.is_full = False
        await store.commit(Batch(puts={b"a": b"real"}))
        go_on.set()
        await running

        assert seen == [b"lost", b"real"]
        record = await store.get(b"b")
        assert record is not None
        assert record.value == b"built on real"


async def test_a_second_process_is_told_the_path_and_the_holder(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from holdfast.storage.disk.store import open_disk\n"
        "from holdfast.storage.options import StoreOptions\n"
        "async def main():\n"
        "    async with open_disk(Path(sys.argv[1]), StoreOptions()): pass\n"
        "asyncio.run(main())\n"
    )
    async with open_disk(tmp_path, OPTIONS):
        second = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        with pytest.raises(StoreLocked):
            async with open_disk(tmp_path, OPTIONS):
                raise AssertionError("opened twice")

    assert second.returncode != 0
    assert "StoreLocked" in second.stderr
    assert str(tmp_path) in second.stderr
    assert f"process {os.getpid()}" in second.stderr


async def test_a_flush_that_fails_with_the_journal_does_not_open_the_store_again(tmp_path: Path) -> None:
    """Commits after it would wait for ever: the journal takes nothing more until it is opened again."""
    async with open_disk(tmp_path, OPTIONS, file_factory=BrokenFile) as store:
        await store.commit(Batch(puts={b"a": b"1"}))
        BrokenFile.is_broken = True
        with pytest.raises(StoreReadOnly):
            await store.commit(Batch(puts={b"a": b"2"}))
        BrokenFile.is_broken = False
        store.engine_failed(StoreUnavailable("a flush failed in the same moment"))
        await asyncio.sleep(3 * RECOVERY_LOOK_S)

        with pytest.raises(StoreReadOnly):
            async with asyncio.timeout(TIMEOUT_S):
                await store.commit(Batch(puts={b"a": b"3"}))
        record = await store.get(b"a")
    assert record is not None
    assert record.value == b"1"


async def test_a_broken_engine_serves_reads_until_files_can_be_made_again(tmp_path: Path) -> None:
    async with open_disk(tmp_path, OPTIONS) as store:
        await store.commit(Batch(puts={b"a": b"1"}))
        probe = tmp_path / "probe"
        probe.mkdir()  # No file can be made in its place: as with a quota, or a mount that turned read-only.
        store.engine_failed(StoreUnavailable("a flush failed"))
        for _ in range(3):
            await asyncio.sleep(RECOVERY_LOOK_S)
            assert await store.get(b"a") is not None
        assert store.problem is not None

        probe.rmdir()
        await until_well(store)
        await store.commit(Batch(puts={b"a": b"2"}))


@pytest.mark.parametrize("failures", [1, 2, 3])
async def test_no_number_is_given_again_after_a_recovery(tmp_path: Path, failures: int) -> None:
    async with open_disk(tmp_path, OPTIONS) as store:
        first = await store.commit(Batch(puts={b"a": b"1"}))
        for _ in range(failures):
            store.engine_failed(StoreUnavailable("a flush failed"))
        given = store._pending.revision
        await until_well(store)

        second = await store.commit(Batch(puts={b"a": b"2"}))

        assert second > given
        with pytest.raises(Conflict):
            await store.commit(Batch(expects={b"a": first}, puts={b"a": b"3"}))
    async with open_disk(tmp_path, OPTIONS) as store:
        assert await store.commit(Batch(puts={b"b": b""})) > second


async def test_what_a_recovery_found_in_the_journal_is_not_lost(tmp_path: Path) -> None:
    async with open_disk(tmp_path, OPTIONS, file_factory=GatedFile) as store:
        first = await store.commit(Batch(puts={b"a": b"1"}))
        GatedFile.gate.clear()
        commit = asyncio.ensure_future(store.commit(Batch(puts={b"a": b"2"})))
        await asyncio.to_thread(GatedFile.is_syncing.wait)
        store.engine_failed(StoreUnavailable("a flush failed"))
        GatedFile.gate.set()
        with pytest.raises(OutcomeUnknown):
            await commit
        await until_well(store)

        record = await store.get(b"a")
        assert record is not None
        assert record.value == b"2"
        await store.commit(Batch(expects={b"a": record.mod_revision}))
        with pytest.raises(Conflict):
            await store.commit(Batch(expects={b"a": first}, puts={b"a": b"3"}))


# -- who syncs a turn


async def test_what_one_turn_commits_is_synced_once_by_the_loop(tmp_path: Path) -> None:
    options = replace(OPTIONS, loop_syncs_after=0)
    async with open_disk(tmp_path, options, file_factory=NotedFile) as store:
        NotedFile.synced_by.clear()

        revisions = await asyncio.gather(*[store.commit(Batch(puts={b"%d" % n: b""})) for n in range(5)])

    assert revisions == [1, 2, 3, 4, 5]
    assert NotedFile.synced_by == [threading.get_ident()]


async def test_a_large_turn_is_synced_by_the_thread_in_the_same_order(tmp_path: Path) -> None:
    options = replace(OPTIONS, loop_syncs_after=0)
    async with open_disk(tmp_path, options, file_factory=NotedFile) as store:
        NotedFile.synced_by.clear()

        revisions = await asyncio.gather(
            *[store.commit(Batch(puts={b"%d" % n: bytes(100 << 10)})) for n in range(4)],
            *[store.commit(Batch(puts={b"small": b"%d" % n})) for n in range(100)],
        )
        newest = await store.get(b"small")

    assert revisions == list(range(1, 105))
    assert newest is not None
    assert newest.value == b"99"
    assert threading.get_ident() not in NotedFile.synced_by


async def test_a_device_that_becomes_slow_is_left_to_the_thread_and_taken_back(tmp_path: Path) -> None:
    options = replace(OPTIONS, loop_syncs_after=8)
    own = threading.get_ident()
    async with open_disk(tmp_path, options, file_factory=NotedFile) as store:
        journal = store._journal
        assert isinstance(journal, DiskJournal)

        async def commits(count: int) -> list[int]:
            NotedFile.synced_by.clear()
            for number in range(count):
                await store.commit(Batch(puts={b"key": b"%d" % number}))
            return NotedFile.synced_by

        await commits(8)
        quick = (
            set(await commits(4)) if journal._fsync_policy.allows_loop else {own}
        )  # This device may be slow.
        for _ in range(200):
            journal._fsync_policy.took(1.0)
        slow = set(await commits(4))
        for _ in range(SYNCS_AFTER_STALL):
            journal._fsync_policy.took(0.0)
        quick_again = set(await commits(1))
        last = await store.get(b"key")

    assert quick == quick_again == {own}
    assert own not in slow
    assert last is not None
    assert last.value == b"0"
