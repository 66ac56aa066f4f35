"""A random walk over every backend, compared step by step with a dict; on disk it crashes and opens again on the way."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.storage.errors import Conflict
from holdfast.storage.port import ABSENT, Batch, Event, Record, Store, Transaction
from tests.conformance.backends import SMALL, Backend, disk_backend, memory_backend, postgres_backend

KEYS = st.sampled_from([b"", b"a", b"a\x00", b"ab", b"b", b"c\xff", b"\xff"])
VALUES = st.binary(max_size=20)
COPIES_MAX = 10


def make_batch(puts: dict[bytes, bytes], deletes: set[bytes]) -> Batch:
    return Batch(puts=puts, deletes=deletes - puts.keys())


BATCHES = st.builds(make_batch, st.dictionaries(KEYS, VALUES, max_size=4), st.sets(KEYS, max_size=2))


class Model:
    """What the store must say."""

    def __init__(self) -> None:
        self.records: dict[bytes, Record] = {}
        self.revision = 0
        self.events: list[Event] = []

    def holds(self, batch: Batch) -> bool:
        return all(self.mod_revision(key) == revision for key, revision in batch.expects.items())

    def mod_revision(self, key: bytes) -> int:
        return self.records[key].mod_revision if key in self.records else ABSENT

    def apply(self, batch: Batch) -> int:
        if not batch.puts and not batch.deletes:
            return self.revision
        self.revision += 1
        for key, value in batch.puts.items():
            old = self.records.get(key)
            self.records[key] = Record(
                key,
                value,
                old.create_revision if old else self.revision,
                self.revision,
                old.version + 1 if old else 1,
            )
            self.events.append(Event(self.revision, key, self.records[key], old))
        for key in batch.deletes:
            gone = self.records.pop(key, None)
            if gone is not None:
                self.events.append(Event(self.revision, key, None, gone))
        return self.revision

    def events_after(self, revision: int) -> list[Event]:
        return [event for event in self.events if event.revision > revision]


class StoreMachine(RuleBasedStateMachine):
    """Rules are steps of a client; `crash` is the machine's."""

    def __init__(self, open_next: Callable[[], Backend], crash_copy: Callable[[], Backend] | None) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.backend = open_next()
        self.crash_copy = crash_copy
        self.model = Model()
        self.opened: AbstractAsyncContextManager[Store] | None = None
        self.open()
        self.first_revision = self.store.revision

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def open(self) -> None:
        self.opened = self.backend.open(SMALL)
        self.store: Store = self.run(self.opened.__aenter__())

    def close(self) -> None:
        assert self.opened is not None
        self.run(self.opened.__aexit__(None, None, None))
        self.opened = None

    @rule(batch=BATCHES, right=st.sets(KEYS, max_size=3), wrong=st.none() | KEYS)
    def commit(self, batch: Batch, right: set[bytes], wrong: bytes | None) -> None:
        batch.expects = {key: self.model.mod_revision(key) for key in right}
        if wrong is not None:
            batch.expects[wrong] = self.model.mod_revision(wrong) + 1
            try:
                self.run(self.store.commit(batch))
            except Conflict as conflict:
                assert conflict.key == wrong
                return
            raise AssertionError("a wrong expectation was let in")
        assert self.run(self.store.commit(batch)) == self.model.apply(batch)

    @rule(batches=st.lists(BATCHES, min_size=2, max_size=6))
    def commit_together(self, batches: list[Batch]) -> None:
        async def together() -> list[int]:
            return list(await asyncio.gather(*[self.store.commit(batch) for batch in batches]))

        revisions = self.run(together())
        order = sorted(range(len(batches)), key=lambda n: revisions[n])
        for number in order:
            if batches[number].puts or batches[number].deletes:
                assert self.model.apply(batches[number]) == revisions[number]

    @rule(key=KEYS, count=st.integers(1, 5))
    def append_together(self, key: bytes, count: int) -> None:
        def append(tx: Transaction) -> None:
            record = tx.get(key)
            tx.put(key, (record.value if record else b"")[-10:] + b"+")

        async def together() -> None:
            await asyncio.gather(*[self.store.transact(append, attempts_max=200) for _ in range(count)])

        self.run(together())
        for _ in range(count):
            old = self.model.records.get(key)
            self.model.apply(Batch(puts={key: (old.value if old else b"")[-10:] + b"+"}))

    @rule(start=KEYS, end=st.none() | KEYS, limit=st.integers(1, 4), reverse=st.booleans())
    def range(self, start: bytes, end: bytes | None, limit: int, reverse: bool) -> None:
        keys = sorted(
            (k for k in self.model.records if k >= start and (end is None or k < end)), reverse=reverse
        )

        found = self.run(self.store.range(start, end, limit=limit, reverse=reverse))

        assert found == [self.model.records[key] for key in keys[:limit]]

    @precondition(lambda self: self.model.revision > 0)
    @rule(data=st.data())
    def watch_from_the_past(self, data: st.DataObject) -> None:
        after = data.draw(st.integers(0, self.model.revision - 1))
        wanted = self.model.events_after(after)

        async def replay() -> list[Event]:
            events: list[Event] = []
            async with (
                asyncio.timeout(20),
                self.store.watch(b"", None, after=after, with_previous=True) as watch,
            ):
                while len(events) < len(wanted):
                    events += await anext(watch)
            return events

        assert sorted(self.run(replay())) == sorted(wanted)

    @precondition(lambda self: self.backend.is_durable)
    @rule()
    def reopen(self) -> None:
        self.close()
        self.open()

    @precondition(lambda self: self.crash_copy is not None)
    @rule()
    def crash(self) -> None:
        assert self.crash_copy is not None
        backend = self.crash_copy()  # What a kill leaves on the disk at this moment.
        self.close()
        self.backend = backend
        self.open()

    @invariant()
    def shows_what_the_model_shows(self) -> None:
        async def everything() -> list[Record]:
            return await self.store.range(b"", None, limit=100)

        assert self.run(everything()) == [self.model.records[key] for key in sorted(self.model.records)]
        assert self.store.revision >= self.model.revision

    def teardown(self) -> None:
        if self.opened is not None:
            self.close()
        self.runner.close()


def walk(machine: Callable[[], StoreMachine], examples: int) -> None:
    # Hypothesis takes any callable that makes a machine; its types know only of classes.
    run_state_machine_as_test(
        cast("type[StoreMachine]", machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


class DiskFolders:
    """A new folder for each walk and each crash."""

    def __init__(self, root: Path, *, encrypted: bool) -> None:
        self._root = root
        self._encrypted = encrypted
        self._count = 0

    def fresh(self) -> Backend:
        self._count += 1
        return disk_backend(self._root / str(self._count), encrypted=self._encrypted)

    def crashed(self) -> Backend:
        source = self._root / str(self._count)
        self._count += 1
        target = self._root / str(self._count)
        _copy_living(source, target)
        return disk_backend(target, encrypted=self._encrypted)


def _copy_living(source: Path, target: Path) -> None:
    """The journal prepares files and the engine removes some in the background: a copy that missed one is made again."""
    for _ in range(COPIES_MAX):
        try:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("allocating.*", "*.spare"))
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(target)
        else:
            return
    raise AssertionError(f"{source} never held still")


def test_memory_behaves_like_the_model() -> None:
    walk(lambda: StoreMachine(memory_backend, None), 30)


@pytest.mark.parametrize("encrypted", [False, True])
def test_disk_behaves_like_the_model_also_over_crashes(tmp_path: Path, encrypted: bool) -> None:
    folders = DiskFolders(tmp_path, encrypted=encrypted)

    walk(lambda: StoreMachine(folders.fresh, folders.crashed), 10)


def test_postgres_behaves_like_the_model(postgres_url: str) -> None:
    walk(postgres_machines(postgres_url), 5)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["mem", "disk", "disk-encrypted", "postgres"])
def test_every_backend_behaves_like_the_model_for_long(kind: str, tmp_path: Path, postgres_url: str) -> None:
    folders = DiskFolders(tmp_path, encrypted=kind == "disk-encrypted")
    match kind:
        case "mem":
            walk(lambda: StoreMachine(memory_backend, None), 1000)
        case "postgres":
            walk(postgres_machines(postgres_url), 100)
        case _:
            walk(lambda: StoreMachine(folders.fresh, folders.crashed), 300)


def postgres_machines(url: str) -> Callable[[], StoreMachine]:
    walks = iter(range(1_000_000))
    return lambda: StoreMachine(lambda: postgres_backend(f"{url}_{next(walks)}"), None)
