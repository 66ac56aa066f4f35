"""Reads of the past: every record exactly as it was, as far back as the history goes, whatever is written meanwhile."""

import asyncio
import random
from dataclasses import replace

import pytest

from holdfast.storage.errors import Compacted, FutureRevision, InvalidBatch, StoreClosed
from holdfast.storage.local import key_filter, past
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import RANGE_LIMIT_MAX, Batch, Record, Store
from tests.conformance.backends import SMALL, Backend

LIMIT = 100


async def put(store: Store, key: bytes, value: bytes) -> int:
    return await store.commit(Batch(puts={key: value}))


async def delete(store: Store, key: bytes) -> int:
    return await store.commit(Batch(deletes={key}))


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local store reads everything in many small steps."""
    monkeypatch.setattr(past, "PAGE_COST", 3)
    monkeypatch.setattr(key_filter, "BLOCK_SHIFT", 1)
    monkeypatch.setattr(key_filter, "FILTERS_MAX", 8)
    monkeypatch.setattr(past, "BLOCK_KEYS_MAX", 4)
    monkeypatch.setattr(past, "HOPS_MAX", 2)
    monkeypatch.setattr(past, "WINDOW_KEYS_SPARE", 1)
    monkeypatch.setattr(past, "ROWS_BYTES_MAX", 200)


async def test_a_key_is_read_as_it_was_at_every_revision(store: Store) -> None:
    created = await put(store, b"k", b"one")
    changed = await put(store, b"k", b"two")
    other = await put(store, b"other", b"x")
    deleted = await delete(store, b"k")
    again = await put(store, b"k", b"three")

    assert [await store.get(b"k", at_revision=revision) for revision in range(created - 1, again + 1)] == [
        None,
        Record(b"k", b"one", created, created, 1),
        Record(b"k", b"two", created, changed, 2),
        Record(b"k", b"two", created, changed, 2),
        None,
        Record(b"k", b"three", again, again, 1),
    ]
    assert await store.get(b"never", at_revision=other) is None
    assert deleted == other + 1


async def test_a_range_is_read_as_it_was(store: Store) -> None:
    first = await store.commit(Batch(puts={b"a": b"1", b"b": b"1", b"d": b"1"}))
    second = await store.commit(Batch(puts={b"b": b"2", b"c": b"1"}, deletes={b"a"}))
    third = await store.commit(Batch(puts={b"a": b"3"}, deletes={b"b", b"c", b"d"}))

    a, b, d = (Record(key, b"1", first, first, 1) for key in (b"a", b"b", b"d"))
    changed, added = Record(b"b", b"2", first, second, 2), Record(b"c", b"1", second, second, 1)
    assert await store.range(b"", None, limit=LIMIT, at_revision=0) == []
    assert await store.range(b"", None, limit=LIMIT, at_revision=first) == [a, b, d]
    assert await store.range(b"", None, limit=LIMIT, at_revision=second) == [changed, added, d]
    assert await store.range(b"", None, limit=LIMIT, at_revision=third) == [
        Record(b"a", b"3", third, third, 1)
    ]


async def test_a_range_of_the_past_has_bounds_limits_and_both_directions(store: Store) -> None:
    keys = [b"%02d" % number for number in range(20)]
    revision = await store.commit(Batch(puts=dict.fromkeys(keys, b"old")))
    await store.commit(Batch(puts=dict.fromkeys(keys[::3], b"new"), deletes=set(keys[1::3])))
    await store.commit(Batch(puts={key + b"+": b"new" for key in keys}))

    async def read(start: bytes, end: bytes | None, limit: int, *, reverse: bool = False) -> list[bytes]:
        records = await store.range(start, end, limit=limit, reverse=reverse, at_revision=revision)
        assert {record.value for record in records} <= {b"old"}
        return [record.key for record in records]

    assert await read(b"05", b"10", LIMIT) == keys[5:10]
    assert await read(b"05", b"10", LIMIT, reverse=True) == keys[5:10][::-1]
    assert await read(b"05", None, 4) == keys[5:9]
    assert await read(b"", b"10", 4, reverse=True) == keys[6:10][::-1]
    assert await read(b"10", b"05", LIMIT) == []
    assert await read(b"05", b"05", LIMIT) == []


async def test_keys_only_leaves_the_values_of_the_past_out(store: Store) -> None:
    revision = await store.commit(Batch(puts={b"a": b"1", b"b": b"1"}))
    await put(store, b"a", b"2")

    records = await store.range(b"", None, limit=LIMIT, keys_only=True, at_revision=revision)

    assert records == [Record(key, b"", revision, revision, 1) for key in (b"a", b"b")]


async def test_the_newest_revision_reads_as_now(store: Store) -> None:
    for number in range(5):
        await store.commit(Batch(puts={b"a": b"%d" % number, b"%d" % number: b"x"}))

    assert await store.get(b"a", at_revision=store.revision) == await store.get(b"a")
    assert await store.range(b"", None, limit=LIMIT, at_revision=store.revision) == await store.range(
        b"", None, limit=LIMIT
    )


@pytest.mark.parametrize("ahead", [1, 2, 1 << 70])
async def test_a_revision_that_is_not_reached_yet_is_refused(store: Store, ahead: int) -> None:
    await put(store, b"a", b"1")
    asked = store.revision + ahead

    with pytest.raises(FutureRevision, match="required revision is a future revision") as refused:
        await store.get(b"a", at_revision=asked)
    assert (refused.value.asked_revision, refused.value.newest_revision) == (asked, store.revision)
    with pytest.raises(FutureRevision):
        await store.range(b"", None, limit=LIMIT, at_revision=asked)
    with pytest.raises(FutureRevision):
        await store.compact(asked)


async def test_a_compacted_revision_is_refused_and_the_one_compacted_at_is_read(store: Store) -> None:
    revisions = [await store.commit(Batch(puts={b"k": b"%d" % n, b"%d" % n: b"x"})) for n in range(6)]
    middle = revisions[3]

    assert await store.compact(middle) == middle
    assert store.compacted_revision == middle

    for revision in (-(1 << 70), -1, 0, middle - 1):
        with pytest.raises(Compacted, match="has been compacted") as refused:
            await store.get(b"k", at_revision=revision)
        assert (refused.value.asked_revision, refused.value.oldest_revision) == (revision, middle)
        with pytest.raises(Compacted):
            await store.range(b"", None, limit=LIMIT, at_revision=revision)
    assert [await store.get(b"k", at_revision=revision) for revision in revisions[3:]] == [
        Record(b"k", b"%d" % n, revisions[0], revisions[n], n + 1) for n in range(3, 6)
    ]
    records = await store.range(b"0", b"9", limit=LIMIT, at_revision=middle)
    assert [record.key for record in records] == [b"0", b"1", b"2", b"3"]


async def test_history_is_compacted_forward_only(store: Store) -> None:
    for number in range(4):
        await put(store, b"k", b"%d" % number)
    newest = store.revision
    await store.compact(newest - 1)

    for revision in (newest - 2, newest - 1, 0, -1):
        with pytest.raises(Compacted):
            await store.compact(revision)
    assert await store.compact() == newest - 1
    assert await store.compact(newest) == newest
    assert await store.get(b"k", at_revision=newest) == await store.get(b"k")


async def test_a_store_that_was_never_compacted_has_revision_zero(store: Store) -> None:
    assert store.compacted_revision == 0
    assert await store.get(b"k", at_revision=0) is None
    assert await store.range(b"", None, limit=LIMIT, at_revision=0) == []
    with pytest.raises(Compacted):
        await store.compact(0)


async def test_history_beyond_the_configured_bounds_is_refused(backend: Backend) -> None:
    async with backend.open(_bounded(3)) as store:
        for number in range(10):
            await put(store, b"k", b"%d" % number)

        oldest = await store.compact()

        assert oldest == store.compacted_revision == store.revision - 3
        assert (await value(store, b"k", oldest), await value(store, b"k", oldest + 1)) == (b"6", b"7")
        with pytest.raises(Compacted):
            await store.get(b"k", at_revision=oldest - 1)


async def test_a_compaction_with_a_revision_ends_watches_that_start_before_it(store: Store) -> None:
    for number in range(4):
        await put(store, b"k", b"%d" % number)
    await store.compact(2)

    with pytest.raises(Compacted):
        await anext(store.watch(b"", None, after=1))
    async with store.watch(b"", None, after=2) as watch:
        assert [event.revision for event in await anext(watch)] == [3, 4]


async def test_the_past_outlives_the_process(backend: Backend) -> None:
    if not backend.is_durable:
        pytest.skip("nothing of it outlives the process")
    async with backend.open(SMALL) as store:
        for number in range(4):
            await put(store, b"k", b"%d" % number)
        await store.compact(2)

    async with backend.open(SMALL) as store:
        assert store.compacted_revision == 2
        assert [await value(store, b"k", revision) for revision in (2, 3, 4)] == [b"1", b"2", b"3"]
        with pytest.raises(Compacted):
            await store.get(b"k", at_revision=1)


async def test_a_restored_store_has_no_past(store: Store) -> None:
    async with open_memory(SMALL) as source:
        for number in range(3):
            await put(source, b"k", b"%d" % number)
        async with source.snapshot() as snapshot:
            await store.restore(snapshot.revision, snapshot.records())
        kept = await source.get(b"k")

    assert store.compacted_revision == store.revision == 3
    assert await store.get(b"k", at_revision=3) == kept
    for revision in (0, 2):
        with pytest.raises(Compacted):
            await store.get(b"k", at_revision=revision)
        with pytest.raises(Compacted):
            await store.range(b"", None, limit=LIMIT, at_revision=revision)
    await put(store, b"k", b"new")
    assert await store.get(b"k", at_revision=3) == kept


@pytest.mark.parametrize("limit", [0, RANGE_LIMIT_MAX + 1])
async def test_a_limit_out_of_bounds_is_refused_also_in_the_past(store: Store, limit: int) -> None:
    with pytest.raises(InvalidBatch):
        await store.range(b"", None, limit=limit, at_revision=0)


async def test_a_closed_store_refuses_reads_of_the_past(backend: Backend) -> None:
    async with backend.open(SMALL) as store:
        await put(store, b"a", b"1")

    with pytest.raises(StoreClosed):
        await store.get(b"a", at_revision=1)


@pytest.mark.usefixtures("small_pages")
async def test_writes_do_not_tear_a_read_of_the_past(store: Store) -> None:
    keys = [b"%03d" % number for number in range(60)]
    await store.commit(Batch(puts=dict.fromkeys(keys, b"old")))
    await store.commit(Batch(puts=dict.fromkeys(keys[::2], b"older"), deletes=set(keys[1::4])))
    revision = store.revision
    wanted = await store.range(b"", None, limit=LIMIT)
    by_key = {record.key: record for record in wanted}
    rng = random.Random(7)
    writes = 0

    async def write() -> None:
        nonlocal writes
        while True:
            puts = {rng.choice(keys) + rng.choice([b"", b"+"]): b"%d" % writes for _ in range(3)}
            await store.commit(Batch(puts=puts, deletes=set(rng.sample(keys, 3)) - puts.keys()))
            writes += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        writer = tasks.create_task(write())
        turn = 0
        while turn < 12 or writes < 4:  # A slow disk is given more turns.
            found = await store.range(b"", None, limit=LIMIT, reverse=bool(turn % 2), at_revision=revision)
            assert found == (wanted[::-1] if turn % 2 else wanted)
            key = rng.choice(keys)
            assert await store.get(key, at_revision=revision) == by_key.get(key)
            turn += 1
        writer.cancel()


@pytest.mark.usefixtures("small_pages")
async def test_a_compaction_during_a_read_is_told_and_never_a_wrong_answer(store: Store) -> None:
    keys = [b"%03d" % number for number in range(20)]
    for round_number in range(10):
        await store.commit(Batch(puts=dict.fromkeys(keys, b"%d" % round_number)))
        revision = store.revision
        wanted = await store.range(b"", None, limit=LIMIT)
        await store.commit(Batch(deletes=set(keys[::2])))
        for number in range(10):
            await put(store, keys[1], b"newer %d" % number)

        async def compact(turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await store.compact(store.revision)

        point, found, _ = await asyncio.gather(
            store.get(keys[0], at_revision=revision),
            store.range(b"", None, limit=LIMIT, at_revision=revision),
            compact(round_number),
            return_exceptions=True,
        )

        assert isinstance(point, Compacted) or point == wanted[0]
        assert isinstance(found, Compacted) or found == wanted
        with pytest.raises(Compacted):
            await store.range(b"", None, limit=LIMIT, at_revision=revision)


def _bounded(revisions_max: int) -> StoreOptions:
    return replace(SMALL, history_revisions_max=revisions_max)


async def value(store: Store, key: bytes, at_revision: int) -> bytes | None:
    record = await store.get(key, at_revision=at_revision)
    return None if record is None else record.value
