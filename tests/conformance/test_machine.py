"""A random walk over every backend, compared step by step with a dict; on disk it crashes and opens again on the way."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    invariant,
    precondition,
    rule,
)

from holdfast.storage.errors import Conflict
from holdfast.storage.port import ABSENT, Batch, Event, Record, Transaction
from tests.conformance.backends import Backend, memory_backend, postgres_backend
from tests.conformance.machine import BATCHES, KEYS, BackendMachine, DiskFolders, walk


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


class StoreMachine(BackendMachine):
    def __init__(self, open_next: Callable[[], Backend], crash_copy: Callable[[], Backend] | None) -> None:
        super().__init__(open_next, crash_copy)
        self.model = Model()

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

    @invariant()
    def shows_what_the_model_shows(self) -> None:
        async def everything() -> list[Record]:
            return await self.store.range(b"", None, limit=100)

        assert self.run(everything()) == [self.model.records[key] for key in sorted(self.model.records)]
        assert self.store.revision >= self.model.revision


def test_memory_behaves_like_the_model() -> None:
    walk(lambda: StoreMachine(memory_backend, None), 30, steps=25)


@pytest.mark.parametrize("encrypted", [False, True])
def test_disk_behaves_like_the_model_also_over_crashes(tmp_path: Path, encrypted: bool) -> None:
    folders = DiskFolders(tmp_path, encrypted=encrypted)

    walk(lambda: StoreMachine(folders.fresh, folders.crashed), 10, steps=25)


def test_postgres_behaves_like_the_model(postgres_url: str) -> None:
    walk(postgres_machines(postgres_url), 5, steps=25)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["mem", "disk", "disk-encrypted", "postgres"])
def test_every_backend_behaves_like_the_model_for_long(kind: str, tmp_path: Path, postgres_url: str) -> None:
    folders = DiskFolders(tmp_path, encrypted=kind == "disk-encrypted")
    match kind:
        case "mem":
            walk(lambda: StoreMachine(memory_backend, None), 1000, steps=25)
        case "postgres":
            walk(postgres_machines(postgres_url), 100, steps=25)
        case _:
            walk(lambda: StoreMachine(folders.fresh, folders.crashed), 300, steps=25)


def postgres_machines(url: str) -> Callable[[], StoreMachine]:
    walks = iter(range(1_000_000))
    return lambda: StoreMachine(lambda: postgres_backend(f"{url}_{next(walks)}"), None)
