"""Batches: all or nothing, numbered one after the other, refused when an expectation fails."""

import asyncio

import pytest

from holdfast.storage.errors import Conflict, InvalidBatch
from holdfast.storage.hosting.figures import COUNTS, LEVELS
from holdfast.storage.port import (
    ABSENT,
    BATCH_KEYS_MAX,
    EMPTY,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Batch,
    RangeExpectation,
    Record,
    Store,
)
from tests.conformance.backends import SMALL, Backend


async def revision_of(store: Store) -> int:
    return await store.commit(Batch())


async def test_a_put_is_read_back_with_its_revisions(store: Store) -> None:
    first = await store.commit(Batch(puts={b"a": b"1"}))
    second = await store.commit(Batch(puts={b"a": b"2", b"b": b""}))

    assert second == first + 1
    assert await store.get(b"a") == Record(b"a", b"2", first, second, 2)
    assert await store.get(b"b") == Record(b"b", b"", second, second, 1)
    assert await store.get(b"c") is None


async def test_a_deleted_key_starts_again_at_version_one(store: Store) -> None:
    await store.commit(Batch(puts={b"a": b"1"}))
    await store.commit(Batch(puts={b"a": b"2"}))
    await store.commit(Batch(deletes={b"a"}))
    assert await store.get(b"a") is None

    revision = await store.commit(Batch(puts={b"a": b"3"}))

    assert await store.get(b"a") == Record(b"a", b"3", revision, revision, 1)


async def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    before = await revision_of(store)

    revision = await store.commit(Batch(deletes={b"none"}))

    assert revision == before + 1


@pytest.mark.parametrize("expected", [ABSENT, 999_999])
async def test_a_failed_expectation_names_its_key_and_writes_nothing(store: Store, expected: int) -> None:
    revision = await store.commit(Batch(puts={b"a": b"1"}))

    with pytest.raises(Conflict) as caught:
        await store.commit(Batch(expects={b"a": expected}, puts={b"a": b"2", b"b": b"2"}, deletes={b"c"}))

    assert caught.value.key == b"a"
    assert await revision_of(store) == revision
    assert await store.get(b"b") is None


async def test_a_range_that_is_expected_to_be_empty_may_hold_no_key(store: Store) -> None:
    async def expect_empty(start: bytes, end: bytes | None, **puts: bytes) -> int:
        batch = Batch(expect_ranges=[RangeExpectation(start, end, EMPTY)])
        batch.puts.update({name.encode(): value for name, value in puts.items()})
        return await store.commit(batch)

    await store.commit(Batch(puts={b"a1": b"", b"b1": b""}))
    await store.commit(Batch(deletes={b"a1"}))

    created = await expect_empty(b"a", b"b", a2=b"")
    for start, end in ((b"a", b"b"), (b"b", None)):
        with pytest.raises(Conflict) as caught:
            await expect_empty(start, end, z=b"")
        assert caught.value.key == start
    await expect_empty(b"a", b"a2")
    await expect_empty(b"c", None)

    assert await revision_of(store) == created
    assert await store.get(b"z") is None


async def test_of_two_batches_that_expect_a_range_to_be_empty_one_fills_it(store: Store) -> None:
    async def fill(number: int) -> None:
        expected = [RangeExpectation(b"a", b"b", EMPTY)]
        await store.commit(Batch(expect_ranges=expected, puts={b"a%d" % number: b""}))

    outcomes = await asyncio.gather(*map(fill, range(5)), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes].count(Conflict) == 4
    assert len(await store.range(b"a", b"b", limit=10)) == 1


async def test_an_expected_revision_that_holds_lets_the_batch_in(store: Store) -> None:
    revision = await store.commit(Batch(expects={b"a": ABSENT}, puts={b"a": b"1"}))

    await store.commit(Batch(expects={b"a": revision, b"b": ABSENT}, puts={b"a": b"2"}))

    record = await store.get(b"a")
    assert record is not None
    assert record.value == b"2"


async def test_a_deleted_key_meets_the_expectation_of_being_absent(store: Store) -> None:
    await store.commit(Batch(puts={b"a": b"1"}))
    await store.commit(Batch(deletes={b"a"}))

    await store.commit(Batch(expects={b"a": ABSENT}, puts={b"a": b"2"}))

    assert await store.get(b"a") is not None


async def test_a_batch_without_writes_only_checks(store: Store) -> None:
    revision = await store.commit(Batch(puts={b"a": b"1"}))

    assert await store.commit(Batch(expects={b"a": revision})) == revision
    with pytest.raises(Conflict):
        await store.commit(Batch(expects={b"a": ABSENT}))


async def test_among_concurrent_batches_the_conflicting_ones_fail_alone(store: Store) -> None:
    async def create(number: int) -> int | Conflict:
        try:
            return await store.commit(
                Batch(expects={b"one": ABSENT}, puts={b"one": b"%d" % number, b"n%d" % number: b""})
            )
        except Conflict as conflict:
            return conflict

    async def write(number: int) -> int:
        return await store.commit(Batch(puts={b"other%d" % number: b""}))

    answers = await asyncio.gather(
        *[create(number) for number in range(20)], *[write(number) for number in range(20)]
    )

    won = [number for number, answer in enumerate(answers[:20]) if isinstance(answer, int)]
    assert len(won) == 1
    record = await store.get(b"one")
    assert record is not None
    assert record.value == b"%d" % won[0]
    names = await store.range(b"n", b"o", limit=100)
    assert [name.key for name in names] == [b"n%d" % won[0]]
    revisions = [answer for answer in answers if isinstance(answer, int)]
    assert sorted(revisions) == list(range(min(revisions), min(revisions) + 21))


async def test_many_concurrent_commits_get_each_revision_once(store: Store) -> None:
    before = await revision_of(store)

    revisions = await asyncio.gather(
        *[store.commit(Batch(puts={b"k%d" % (n % 7): b"%d" % n})) for n in range(100)]
    )

    assert sorted(revisions) == list(range(before + 1, before + 101))
    versions = [await store.get(b"k%d" % n) for n in range(7)]
    assert sum(record.version for record in versions if record is not None) == 100


@pytest.mark.parametrize(
    "batch",
    [
        Batch(puts={b"a": b""}, deletes={b"a"}),
        Batch(puts={b"k" * (KEY_BYTES_MAX + 1): b""}),
        Batch(puts={b"a": bytes(VALUE_BYTES_MAX + 1)}),
        Batch(puts={b"%d" % n: bytes(VALUE_BYTES_MAX) for n in range(9)}),
        Batch(deletes={b"%d" % n for n in range(BATCH_KEYS_MAX + 1)}),
        Batch(deletes={b"a"}, blobs={b"a": ("0190a000-0000-7000-8000-000000000000",)}),
        Batch(puts={b"a": b""}, blobs={b"a": ("no-blob-id",)}),
    ],
    ids=["put and delete", "key", "value", "bytes", "keys", "blob without put", "blob id"],
)
async def test_a_batch_that_breaks_a_rule_is_refused_whole(store: Store, batch: Batch) -> None:
    before = await revision_of(store)

    with pytest.raises(InvalidBatch):
        await store.commit(batch)

    assert await revision_of(store) == before


async def test_the_largest_key_and_value_are_kept(store: Store) -> None:
    key, value = b"\xff" * KEY_BYTES_MAX, b"\x00\xff" * (VALUE_BYTES_MAX // 2)

    await store.commit(Batch(puts={key: value}))

    record = await store.get(key)
    assert record is not None
    assert record.value == value


async def test_get_many_gives_those_that_exist(store: Store) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"2"}))

    found = await store.get_many([b"a", b"b", b"c"])

    assert {key: record.value for key, record in found.items()} == {b"a": b"1", b"b": b"2"}
    assert await store.get_many([]) == {}


async def test_a_closed_and_opened_store_has_everything(backend: Backend) -> None:
    if not backend.is_durable:
        return
    async with backend.open(SMALL) as store:
        revision = await store.commit(Batch(puts={b"a": b"1", b"b": b"2"}))
        await store.commit(Batch(deletes={b"b"}))

    async with backend.open(SMALL) as store:
        assert await store.get(b"a") == Record(b"a", b"1", revision, revision, 1)
        assert await store.get(b"b") is None
        assert await store.commit(Batch(puts={b"c": b""})) == revision + 2


async def test_every_figure_has_a_meaning(store: Store) -> None:
    assert set(store.figures()) <= COUNTS.keys() | LEVELS.keys()


async def test_the_figures_count_commits_and_conflicts(store: Store) -> None:
    before = store.figures()
    await store.commit(Batch(puts={b"a": b"1"}))
    with pytest.raises(Conflict):
        await store.commit(Batch(expects={b"a": ABSENT}, puts={b"a": b"2"}))

    async with store.watch(b"a", b"b"):
        after = store.figures()

    assert after["commits"] - before["commits"] == 1
    assert after["conflicts"] - before["conflicts"] == 1
    assert after["watches"] - before["watches"] == 1
    assert after["revision"] >= 1
