"""A random walk that reads, writes and compacts, compared with a list of every state the store ever had."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    invariant,
    rule,
)

from holdfast.storage.errors import Compacted, FutureRevision, StorageError
from holdfast.storage.local import key_filter, past
from holdfast.storage.port import Batch, Record
from tests.conformance.backends import Backend, memory_backend, postgres_backend
from tests.conformance.machine import BATCHES, KEYS, BackendMachine, DiskFolders, walk

# Around what exists: also one before the first revision, and two that are not reached yet.
FRACTIONS = st.integers(0, 1000)


class States:
    """What the store must say: `by_revision[n]` holds all records as of revision n."""

    def __init__(self) -> None:
        self.by_revision: list[dict[bytes, Record]] = [{}]
        self.compacted = 0

    @property
    def newest(self) -> int:
        return len(self.by_revision) - 1

    def apply(self, batch: Batch) -> int:
        if not batch.puts and not batch.deletes:
            return self.newest
        revision = len(self.by_revision)
        state = dict(self.by_revision[-1])
        for key, value in batch.puts.items():
            old = state.get(key)
            created, version = (old.create_revision, old.version + 1) if old else (revision, 1)
            state[key] = Record(key, value, created, revision, version)
        for key in batch.deletes:
            state.pop(key, None)
        self.by_revision.append(state)
        return revision

    def pick(self, fraction: int) -> int:
        return fraction * (self.newest + 4) // 1001 - 1

    def refusal(self, revision: int) -> type[StorageError] | None:
        if revision > self.newest:
            return FutureRevision
        return Compacted if revision < self.compacted else None


class HistoryMachine(BackendMachine):
    def __init__(self, open_next: Callable[[], Backend], crash_copy: Callable[[], Backend] | None) -> None:
        super().__init__(open_next, crash_copy)
        self.states = States()

    @rule(batch=BATCHES)
    def commit(self, batch: Batch) -> None:
        assert self.run(self.store.commit(batch)) == self.states.apply(batch)

    @rule(key=KEYS, count=st.integers(2, 6))
    def change_often(self, key: bytes, count: int) -> None:
        for number in range(count):
            self.commit(Batch(puts={key: b"%d" % number}))

    @rule(key=KEYS, fraction=FRACTIONS)
    def get(self, key: bytes, fraction: int) -> None:
        revision = self.states.pick(fraction)
        self.expect(
            revision,
            self.store.get(key, at_revision=revision),
            lambda: self.states.by_revision[revision].get(key),
        )

    @rule(
        start=KEYS,
        end=st.none() | KEYS,
        limit=st.integers(1, 8),
        reverse=st.booleans(),
        keys_only=st.booleans(),
        fraction=FRACTIONS,
    )
    def range(
        self, start: bytes, end: bytes | None, limit: int, reverse: bool, keys_only: bool, fraction: int
    ) -> None:
        revision = self.states.pick(fraction)

        def wanted() -> list[Record]:
            state = self.states.by_revision[revision]
            keys = sorted((k for k in state if k >= start and (end is None or k < end)), reverse=reverse)
            return [state[key]._replace(value=b"") if keys_only else state[key] for key in keys[:limit]]

        reading = self.store.range(
            start, end, limit=limit, reverse=reverse, keys_only=keys_only, at_revision=revision
        )
        self.expect(revision, reading, wanted)

    def expect(self, revision: int, reading: Any, wanted: Callable[[], object]) -> None:
        refusal = self.states.refusal(revision)
        if refusal is None:
            assert self.run(reading) == wanted(), f"as of revision {revision}"
        else:
            with pytest.raises(refusal):
                self.run(reading)

    @rule(fraction=FRACTIONS)
    def compact(self, fraction: int) -> None:
        revision = self.states.pick(fraction)
        refusal = Compacted if revision == self.states.compacted else self.states.refusal(revision)
        if refusal is None:
            assert self.run(self.store.compact(revision)) == revision
            self.states.compacted = revision
        else:
            with pytest.raises(refusal):
                self.run(self.store.compact(revision))

    @invariant()
    def positions_are_those_of_the_model(self) -> None:
        assert self.store.revision == self.states.newest
        assert self.store.compacted_revision == self.states.compacted

    def teardown(self) -> None:
        if self.opened is not None:
            self.run(self.read_everything())
        super().teardown()

    async def read_everything(self) -> None:
        for revision in range(self.states.compacted, self.states.newest + 1):
            state = self.states.by_revision[revision]
            found = await self.store.range(b"", None, limit=100, at_revision=revision)
            assert found == [state[key] for key in sorted(state)]


@pytest.fixture(params=["whole", "paged"])
def pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in production, where such short histories are one page; and with every limit so small that all are reached."""
    if request.param == "paged":
        monkeypatch.setattr(past, "PAGE_COST", 2)
        monkeypatch.setattr(key_filter, "BLOCK_SHIFT", 1)
        monkeypatch.setattr(key_filter, "FILTERS_MAX", 3)
        monkeypatch.setattr(past, "BLOCK_KEYS_MAX", 4)
        monkeypatch.setattr(past, "HOPS_MAX", 1)
        monkeypatch.setattr(past, "WINDOW_KEYS_SPARE", 0)
        monkeypatch.setattr(past, "ROWS_BYTES_MAX", 100)


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("encrypted", [False, True])
def test_the_past_in_memory_is_what_the_model_remembers(encrypted: bool) -> None:
    walk(lambda: HistoryMachine(lambda: memory_backend(encrypted=encrypted), None), 30, steps=30)


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("encrypted", [False, True])
def test_the_past_on_disk_is_what_the_model_remembers(tmp_path: Path, encrypted: bool) -> None:
    folders = DiskFolders(tmp_path, encrypted=encrypted)

    walk(lambda: HistoryMachine(folders.fresh, folders.crashed), 5, steps=30)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("examples", [4, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize("encrypted", [False, True])
def test_the_past_on_postgres_is_what_the_model_remembers(
    postgres_url: str, encrypted: bool, examples: int
) -> None:
    walks = iter(range(1_000_000))

    def fresh() -> Backend:
        return postgres_backend(f"{postgres_url}_{next(walks)}", encrypted=encrypted)

    walk(lambda: HistoryMachine(fresh, None), examples, steps=30)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("encrypted", [False, True])
def test_the_past_is_what_the_model_remembers_for_long(tmp_path: Path, encrypted: bool) -> None:
    folders = DiskFolders(tmp_path, encrypted=encrypted)

    walk(lambda: HistoryMachine(lambda: memory_backend(encrypted=encrypted), None), 1000, steps=30)
    walk(lambda: HistoryMachine(folders.fresh, folders.crashed), 200, steps=30)
