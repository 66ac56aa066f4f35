"""Blobs: byte for byte, in bounded memory, and there as long as a record refers to them."""

import hashlib
import tracemalloc

import pytest

from holdfast.common.ids import uuid7
from holdfast.storage.errors import BlobNotFound, InvalidBatch
from holdfast.storage.port import Batch, BlobRef, Store

CONTEXT = "state:default/orders/1"
CHUNK = 64 << 10


async def write(store: Store, content: bytes, *, step: int = 100_000) -> BlobRef:
    async with store.blobs.create(context=CONTEXT) as writer:
        for at in range(0, len(content), step):
            await writer.write(content[at : at + step])
        return await writer.finish()


async def read(store: Store, ref: BlobRef, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([chunk async for chunk in store.blobs.read(ref, context=CONTEXT, start=start, end=end)])


def pattern(size_bytes: int) -> bytes:
    return (b"0123456789abcdef!" * (size_bytes // 17 + 1))[:size_bytes]


@pytest.mark.parametrize("size_bytes", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 2_500_000])
async def test_a_blob_is_read_back_byte_for_byte(store: Store, size_bytes: int) -> None:
    content = pattern(size_bytes)

    ref = await write(store, content)

    assert ref.size_bytes == size_bytes
    assert ref.sha256 == hashlib.sha256(content).digest()
    assert await read(store, ref) == content


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 1), (10, 20), (CHUNK - 1, CHUNK + 1), (CHUNK, 2 * CHUNK), (299_999, None), (5, 5), (7, 10**9)],
)
async def test_a_part_of_a_blob_is_read(store: Store, start: int, end: int | None) -> None:
    content = pattern(300_000)
    ref = await write(store, content)

    assert await read(store, ref, start, end) == content[start:end]


async def test_a_part_that_is_no_part_is_refused(store: Store) -> None:
    ref = await write(store, b"abc")

    with pytest.raises(InvalidBatch):
        await read(store, ref, 3, 2)


async def test_an_unfinished_blob_leaves_nothing(store: Store) -> None:
    with pytest.raises(KeyError):
        async with store.blobs.create(context=CONTEXT) as writer:
            await writer.write(pattern(3_000_000))
            raise KeyError

    assert [info async for info in store.blobs.list()] == []


async def test_reading_what_never_was_is_a_typed_error(store: Store) -> None:
    ref = await write(store, b"abc")
    gone = BlobRef(uuid7(), ref.size_bytes, ref.sha256, ref.descriptor)

    with pytest.raises(BlobNotFound):
        await read(store, gone)


async def test_a_commit_that_refers_to_a_missing_blob_is_refused(store: Store) -> None:
    with pytest.raises(BlobNotFound):
        await store.commit(Batch(puts={b"a": b""}, blobs={b"a": (uuid7(),)}))

    assert await store.get(b"a") is None


async def test_sweeping_takes_only_what_no_record_refers_to(store: Store) -> None:
    kept, dropped, never = [await write(store, pattern(10)) for _ in range(3)]
    await store.commit(
        Batch(puts={b"a": b"", b"b": b""}, blobs={b"a": (kept.id,), b"b": (dropped.id, kept.id)})
    )
    await store.commit(Batch(deletes={b"b"}))

    assert await store.blobs.sweep(grace_s=3600) == 0
    assert await store.blobs.sweep(grace_s=-1) == 2

    assert [info.id async for info in store.blobs.list()] == [kept.id]
    assert await store.blobs.info(dropped.id) is None
    assert await store.blobs.info(never.id) is None
    assert await read(store, kept) == pattern(10)


async def test_a_reference_moves_from_one_record_to_another(store: Store) -> None:
    ref = await write(store, b"moved")
    await store.commit(Batch(puts={b"stage": b""}, blobs={b"stage": (ref.id,)}))

    await store.commit(Batch(puts={b"head": b""}, deletes={b"stage"}, blobs={b"head": (ref.id,)}))
    await store.blobs.sweep(grace_s=-1)
    assert await read(store, ref) == b"moved"

    await store.commit(Batch(puts={b"head": b"without"}))
    await store.blobs.sweep(grace_s=-1)
    assert await store.blobs.info(ref.id) is None


async def test_a_large_blob_passes_in_bounded_memory(store: Store) -> None:
    if store.url == "mem://":
        return
    piece = pattern(1 << 20)

    tracemalloc.start()
    async with store.blobs.create(context=CONTEXT) as writer:
        for _ in range(40):
            await writer.write(piece)
        ref = await writer.finish()
    size_bytes = 0
    async for chunk in store.blobs.read(ref, context=CONTEXT):
        size_bytes += len(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert size_bytes == 40 << 20
    assert peak < 16 << 20
