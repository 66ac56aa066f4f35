"""Turns of the loop, failing syncs and power cuts in any order, over a device that says what it has: what was acknowledged
is there, and nothing is seen that is not."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from holdfast.common import failpoint
from holdfast.storage.disk import journal
from holdfast.storage.disk.fsync_policy import STALL_S
from holdfast.storage.disk.journal import DiskJournal, Queued
from holdfast.storage.disk.rocks import RocksEngine
from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import Conflict, StorageError, StoreClosed
from holdfast.storage.local.pending import PendingBatches
from holdfast.storage.local.store import LocalStore
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Event, Record, Transaction
from tests.infra.device import Device, Fault
from tests.infra.examples import examples
from tests.service.storage.turn_model import Commit, Prediction, TurnModel, by_key

OPTIONS = StoreOptions(
    journal_segment_bytes=8 << 10, free_bytes_min=0, group_batches_max=3, loop_syncs_after=4
)
TIMEOUT_S = 20
MUTANT_TIMEOUT_S = 1  # A store that is broken on purpose may hang: that is caught, too.
SLOW_S = STALL_S * 0.9  # Not a stall, after which the loop would not sync for thousands of syncs.
KEYS = st.sampled_from([b"", b"a", b"a\x00", b"b", b"c\xff"])
VALUES = st.binary(max_size=12) | st.sampled_from([b"x" * 3000, bytes(1500)])
Batches = list[tuple[dict[bytes, bytes], set[bytes], set[bytes]]]
"""Puts, deletes, and keys that are expected to be as they are."""
PUTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=3)
BATCHES = st.lists(
    st.tuples(PUTS, st.sets(KEYS, max_size=2), st.sets(KEYS, max_size=2)), min_size=1, max_size=5
)
CHECKPOINT = "journal.release"


class TurnMachine(RuleBasedStateMachine):
    """Calls are begun by one rule and end in any later one; between two rules the loop stands still."""

    def __init__(self, folders: Iterator[Path], patch: pytest.MonkeyPatch, timeout_s: float) -> None:
        super().__init__()
        self.folders = folders
        self.patch = patch
        self.timeout_s = timeout_s
        self.runner = asyncio.Runner()
        self.model = TurnModel()
        self.calls: list[asyncio.Task[None]] = []
        self.opened: AbstractAsyncContextManager[LocalStore] | None = None
        self.open(next(folders))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    # -- one life of the store

    def open(self, folder: Path) -> None:
        self.folder = folder
        self.device = Device()
        self.patch.setattr(journal, "time", self.device.clock())
        self.opened = open_disk(folder, OPTIONS, file_factory=self.device.open)
        self.run(self._open(self.opened))

    async def _open(self, opened: AbstractAsyncContextManager[LocalStore]) -> None:
        self.store = store = await opened.__aenter__()
        compacted = store.compacted_revision
        self.model.opened(store.revision, await history_of(store), compacted)
        self.device.synced_revision = store.revision
        self.watched_after = store.revision
        self.watched: list[Event] = []
        self.told = asyncio.Event()
        self.watcher = asyncio.ensure_future(self._watch(store, self.device))
        self._listen(store)

    def _listen(self, store: LocalStore) -> None:
        """Which commits a failure takes with it depends on when the loop hears of it: the model hears of it then, too."""
        failed = store.failed

        def failed_and_told(error: StorageError, *, problem: StorageError | None) -> None:
            failed(error, problem=problem)
            self.model.lose(store.revision, is_fatal=problem is not None)

        store.failed = failed_and_told  # type: ignore[method-assign]

    async def _watch(self, store: LocalStore, device: Device) -> None:
        async with store.watch(b"", None, with_previous=True) as watch:
            try:
                async for events in watch:
                    assert events[-1].revision <= device.synced_revision, "told before it was durable"
                    for revision in sorted({event.revision for event in events}):
                        self.watched += by_key([event for event in events if event.revision == revision])
                    self.told.set()
            except StoreClosed:
                return

    async def _end(self) -> None:
        """Close it; what it still does is not looked at."""
        assert self.opened is not None
        self.device.gate.set()
        opened, self.opened = self.opened, None
        async with asyncio.timeout(self.timeout_s):
            await opened.__aexit__(None, None, None)
        for task in (calls := [*self.calls, self.watcher]):
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        self.calls = []

    # -- calls

    @rule(batches=BATCHES)
    def commit(self, batches: Batches) -> None:
        """Several in one turn, each on what the one before it staged."""
        for puts, deletes, expected in batches:
            self.begin(partial(self.batch, puts, deletes, expected))

    @rule(puts=PUTS, key=KEYS)
    def conflict(self, puts: dict[bytes, bytes], key: bytes) -> None:
        self.begin(lambda: Batch(puts=puts, expects={key: self.model.mod_revision(key) + 1}))

    @rule(count=st.integers(65, 90))
    def commit_more_than_a_turn_takes(self, count: int) -> None:
        for number in range(count):
            self.begin(partial(Batch, puts={b"a": b"%d" % number}))

    def batch(self, puts: dict[bytes, bytes], deletes: set[bytes], expected: set[bytes]) -> Batch:
        return Batch(
            puts=puts,
            deletes=deletes - puts.keys(),
            expects={key: self.model.mod_revision(key) for key in expected},
        )

    def begin(self, make: Callable[[], Batch]) -> None:
        self.calls.append(self.runner.get_loop().create_task(self._commit(make, self.store, self.device)))

    async def _commit(self, make: Callable[[], Batch], store: LocalStore, device: Device) -> None:
        batch = make()
        prediction = self.model.stage(batch)  # Up to the first wait the store does as much, in the same step.
        try:
            revision = await store.commit(batch)
        except Conflict as conflict:
            if self._is_over(store):
                return
            assert conflict.key == prediction.conflict
            check_durable(prediction.after, device)
        except StorageError:
            if self._is_over(store):
                return
            check_refusal(prediction)
        else:
            assert prediction.commit is not None, "it should not have been taken"
            assert revision == prediction.commit.revision
            if self._is_over(store):
                return
            assert not prediction.commit.is_lost, (
                f"revision {revision} was acknowledged after it was given up"
            )
            prediction.commit.is_acknowledged = True
            check_durable(prediction.commit, device)

    def _is_over(self, store: LocalStore) -> bool:
        """The power went out before this call ended: its caller never heard of it."""
        return store is not self.store or self.opened is None

    @rule(key=KEYS, count=st.integers(1, 4))
    def append(self, key: bytes, count: int) -> None:
        """Transactions that build on what is only staged."""
        for _ in range(count):
            self.calls.append(self.runner.get_loop().create_task(self._append(key, self.store, self.device)))

    async def _append(self, key: bytes, store: LocalStore, device: Device) -> None:
        prediction: list[Prediction] = []

        def append(tx: Transaction) -> None:
            record = tx.get(key)
            assert record == self.model.latest.get(key)
            value = (record.value if record else b"")[-10:] + b"+"
            tx.put(key, value)
            prediction.append(self.model.stage(Batch(puts={key: value})))

        try:
            await store.transact(append)
        except StorageError:
            if not self._is_over(store):
                check_refusal(prediction[-1])
        else:
            commit = prediction[-1].commit
            assert commit is not None
            if not self._is_over(store):
                assert not commit.is_lost
                commit.is_acknowledged = True
                check_durable(commit, device)

    @rule(key=KEYS)
    def look(self, key: bytes) -> None:
        """A transaction that only reads may read what is staged, and then tells of it when that is durable."""
        self.calls.append(self.runner.get_loop().create_task(self._look(key, self.store, self.device)))

    async def _look(self, key: bytes, store: LocalStore, device: Device) -> None:
        chain = list(self.model.chain)
        wanted = self.model.latest.get(key)
        try:
            found = await store.transact(lambda tx: tx.get(key))
        except StorageError:
            if not self._is_over(store):
                assert any(commit.is_lost for commit in chain), "nothing of what it read was lost"
        else:
            assert found == wanted
            if not self._is_over(store) and found is not None:
                assert found.mod_revision <= device.synced_revision, "told before it was durable"

    @rule(key=KEYS, value=st.binary(max_size=4))
    def refer_to_a_blob(self, key: bytes, value: bytes) -> None:
        """The record must not be there without it."""

        async def written() -> str:
            async with self.store.blobs.create() as writer:
                await writer.write(value)
                return (await writer.finish()).id

        try:
            blob_id = self.run(written())
        except StorageError:
            return  # The journal had no room a moment ago.
        self.begin(lambda: Batch(puts={key: blob_id.encode()}, blobs={key: (blob_id,)}))

    # -- what the loop and the device do

    @rule(count=st.integers(1, 6))
    def turn(self, count: int) -> None:
        async def turns() -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        self.run(turns())

    @rule()
    def wait_idle(self) -> None:
        """All calls under way come to their end."""
        self.device.gate.set()

        async def ended() -> None:
            async with asyncio.timeout(self.timeout_s):
                await asyncio.gather(*self.calls)
                while self.last_watched < self.store.revision:
                    self.told.clear()
                    await self.told.wait()

        self.run(ended())
        assert self.store.revision == (self.model.newest.revision if self.model.newest else 0)

    @property
    def last_watched(self) -> int:
        return self.watched[-1].revision if self.watched else self.watched_after

    @rule()
    def hold(self) -> None:
        """The thread's next sync takes until `release`; the loop goes on meanwhile."""
        self.device.is_syncing.clear()
        self.device.gate.clear()

    @rule()
    def release(self) -> None:
        self.device.gate.set()

    @rule()
    def become_slow(self) -> None:
        self.device.sync_s = SLOW_S

    @rule()
    def become_quick(self) -> None:
        """The policy has seen enough quick syncs since, and the thread may be in the middle of one."""
        self.device.sync_s = 0.0
        assert isinstance(self.store._journal, DiskJournal)
        for _ in range(200):
            self.store._journal._fsync_policy.took(0.0)

    @rule(fault=st.sampled_from(Fault), seed=st.integers(0, 9), batches=BATCHES)
    def fail_a_sync(self, fault: Fault, seed: int, batches: Batches) -> None:
        self.device.random.seed(seed)
        self.device.faults.append(fault)
        self.commit(batches)

    @rule(is_behind=st.booleans())
    def leave_full_segments(self, is_behind: bool) -> None:
        """The engine is flushed late, so a power cut finds several segments."""
        if is_behind:
            failpoint.arm(f"{CHECKPOINT}:skip")
        else:
            failpoint.ARMED.pop(CHECKPOINT, None)

    @rule()
    def flush(self) -> None:
        """Whatever the engine has is on the device now; it must not be more than the journal has."""
        engine_of(self.store).flush()

    # -- its end

    @rule()
    def reopen(self) -> None:
        """Closed in order: what is under way ends first."""
        self.wait_idle()
        folder = self.folder
        self.run(self._end())
        self.open(folder)

    @rule(seed=st.integers(0, 1 << 16))
    def cut_power(self, seed: int) -> None:
        """The old process goes on in the old folder, and is not looked at."""
        copy = next(self.folders)
        self.device.copy(self.folder, copy, seed, engine_of(self.store)._flushing)
        self.take_what_is_done()
        self.run(self._end())
        self.open(copy)

    def teardown(self) -> None:
        failpoint.ARMED.pop(CHECKPOINT, None)
        if self.opened is not None:
            self.device.gate.set()
            self.run(self._end())
        self.runner.close()

    # -- always

    def take_what_is_done(self) -> None:
        for call in [*self.calls, self.watcher]:
            if call.done():
                call.result()
        self.calls = [call for call in self.calls if not call.done()]

    @invariant()
    def readers_see_what_is_durable(self) -> None:
        async def everything() -> tuple[int, list[Record]]:
            return self.store.revision, await self.store.range(b"", None, limit=100)

        revision, records = self.run(everything())
        assert revision <= self.device.synced_revision, "shown before it was durable"
        state = self.model.shown(revision)
        assert records == [state[key] for key in sorted(state)]

    @invariant()
    def watchers_are_told_all_of_it_in_order(self) -> None:
        assert self.watched == self.model.events(self.watched_after, self.last_watched)
        assert self.last_watched <= self.store.revision

    @invariant()
    def each_call_ended_as_it_had_to(self) -> None:
        self.take_what_is_done()


def engine_of(store: LocalStore) -> RocksEngine:
    assert isinstance(store._engine, RocksEngine)
    return store._engine


def check_durable(commit: Commit | None, device: Device) -> None:
    assert commit is None or commit.revision <= device.synced_revision, "told before it was durable"


def check_refusal(prediction: Prediction) -> None:
    """No commit fails but by a failure of the device."""
    built_on = prediction.commit or prediction.after
    assert prediction.is_refused or (built_on is not None and built_on.is_lost), "refused without need"


async def history_of(store: LocalStore) -> list[Event]:
    events: list[Event] = []
    last = store.compacted_revision
    async with (
        asyncio.timeout(TIMEOUT_S),
        store.watch(b"", None, after=last, with_previous=True) as watch,
    ):
        while last < store.revision:
            events += await anext(watch)
            last = events[-1].revision
    return events


def walk(tmp_path: Path, count: int, *, steps: int = 30, is_search: bool = True) -> None:
    """Random walks, each in folders of its own; by the device's time."""
    folders = (tmp_path / str(number) for number in range(1_000_000))
    phases = tuple(Phase) if is_search else (Phase.generate,)
    timeout_s = TIMEOUT_S if is_search else MUTANT_TIMEOUT_S
    with pytest.MonkeyPatch.context() as patch:
        run_state_machine_as_test(
            cast("type[TurnMachine]", lambda: TurnMachine(folders, patch, timeout_s)),
            settings=settings(
                max_examples=count,
                stateful_step_count=steps,
                deadline=None,
                phases=phases,
                report_multiple_bugs=False,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )


def test_no_turn_lies_about_what_the_device_has(tmp_path: Path) -> None:
    walk(tmp_path, examples(searching=240))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_turn_lies_in_a_long_search(tmp_path: Path) -> None:
    walk(tmp_path, 2000, steps=40)


# -- mutants of the journal, each of which the walk has to find


def applies_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    write_group = DiskJournal._write_group

    def eager(self: DiskJournal, group: list[Queued]) -> bool:
        for _, staged in group:
            self._store._engine.write(staged.writes)
        return write_group(self, group)

    patch.setattr(DiskJournal, "_write_group", eager)


def swallows_a_failure(patch: pytest.MonkeyPatch) -> None:
    append = DiskJournal._append

    def careless(self: DiskJournal, revision: int, entries: list[bytes]) -> None:
        with suppress(OSError):
            append(self, revision, entries)

    patch.setattr(DiskJournal, "_append", careless)


class Detour:
    """The loop, on which the thread's reports come in some turns late."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        is_report = getattr(callback, "__name__", "") == "_report"
        self._loop.call_soon_threadsafe(self._later, 4 if is_report else 0, callback, *args)

    def _later(self, turns: int, callback: Callable[..., object], *args: object) -> None:
        if turns:
            self._loop.call_soon(self._later, turns - 1, callback, *args)
        else:
            callback(*args)


def lets_the_loop_overtake_the_thread(patch: pytest.MonkeyPatch) -> None:
    """It does not count the groups of which the loop has yet to hear."""
    start, take = DiskJournal.start, DiskJournal._take

    def uncounted(self: DiskJournal) -> list[Queued]:
        group = take(self)
        self._unreported = 0
        return group

    def started(self: DiskJournal, store: LocalStore) -> None:
        start(self, store)
        self._loop = cast("asyncio.AbstractEventLoop", Detour(self._loop))

    patch.setattr(DiskJournal, "start", started)
    patch.setattr(DiskJournal, "_take", uncounted)


def takes_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    """As a group that goes back from the thread to the loop would, if it were put behind what came meanwhile."""
    take = DiskJournal._take

    def taken(self: DiskJournal) -> list[Queued]:
        group = take(self)
        self._queue.reverse()
        return group

    patch.setattr(DiskJournal, "_take", taken)


def gives_numbers_again(patch: pytest.MonkeyPatch) -> None:
    lose = PendingBatches.lose

    def forgetful(self: PendingBatches, durable_revision: int, error: StorageError) -> None:
        lose(self, durable_revision, error)
        self.start_at(durable_revision)

    patch.setattr(PendingBatches, "lose", forgetful)


def answers_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("HOLDFAST_FAILPOINT", "commit.answer_before_durable:skip")


def leaves_the_sync_out(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("HOLDFAST_FAILPOINT", "journal.sync:skip")


@pytest.mark.parametrize(
    "mutate",
    [
        applies_before_the_sync,
        swallows_a_failure,
        lets_the_loop_overtake_the_thread,
        takes_the_newest_first,
        gives_numbers_again,
        answers_before_the_sync,
        leaves_the_sync_out,
    ],
    ids=lambda mutate: mutate.__name__,
)
def test_a_journal_that_lies_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutate(monkeypatch)

    with (
        failpoint.armed(os.environ.get("HOLDFAST_FAILPOINT", "")),
        pytest.raises(
            (AssertionError, TimeoutError, Flaky)
        ),  # Flaky: its thread was quicker or slower the second time.
    ):
        walk(tmp_path, 100, is_search=False)
