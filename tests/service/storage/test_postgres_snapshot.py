"""Errors of a backup's own are not mistaken for the database's."""

import errno
from collections.abc import AsyncIterator, Sequence

import pytest

from holdfast.storage.errors import BlobNotFound
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Record, SnapshotRecord, Store
from holdfast.storage.postgres.store import open_postgres

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    async with open_postgres(postgres_url, StoreOptions()) as opened:
        yield opened


async def test_a_full_disk_under_the_backup_is_told_as_that(store: Store) -> None:
    with pytest.raises(OSError, match="No space left"):
        async with store.snapshot():
            raise FULL

    assert store.problem is None


async def test_a_backup_that_can_not_be_read_leaves_the_store_empty(store: Store) -> None:
    async def pages() -> AsyncIterator[Sequence[SnapshotRecord]]:
        yield [SnapshotRecord(Record(b"a", b"1", 3, 7, 2), ())]
        raise FULL

    with pytest.raises(OSError, match="No space left"):
        await store.restore(9, pages())

    assert await store.get(b"a") is None
    assert await store.commit(Batch(puts={b"b": b""})) == 1


async def test_a_record_whose_blob_is_missing_is_not_restored(store: Store) -> None:
    async def pages() -> AsyncIterator[Sequence[SnapshotRecord]]:
        yield [SnapshotRecord(Record(b"a", b"1", 3, 7, 2), ("00000000-0000-7000-8000-000000000000",))]

    with pytest.raises(BlobNotFound):
        await store.restore(9, pages())

    assert await store.get(b"a") is None


async def test_many_large_records_come_in_pages_of_bounded_size(store: Store) -> None:
    for n in range(12):
        await store.commit(Batch(puts={b"%02d/%d" % (n, i): bytes(1 << 20) for i in range(7)}))

    async with store.snapshot() as snapshot:
        sizes = [len(page) async for page in snapshot.records()]

    assert sum(sizes) == 84
    assert max(sizes) <= 16
