"""Blobs that no record refers to any more: free within minutes, but not under a reader, a writer or a snapshot."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.common.clock import FakeClock
from holdfast.storage.errors import BlobNotFound
from holdfast.storage.port import Batch, BlobRef, Store
from tests.conformance.backends import SMALL, Backend

CONTEXT = "state:default/orders/1"
CONTENT = bytes(range(256)) * 8_000
MINUTE_S = 60.0
GRACE_S = 2 * MINUTE_S
TIMEOUT_S = 30


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(backend: Backend, clock: FakeClock) -> AsyncIterator[Store]:
    async with backend.open(replace(SMALL, clock=clock)) as opened:
        yield opened


async def write(store: Store, content: bytes = CONTENT) -> BlobRef:
    async with store.blobs.create(context=CONTEXT) as writer:
        for at in range(0, len(content), 100_000):
            await writer.write(content[at : at + 100_000])
        return await writer.finish()


async def put(store: Store, key: bytes, ref: BlobRef) -> None:
    await store.commit(Batch(puts={key: b""}, blobs={key: (ref.id,)}))


async def is_there(store: Store, ref: BlobRef) -> bool:
    return await store.blobs.info(ref.id) is not None


async def test_an_overwritten_blob_is_free_after_minutes(store: Store, clock: FakeClock) -> None:
    old, new = await write(store), await write(store)
    await put(store, b"a", old)
    clock.advance(MINUTE_S)
    await put(store, b"a", new)
    clock.advance(GRACE_S - 1)
    assert await store.blobs.free(grace_s=GRACE_S) == 0
    clock.advance(2)

    assert await store.blobs.free(grace_s=GRACE_S) == 1

    assert not await is_there(store, old)
    assert await is_there(store, new)
    clock.advance(MINUTE_S * 60)
    assert await store.blobs.free(grace_s=GRACE_S) == 0


async def test_the_blob_of_a_deleted_record_is_free_after_minutes(store: Store, clock: FakeClock) -> None:
    ref = await write(store)
    await put(store, b"a", ref)
    await store.commit(Batch(deletes={b"a"}))
    clock.advance(GRACE_S)

    assert await store.blobs.free(grace_s=GRACE_S) == 1


async def test_a_blob_that_moves_to_another_record_stays(store: Store, clock: FakeClock) -> None:
    ref = await write(store)
    await put(store, b"stage", ref)
    await store.commit(Batch(puts={b"head": b""}, deletes={b"stage"}, blobs={b"head": (ref.id,)}))
    clock.advance(GRACE_S)
    assert await store.blobs.free(grace_s=GRACE_S) == 0
    await store.commit(Batch(deletes={b"head"}))
    clock.advance(GRACE_S - 1)
    assert await store.blobs.free(grace_s=GRACE_S) == 0, "its time counts from the last reference"
    clock.advance(1)

    assert await store.blobs.free(grace_s=GRACE_S) == 1


async def test_a_blob_that_is_referred_to_again_stays(store: Store, clock: FakeClock) -> None:
    ref = await write(store)
    await put(store, b"a", ref)
    await store.commit(Batch(deletes={b"a"}))
    await put(store, b"b", ref)
    clock.advance(10 * GRACE_S)

    assert await store.blobs.free(grace_s=GRACE_S) == 0

    assert await is_there(store, ref)


async def test_a_finished_blob_that_no_record_refers_to_yet_stays(store: Store, clock: FakeClock) -> None:
    ref = await write(store)
    clock.advance(30 * MINUTE_S)

    assert await store.blobs.free(grace_s=GRACE_S) == 0

    await put(store, b"a", ref)


async def test_a_sweep_spares_what_was_released_just_now(store: Store, clock: FakeClock) -> None:
    """However old it is: its reader may have found the record, and not the blob yet."""
    ref = await write(store)
    await put(store, b"a", ref)
    clock.advance(10 * 24 * 60 * MINUTE_S)
    await store.commit(Batch(deletes={b"a"}))

    assert await store.blobs.sweep(grace_s=60 * MINUTE_S) == 0

    assert await is_there(store, ref)


async def test_a_slow_reader_gets_all_of_a_blob_that_is_freed_meanwhile(
    store: Store, clock: FakeClock
) -> None:
    ref = await write(store)
    await put(store, b"a", ref)
    reader = aiter(store.blobs.read(ref, context=CONTEXT))
    received = [await anext(reader)]
    await store.commit(Batch(deletes={b"a"}))

    for _ in range(10):
        clock.advance(MINUTE_S)
        await store.blobs.touch()  # What the store does by itself every few seconds.
        await store.blobs.free(grace_s=GRACE_S)
        await store.blobs.sweep(grace_s=GRACE_S)
    received += [piece async for piece in reader]

    assert b"".join(received) == CONTENT
    clock.advance(GRACE_S)
    await store.blobs.free(grace_s=GRACE_S)
    assert not await is_there(store, ref)
    with pytest.raises(BlobNotFound):
        await anext(aiter(store.blobs.read(ref, context=CONTEXT)))


async def test_a_blob_in_a_snapshot_stays_until_the_snapshot_ends(store: Store, clock: FakeClock) -> None:
    ref = await write(store)
    await put(store, b"a", ref)
    async with store.snapshot() as snapshot:
        await store.commit(Batch(deletes={b"a"}))
        clock.advance(60 * 24 * MINUTE_S)
        assert await store.blobs.free(grace_s=GRACE_S) == 0
        assert await store.blobs.sweep(grace_s=GRACE_S) == 0
        [item] = [item async for page in snapshot.records() for item in page]
        assert item.blobs == (ref.id,)
        assert await is_there(store, ref)

    assert await store.blobs.free(grace_s=GRACE_S) == 1


async def test_the_store_does_so_by_itself(backend: Backend) -> None:
    """Two blobs come and go while a third one, released before both, is still read."""
    options = replace(SMALL, blob_free_interval_s=0.05, blob_free_grace_s=0.5)
    async with backend.open(options) as store:
        ref = await write(store)
        await put(store, b"read", ref)
        reader = aiter(store.blobs.read(ref, context=CONTEXT))
        received = [await anext(reader)]
        await store.commit(Batch(deletes={b"read"}))
        for _ in range(2):
            passing = await write(store)
            await put(store, b"passing", passing)
            await store.commit(Batch(deletes={b"passing"}))
            async with asyncio.timeout(TIMEOUT_S):
                while await is_there(store, passing):  # noqa: ASYNC110 - a sweep tells no caller.
                    await asyncio.sleep(0.05)
        received += [piece async for piece in reader]

        assert b"".join(received) == CONTENT
        assert store.figures()["blobs_removed"] >= 2


async def test_what_was_released_before_a_restart_is_swept(backend: Backend, clock: FakeClock) -> None:
    if not backend.is_durable:
        return
    options = replace(SMALL, clock=clock)
    async with backend.open(options) as store:
        ref = await write(store)
        await put(store, b"a", ref)
        await store.commit(Batch(deletes={b"a"}))

    async with backend.open(options) as store:
        removed = await store.blobs.sweep(grace_s=-1e9)

        assert removed == 1
        assert not await is_there(store, ref)
