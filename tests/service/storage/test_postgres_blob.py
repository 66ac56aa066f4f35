"""Blobs in PostgreSQL: the database itself keeps references true, and damage is found before it is read."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.common.clock import FakeClock
from holdfast.storage.errors import BlobNotFound, StoreCorrupt
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, BlobRef, Store
from holdfast.storage.postgres import blob
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


# -- two processes


@pytest.fixture
async def other(postgres_url: str, clock: FakeClock, store: Store) -> AsyncIterator[Store]:
    """The same store in another process."""
    async with open_postgres(postgres_url, StoreOptions(clock=clock)) as opened:
        yield opened


async def test_a_slow_reader_of_another_process_gets_all_of_a_released_blob(
    store: Store, other: Store, clock: FakeClock
) -> None:
    content = bytes(range(256)) * (4 * CHUNK_BYTES // 256)
    ref = await write(store, content)
    await store.commit(Batch(puts={b"a": b""}, blobs={b"a": (ref.id,)}))
    reader = aiter(other.blobs.read(ref))
    received = [await anext(reader)]
    await store.commit(Batch(deletes={b"a"}))

    for _ in range(30):
        clock.advance(20)
        await other.blobs.touch()
        assert await store.blobs.free(grace_s=120) == 0
        assert await store.blobs.sweep(grace_s=120) == 0
    received += [chunk async for chunk in reader]

    assert b"".join(received) == content
    clock.advance(120)
    assert await store.blobs.free(grace_s=120) == 1


async def test_a_reader_that_begins_after_the_release_is_seen_at_once(
    store: Store, other: Store, clock: FakeClock
) -> None:
    ref = await write(store, bytes(3 * CHUNK_BYTES))
    await store.commit(Batch(puts={b"a": b""}, blobs={b"a": (ref.id,)}))
    await store.commit(Batch(deletes={b"a"}))
    clock.advance(119)
    reader = aiter(other.blobs.read(ref))
    await anext(reader)
    clock.advance(60)

    assert await store.blobs.free(grace_s=120) == 0

    assert len([chunk async for chunk in reader]) == 2


async def test_a_reader_whose_process_died_holds_up_nothing(
    store: Store, other: Store, clock: FakeClock
) -> None:
    ref = await write(store, bytes(3 * CHUNK_BYTES))
    await store.commit(Batch(puts={b"a": b""}, blobs={b"a": (ref.id,)}))
    reader = aiter(other.blobs.read(ref))
    await anext(reader)
    await store.commit(Batch(deletes={b"a"}))
    await other.blobs.touch()
    clock.advance(121)  # And it is not touched any more.

    assert await store.blobs.free(grace_s=120) == 1

    with pytest.raises(BlobNotFound):
        await anext(reader)


async def test_an_upload_of_hours_is_not_swept(store: Store, other: Store, clock: FakeClock) -> None:
    async with store.blobs.create() as writer:
        await writer.write(bytes(CHUNK_BYTES))
        for _ in range(10):
            clock.advance(1800)
            await store.blobs.touch()
            await other.blobs.sweep(grace_s=3600)
        ref = await writer.finish()
    clock.advance(1800)
    await other.blobs.sweep(grace_s=3600)

    await store.commit(Batch(puts={b"a": b""}, blobs={b"a": (ref.id,)}))


async def test_a_very_large_blob_goes_slice_by_slice(
    store: Store, clock: FakeClock, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob, "REMOVE_BYTES", 3 * CHUNK_BYTES)
    monkeypatch.setattr(blob, "SLICE_CHUNKS", 2)
    large, small = await write(store, bytes(5 * CHUNK_BYTES)), await write(store, b"small")
    await store.commit(Batch(puts={b"a": b""}, blobs={b"a": (large.id, small.id)}))
    await store.commit(Batch(deletes={b"a"}))
    clock.advance(120)

    assert await store.blobs.free(grace_s=120) == 2

    await on_database(postgres_url, "DO $$ BEGIN ASSERT NOT EXISTS (SELECT FROM blob_chunks); END $$")
    assert store.figures()["blob_removed_bytes"] == large.size_bytes + small.size_bytes


async def test_what_a_dead_sweeper_left_of_a_large_blob_is_removed(
    store: Store, clock: FakeClock, postgres_url: str
) -> None:
    ref = await write(store, bytes(5 * CHUNK_BYTES))
    await store.commit(Batch(puts={b"a": b""}, blobs={b"a": (ref.id,)}))
    await store.commit(Batch(deletes={b"a"}))
    await on_database(
        postgres_url, "UPDATE blobs SET size_bytes = NULL; DELETE FROM blob_chunks WHERE seq < 2"
    )
    clock.advance(120)

    await store.blobs.free(grace_s=120)

    await on_database(postgres_url, "DO $$ BEGIN ASSERT NOT EXISTS (SELECT FROM blobs); END $$")


async def test_two_processes_free_each_blob_once(store: Store, other: Store, clock: FakeClock) -> None:
    refs = [await write(store, b"content") for _ in range(50)]
    await store.commit(Batch(puts={b"a": b""}, blobs={b"a": tuple(ref.id for ref in refs)}))
    await store.commit(Batch(deletes={b"a"}))
    clock.advance(120)

    freed = await asyncio.gather(*(one.blobs.free(grace_s=120) for one in (store, other, store, other)))
    freed.append(await store.blobs.free(grace_s=120))

    assert sum(freed) == 50
    assert [info async for info in store.blobs.list()] == []
    assert store.figures()["blobs_removed"] + other.figures()["blobs_removed"] == 50


async def test_a_release_under_readers_of_many_blobs_does_not_deadlock(
    store: Store, other: Store, clock: FakeClock
) -> None:
    refs = [await write(store, bytes(2 * CHUNK_BYTES)) for _ in range(20)]
    readers = [aiter(other.blobs.read(ref)) for ref in refs]
    for reader in readers:
        await anext(reader)

    async def replace(n: int) -> None:
        shuffled = refs[n:] + refs[:n]
        await store.commit(Batch(puts={b"a": b""}, blobs={b"a": tuple(ref.id for ref in shuffled)}))
        await store.commit(Batch(puts={b"a": b""}))

    await asyncio.gather(
        *(replace(n % 20) for n in range(60)),
        *(other.blobs.touch() for _ in range(20)),
        *(one.blobs.free(grace_s=120) for one in (store, other) for _ in range(10)),
    )

    for reader in readers:
        assert len([chunk async for chunk in reader]) == 1
