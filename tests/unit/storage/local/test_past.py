"""How a local store reads its past: what it looks at, how long it keeps the loop, and what it does when history is missing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.errors import Compacted, StoreCorrupt, StoreUnavailable
from holdfast.storage.local import key_filter, layout, past
from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.key_filter import KeyFilter, KeyFilters
from holdfast.storage.local.past import ChangeRows, Window
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryBlobs
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch


class CountingEngine(MemoryEngine):
    """Counts what is scanned; its flush can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.scanned = 0
        self.flush_error: StoreUnavailable | None = None

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for row in super().scan(start, end, reverse=reverse):
            self.scanned += 1
            yield row

    def flush(self) -> None:
        if self.flush_error is not None:
            raise self.flush_error


@pytest.fixture
def engine() -> CountingEngine:
    return CountingEngine()


@pytest.fixture
async def store(engine: CountingEngine) -> AsyncIterator[LocalStore]:
    store = LocalStore(url="mem://", engine=engine, options=StoreOptions())
    store.attach(MemoryBlobs(store, store.clock))
    yield store
    await store.close()


async def put(store: LocalStore, key: bytes, count: int) -> None:
    for number in range(count):
        await store.commit(Batch(puts={key: b"%d" % number}))


async def ticks_during(reading: asyncio.Future[Any]) -> int:
    """How often others have a turn until it is done."""
    ticks = 0
    while not reading.done():
        await asyncio.sleep(0)
        ticks += 1
    return ticks


async def test_a_key_that_changed_a_few_times_is_found_without_a_walk(
    store: LocalStore, engine: CountingEngine
) -> None:
    await put(store, b"rare", 1)
    created = store.revision
    for _ in range(5):
        await put(store, b"busy", 500)
        await put(store, b"rare", 1)

    record = await store.get(b"rare", at_revision=created)

    assert record is not None
    assert record.version == 1
    assert engine.scanned == 0


async def test_a_key_that_changed_often_is_searched_from_the_revision_on(
    store: LocalStore, engine: CountingEngine
) -> None:
    await put(store, b"busy", 5000)

    record = await store.get(b"busy", at_revision=1000)

    assert record is not None
    assert (record.mod_revision, record.value) == (1000, b"999")
    assert engine.scanned == 1


async def test_a_new_key_is_searched_only_up_to_its_creation(
    store: LocalStore, engine: CountingEngine
) -> None:
    await put(store, b"busy", 10)
    await put(store, b"new", 1)
    await put(store, b"busy", 1000)

    assert await store.get(b"new", at_revision=5) is None
    assert engine.scanned == 5


async def test_keys_that_were_never_there_are_searched_by_one_walk_for_all(
    store: LocalStore, engine: CountingEngine
) -> None:
    revisions = 20 << key_filter.BLOCK_SHIFT
    await put(store, b"busy", revisions - 2)
    await store.commit(Batch(puts={b"gone": b"1"}))
    await store.commit(Batch(deletes={b"gone"}))
    assert await store.get(b"never", at_revision=0) is None
    assert engine.scanned == revisions
    engine.scanned = 0

    assert await store.get(b"nor this", at_revision=0) is None
    assert engine.scanned < 5 << key_filter.BLOCK_SHIFT

    record = await store.get(b"gone", at_revision=revisions - 1)
    assert record is not None
    assert record.value == b"1"


async def test_a_block_with_very_many_changes_gets_no_filter(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "BLOCK_KEYS_MAX", 10)
    await put(store, b"busy", 3 << key_filter.BLOCK_SHIFT)
    await store.commit(Batch(deletes={b"busy"}))

    assert await store.get(b"never", at_revision=0) is None
    assert await store.get(b"busy", at_revision=0) is None
    assert await store.get(b"busy", at_revision=200) is not None


@given(st.sets(st.binary(max_size=8), max_size=300), st.sets(st.binary(max_size=8), max_size=30))
def test_a_filter_never_denies_a_key_that_it_has(keys: set[bytes], others: set[bytes]) -> None:
    made = KeyFilter(list(keys))

    assert all(made.may_hold(hash(key)) for key in keys)
    assert sum(made.may_hold(hash(key)) for key in others - keys) <= 10


def test_filters_have_a_bound_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_filter, "FILTERS_MAX", 3)
    filters = KeyFilters()
    for block in range(5):
        filters.add(block, [b"k"])

    assert [filters.is_missing(block) for block in range(5)] == [True, True, False, False, False]
    end = key_filter.block_end(4)
    assert filters.skip(b"other", key_filter.block_start(2), end + 100) == end
    assert filters.skip(b"other", 5, end) == 5
    assert filters.skip(b"k", key_filter.block_start(2), end) == key_filter.block_start(2)


async def test_a_key_that_is_part_of_another_or_of_a_value_is_not_mistaken(store: LocalStore) -> None:
    await store.commit(Batch(puts={b"key": b"1", b"a": b"1"}))
    await store.commit(Batch(puts={b"keykey": b"key"}))
    await store.commit(Batch(puts={b"a": b"key"}, deletes={b"key"}))

    record = await store.get(b"key", at_revision=1)

    assert record is not None
    assert record.value == b"1"
    assert await store.get(b"ke", at_revision=1) is None
    assert await store.get(b"", at_revision=1) is None


async def test_a_long_walk_leaves_turns_to_others(store: LocalStore) -> None:
    revisions = 20 * past.PAGE_COST
    await put(store, b"busy", revisions)

    point = asyncio.ensure_future(store.get(b"never", at_revision=0))
    assert await ticks_during(point) >= 20
    walk = asyncio.ensure_future(store.range(b"", None, limit=10, at_revision=0))
    assert await ticks_during(walk) >= 20
    assert (point.result(), walk.result()) == (None, [])


async def test_a_walk_ends_also_if_more_is_committed_than_a_page_holds(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "PAGE_COST", 1)
    await put(store, b"a", 1)
    await put(store, b"b", 30)
    is_read = asyncio.Event()

    async def write() -> None:
        while not is_read.is_set():
            await put(store, b"b", 5)
            await asyncio.sleep(0)

    writer = asyncio.ensure_future(write())
    async with asyncio.timeout(10):
        found = await store.range(b"", None, limit=10, at_revision=1)
    is_read.set()
    await writer

    assert [record.key for record in found] == [b"a"]


@pytest.mark.parametrize("kind", ["point", "range"])
async def test_a_compaction_that_overtakes_a_walk_ends_it(store: LocalStore, kind: str) -> None:
    await put(store, b"busy", 3 * past.PAGE_COST)
    if kind == "point":
        reading: asyncio.Future[Any] = asyncio.ensure_future(store.get(b"never", at_revision=1))
    else:
        reading = asyncio.ensure_future(store.range(b"", None, limit=10, at_revision=1))
    await asyncio.sleep(0)

    await store.compact(2)

    with pytest.raises(Compacted):
        await reading


async def test_a_range_keeps_no_more_changed_keys_than_it_may_answer(
    store: LocalStore, engine: CountingEngine
) -> None:
    keys = [b"%05d" % number for number in range(5000)]
    await store.commit(Batch(puts=dict.fromkeys(keys, b"old")))
    for key in keys[::-1]:
        await put(store, key, 1)

    for reverse in (False, True):
        window = Window(b"", None, 1, limit=10, reverse=reverse)
        window.note_changes(engine, store.revision)
        found = [key for key, _ in window.candidates(engine, ChangeRows())]

        assert 10 <= len(set(found)) <= 10 + past.WINDOW_KEYS_SPARE + 1
        records = await store.range(b"", None, limit=10, reverse=reverse, at_revision=1)
        assert [record.key for record in records] == (keys[::-1] if reverse else keys)[:10]
        assert {record.value for record in records} == {b"old"}


@pytest.mark.parametrize("missing", [2, 3])
async def test_a_hole_in_the_history_is_corruption_and_not_an_answer(
    store: LocalStore, engine: CountingEngine, missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "HOPS_MAX", 1)
    await put(store, b"k", 3)
    engine.write([(layout.change_key(missing), None)])

    with pytest.raises(StoreCorrupt):
        await store.get(b"k", at_revision=1)


async def test_a_damaged_change_is_corruption(store: LocalStore, engine: CountingEngine) -> None:
    await put(store, b"k", 3)
    raw = engine.get(layout.change_key(3))
    assert raw is not None
    engine.write([(layout.change_key(3), raw[:-1])])

    with pytest.raises(StoreCorrupt, match="revision 3"):
        await store.get(b"k", at_revision=1)
    with pytest.raises(StoreCorrupt, match="revision 3"):
        await store.range(b"", None, limit=1, at_revision=1)


async def test_a_compaction_that_cannot_be_made_durable_is_not_answered(
    store: LocalStore, engine: CountingEngine
) -> None:
    await put(store, b"k", 3)
    engine.flush_error = StoreUnavailable("no flush today")

    with pytest.raises(StoreUnavailable, match="no flush today"):
        await store.compact(2)

    assert store.is_read_only
    assert store.engine_is_broken
