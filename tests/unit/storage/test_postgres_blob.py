"""Blobs in PostgreSQL: the database itself keeps references true, and damage is found before it is read."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.common.clock import FakeClock
from holdfast.storage.errors import BlobNotFound, StoreCorrupt
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, BlobRef, Store
from holdfast.storage.postgres.blob import CHUNK_BYTES
from holdfast.storage.postgres.store import open_postgres
from holdfast.storage.postgres.url import parse_url

ROUNDS = 40


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(postgres_url: str, clock: FakeClock) -> AsyncIterator[Store]:
    async with open_postgres(postgres_url, StoreOptions(clock=clock)) as opened:
        yield opened


async def write(store: Store, content: bytes) -> BlobRef:
    async with store.blobs.create() as writer:
        await writer.write(content)
        return await writer.finish()


async def read(store: Store, ref: BlobRef) -> bytes:
    return b"".join([chunk async for chunk in store.blobs.read(ref)])


async def on_database(url: str, statement: str) -> None:
    parsed = parse_url(url)
    connection = await asyncpg.connect(parsed.dsn, server_settings={"search_path": parsed.schema})
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def test_a_sweep_and_a_commit_that_race_for_a_blob_agree_on_who_won(
    store: Store, clock: FakeClock
) -> None:
    lost = 0
    for n in range(ROUNDS):
        ref = await write(store, b"content")
        clock.advance(1)
        key = b"k%d" % n

        committed, _ = await asyncio.gather(
            store.commit(Batch(puts={key: b""}, blobs={key: (ref.id,)})),
            store.blobs.sweep(grace_s=0.5),
            return_exceptions=True,
        )

        if isinstance(committed, int):
            assert await read(store, ref) == b"content"
        else:
            assert isinstance(committed, BlobNotFound)
            assert await store.blobs.info(ref.id) is None
            assert await store.get(key) is None
            lost += 1
    assert len([info async for info in store.blobs.list()]) == ROUNDS - lost


async def test_the_database_refuses_to_drop_a_blob_that_a_record_refers_to(
    store: Store, postgres_url: str
) -> None:
    ref = await write(store, b"content")
    await store.commit(Batch(puts={b"a": b""}, blobs={b"a": (ref.id,)}))

    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await on_database(postgres_url, "DELETE FROM blobs")

    await store.commit(Batch(deletes={b"a"}))
    await on_database(postgres_url, "DELETE FROM blobs")


async def test_an_unfinished_blob_can_not_be_referred_to(store: Store) -> None:
    blob_id = "00000000-0000-7000-8000-000000000001"
    async with store.blobs.create(blob_id=blob_id) as writer:
        await writer.write(bytes(CHUNK_BYTES))

        with pytest.raises(BlobNotFound):
            await store.commit(Batch(puts={b"a": b""}, blobs={b"a": (blob_id,)}))


async def test_what_a_dead_writer_left_is_swept(store: Store, postgres_url: str) -> None:
    await on_database(
        postgres_url,
        "INSERT INTO blobs (id, created_at) VALUES ('dead', to_timestamp(0));"
        "INSERT INTO blob_chunks (blob_id, seq, data, crc32) VALUES ('dead', 0, 'x', 0)",
    )

    swept = await store.blobs.sweep(grace_s=3600)

    assert swept == 0, "it never was a blob"
    await on_database(postgres_url, "DO $$ BEGIN ASSERT NOT EXISTS (SELECT FROM blob_chunks); END $$")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE blob_chunks SET data = set_byte(data, 7, 1) WHERE seq = 1",
        "UPDATE blob_chunks SET data = substr(data, 1, 100) WHERE seq = 1",
        "DELETE FROM blob_chunks WHERE seq = 1",
    ],
)
async def test_damage_is_found_before_the_chunk_is_read(store: Store, postgres_url: str, damage: str) -> None:
    ref = await write(store, bytes(3 * CHUNK_BYTES))
    await on_database(postgres_url, damage)
    received = 0

    with pytest.raises(StoreCorrupt):
        async for chunk in store.blobs.read(ref):
            received += len(chunk)

    assert received == CHUNK_BYTES


async def test_a_blob_removed_under_its_reader_is_a_typed_error(store: Store) -> None:
    ref = await write(store, bytes(3 * CHUNK_BYTES))

    with pytest.raises(BlobNotFound):
        async for _ in store.blobs.read(ref):
            await store.blobs.remove(ref.id)
