"""Snapshots: every record as of one revision, and a new store made of them."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from holdfast.storage.errors import InvalidBatch
from holdfast.storage.memory import open_memory
from holdfast.storage.port import Batch, SnapshotRecord, Store
from tests.conformance.backends import SMALL


async def test_a_snapshot_shows_one_revision_while_writes_go_on(store: Store) -> None:
    for number in range(3):
        await store.commit(Batch(puts={b"%04d" % (number * 400 + n): b"old" for n in range(400)}))
    revision = await store.commit(Batch(puts={b"last": b"old"}))
    records: list[SnapshotRecord] = []

    async with store.snapshot() as snapshot:
        async for page in snapshot.records():
            records += page
            await store.commit(Batch(puts={b"%04d" % n: b"new" for n in range(400)}, deletes={b"last"}))

    assert snapshot.revision == revision
    assert [item.record.key for item in records] == [*[b"%04d" % n for n in range(1200)], b"last"]
    assert {item.record.value for item in records} == {b"old"}


async def test_a_snapshot_shows_the_moment_it_was_opened_also_if_it_is_read_later(store: Store) -> None:
    await store.commit(Batch(puts={b"gone": b"old", b"kept": b"old"}))

    async with store.snapshot() as snapshot:
        await store.commit(Batch(puts={b"kept": b"new", b"late": b"new"}, deletes={b"gone"}))
        items = [item async for page in snapshot.records() for item in page]

    assert {item.record.key: item.record.value for item in items} == {b"gone": b"old", b"kept": b"old"}


async def test_a_restored_store_continues_where_the_snapshot_was(store: Store) -> None:
    async with open_memory(SMALL) as source:
        await source.commit(Batch(puts={b"a": b"1", b"gone": b""}))
        await source.commit(Batch(puts={b"a": b"2"}, deletes={b"gone"}))
        wanted = await source.range(b"", None, limit=10)
        async with source.snapshot() as snapshot:
            await store.restore(snapshot.revision, snapshot.records())

    assert await store.range(b"", None, limit=10) == wanted
    assert await store.commit(Batch(puts={b"b": b""})) == 3
    record = await store.get(b"a")
    assert record is not None
    assert record.version == 2


async def test_a_store_with_data_is_not_restored_into(store: Store) -> None:
    await store.commit(Batch(puts={b"a": b"1"}))

    async def no_pages() -> AsyncIterator[Sequence[SnapshotRecord]]:
        await asyncio.sleep(0)
        yield []

    with pytest.raises(InvalidBatch):
        await store.restore(5, no_pages())
