"""Group commit on a real database: lost answers, refused batches, callers that go away."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.common import failpoint
from holdfast.storage.errors import BlobNotFound, Conflict, InvalidBatch, OutcomeUnknown, StoreClosed
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, RangeExpectation, Store
from holdfast.storage.postgres.store import open_postgres

OPTIONS = StoreOptions(outcome_timeout_s=0.3, postgres_poll_interval_s=0.2)
ABSENT_BLOB = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    async with open_postgres(postgres_url, OPTIONS) as opened:
        yield opened


async def outcomes(store: Store, *batches: Batch) -> list[int | BaseException]:
    """All in one group: they are submitted before the committer gets its turn."""
    return await asyncio.gather(*(store.commit(batch) for batch in batches), return_exceptions=True)


async def test_a_lost_answer_is_asked_for_again_and_nothing_is_written_twice(store: Store) -> None:
    with failpoint.armed("postgres.answer:error*2"):
        revisions = await outcomes(store, Batch(puts={b"a": b"1"}), Batch(puts={b"b": b"1"}))

    records = await store.range(b"", None, limit=10)
    assert revisions == [1, 2]
    assert [(record.key, record.mod_revision, record.version) for record in records] == [
        (b"a", 1, 1),
        (b"b", 2, 1),
    ]


async def test_a_lost_refusal_is_a_refusal_still(store: Store) -> None:
    with failpoint.armed("postgres.answer:error*1"):
        first, second = await outcomes(
            store, Batch(puts={b"a": b"1"}), Batch(expects={b"a": 7}, puts={b"b": b"1"})
        )

    assert first == 1
    assert isinstance(second, Conflict)
    assert second.key == b"a"
    assert store.revision == 1


async def test_an_answer_that_never_comes_is_an_unknown_outcome(store: Store) -> None:
    with failpoint.armed("postgres.answer:error"), pytest.raises(OutcomeUnknown):
        await store.commit(Batch(puts={b"a": b"1"}))

    record = await store.get(b"a")
    assert record is not None, "here it did happen"
    assert await store.commit(Batch(puts={b"b": b"1"})) == 2


async def test_one_group_holds_every_kind_of_outcome(store: Store) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"r/1": b"1"}))

    answers = await outcomes(
        store,
        Batch(expects={b"a": 1}, puts={b"a": b"2"}),
        Batch(expects={b"a": 1}, puts={b"lost": b""}),
        Batch(expects={b"a": 2}, deletes={b"a"}),
        Batch(expects={b"a": 0}),
        Batch(expect_ranges=[RangeExpectation(b"r/", b"r0", 1)], puts={b"r/2": b""}),
        Batch(expect_ranges=[RangeExpectation(b"r/", b"r0", 1)], puts={b"r/3": b""}),
        Batch(puts={b"c": b""}, blobs={b"c": (ABSENT_BLOB,)}),
        Batch(deletes={b"never there"}),
    )

    assert [answer if isinstance(answer, int) else type(answer) for answer in answers] == [
        2, Conflict, 3, 3, 4, Conflict, BlobNotFound, 5,
    ]  # fmt: skip
    assert [record.key for record in await store.range(b"", None, limit=10)] == [b"r/1", b"r/2"]


async def test_a_caller_that_leaves_before_the_group_is_sent_writes_nothing(store: Store) -> None:
    leaving = asyncio.create_task(store.commit(Batch(puts={b"left": b""})))
    staying = asyncio.create_task(store.commit(Batch(puts={b"stayed": b""})))
    await asyncio.sleep(0)  # Both are queued now, and the committer has not had its turn.
    leaving.cancel()

    assert await staying == 1
    assert await store.get(b"left") is None


async def test_a_revision_that_no_database_can_hold_is_refused_alone(store: Store) -> None:
    bad, good = await outcomes(store, Batch(expects={b"a": 1 << 63}), Batch(puts={b"b": b""}))

    assert isinstance(bad, InvalidBatch)
    assert good == 1


async def test_a_closed_store_takes_no_commit_but_finishes_those_it_took(postgres_url: str) -> None:
    async with open_postgres(postgres_url, OPTIONS) as store:
        taken = asyncio.create_task(store.commit(Batch(puts={b"a": b"1"})))
        await asyncio.sleep(0)

    assert await taken == 1
    with pytest.raises(StoreClosed):
        await store.commit(Batch(puts={b"b": b"1"}))
    with pytest.raises(StoreClosed):
        await store.get(b"a")


async def test_a_hot_key_of_many_writers_is_counted_exactly(postgres_url: str) -> None:
    async with open_postgres(postgres_url, replace(OPTIONS, group_batches_max=8)) as store:
        answers = await outcomes(store, *(Batch(puts={b"hot": str(n).encode()}) for n in range(100)))
        record = await store.get(b"hot")

    assert answers == list(range(1, 101))
    assert record is not None
    assert (record.value, record.version) == (b"99", 100)
