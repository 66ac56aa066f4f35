"""Blobs are sealed chunk by chunk; whole or in part they read as they were written, or not at all."""

import hashlib
import os
import tracemalloc
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.storage.codec.blobs import EncodedBlobStore
from holdfast.storage.codec.compression import Compression
from holdfast.storage.codec.hf1 import Codec
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.errors import BlobNotFound, DecryptionError, InvalidBatch
from holdfast.storage.memory import MemoryBlobs, open_memory
from holdfast.storage.opening import open_backend
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import BlobRef, BlobStore

CONTEXT = "attachment:default/orders/picture"
CHUNK = 1 << 16
MEBIBYTE = 1 << 20
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK]


@asynccontextmanager
async def open_blobs(
    compression: Compression = Compression.NONE,
) -> AsyncGenerator[tuple[EncodedBlobStore, MemoryBlobs], None]:
    async with open_memory(StoreOptions()) as inner:
        blobs = inner.blobs
        assert isinstance(blobs, MemoryBlobs)
        yield EncodedBlobStore(blobs, Codec(Keyring(b"R" * 32), compression=compression)), blobs


async def write(blobs: BlobStore, content: bytes, piece_bytes: int = 50_000) -> BlobRef:
    async with blobs.create(context=CONTEXT) as writer:
        for start in range(0, len(content), piece_bytes):
            await writer.write(content[start : start + piece_bytes])
        return await writer.finish()


async def read(
    blobs: BlobStore, ref: BlobRef, start: int = 0, end: int | None = None, context: str = CONTEXT
) -> bytes:
    return b"".join([piece async for piece in blobs.read(ref, context=context, start=start, end=end)])


async def stored_bytes(inner: BlobStore, ref: BlobRef) -> bytes:
    info = await inner.info(ref.id)
    assert info is not None
    return await read(inner, BlobRef(ref.id, info.stored_bytes, b""))


def half_noise(size: int) -> bytes:
    return (os.urandom(size // 2) + bytes(size))[:size]


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("size", SIZES)
async def test_a_blob_reads_as_it_was_written(size: int, compression: Compression) -> None:
    content = bytes(size // 2) + os.urandom(size - size // 2)
    async with open_blobs(compression) as (blobs, _):
        ref = await write(blobs, content)

        assert (ref.size_bytes, ref.sha256) == (size, hashlib.sha256(content).digest())
        assert await read(blobs, ref) == content


@pytest.mark.parametrize("compression", list(Compression))
async def test_every_range_of_a_blob_gives_its_bytes(compression: Compression) -> None:
    content = b"".join(b"%07d " % i for i in range(25_000))
    borders = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, len(content) - 1, len(content)]
    async with open_blobs(compression) as (blobs, _):
        ref = await write(blobs, content)

        for start, end in ((start, end) for start in borders for end in borders if start <= end):
            assert await read(blobs, ref, start, end) == content[start:end]
        assert await read(blobs, ref, CHUNK, 10 * len(content)) == content[CHUNK:]


@pytest.mark.parametrize(("start", "end"), [(-1, None), (5, 4), (11, None)])
async def test_a_range_outside_of_the_blob_is_refused(start: int, end: int | None) -> None:
    async with open_blobs() as (blobs, _):
        ref = await write(blobs, b"0123456789")

        with pytest.raises(InvalidBatch):
            await read(blobs, ref, start, end)


async def test_what_is_stored_is_not_the_content() -> None:
    content = b"marker " * 30_000
    async with open_blobs() as (blobs, inner):
        ref = await write(blobs, content)

        stored = await stored_bytes(inner, ref)

        assert b"marker" not in stored
        assert [info.id async for info in blobs.list()] == [ref.id]
        assert await blobs.info(ref.id) == await inner.info(ref.id)


def damages(stored: bytes) -> Iterator[bytes]:
    for position in (0, 5, 20, 24, CHUNK, 24 + CHUNK + 16, len(stored) - 1):
        altered = bytearray(stored)
        altered[position] ^= 1
        yield bytes(altered)
    for border in range(24, len(stored), CHUNK + 16):
        yield stored[:border]


@pytest.mark.parametrize("compression", list(Compression))
async def test_a_damaged_blob_is_refused(compression: Compression) -> None:
    content = half_noise(3 * CHUNK)
    async with open_blobs(compression) as (blobs, inner):
        ref = await write(blobs, content)
        stored = await stored_bytes(inner, ref)

        for damaged in damages(stored):
            inner.keep(ref.id, damaged)
            with pytest.raises(DecryptionError):
                await read(blobs, ref)


async def test_a_damaged_chunk_is_refused_by_every_range_that_touches_it() -> None:
    content = os.urandom(3 * CHUNK)
    async with open_blobs() as (blobs, inner):
        ref = await write(blobs, content)
        altered = bytearray(await stored_bytes(inner, ref))
        altered[24 + CHUNK + 16 + 5] ^= 1
        inner.keep(ref.id, bytes(altered))

        assert await read(blobs, ref, 10, CHUNK) == content[10:CHUNK]
        for start, end in ((CHUNK, CHUNK + 1), (CHUNK - 1, CHUNK + 1), (5, 3 * CHUNK)):
            with pytest.raises(DecryptionError):
                await read(blobs, ref, start, end)


async def test_a_cut_blob_is_refused_by_a_range_behind_the_cut() -> None:
    async with open_blobs() as (blobs, inner):
        ref = await write(blobs, os.urandom(3 * CHUNK))
        inner.keep(ref.id, (await stored_bytes(inner, ref))[: 24 + 2 * (CHUNK + 16)])

        with pytest.raises(DecryptionError):
            await read(blobs, ref, 2 * CHUNK, 3 * CHUNK)


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("start", [0, 1])
async def test_a_size_other_than_the_written_one_is_refused(start: int, compression: Compression) -> None:
    async with open_blobs(compression) as (blobs, _):
        ref = await write(blobs, half_noise(2 * CHUNK))

        for size in (2 * CHUNK - 1, 2 * CHUNK + 1):
            with pytest.raises(DecryptionError):
                await read(blobs, replace(ref, size_bytes=size), start)


async def test_a_blob_opens_only_in_its_context_and_with_its_own_descriptor() -> None:
    async with open_blobs() as (blobs, _):
        one, two = await write(blobs, b"one"), await write(blobs, b"two")

        with pytest.raises(DecryptionError):
            await read(blobs, one, context="attachment:other")
        with pytest.raises(DecryptionError):
            await read(blobs, replace(one, id=two.id))
        with pytest.raises(DecryptionError, match="without encryption"):
            await read(blobs, replace(one, descriptor=b""))


async def test_a_blob_moves_to_another_context_by_its_reference_alone() -> None:
    async with open_blobs() as (blobs, inner):
        ref = await write(blobs, b"content")
        stored = await stored_bytes(inner, ref)

        moved = blobs.rewrap(ref, CONTEXT, "state:elsewhere")

        assert await read(blobs, moved, context="state:elsewhere") == b"content"
        assert await stored_bytes(inner, moved) == stored


async def test_a_blob_that_is_not_finished_leaves_nothing_behind() -> None:
    async with open_blobs() as (blobs, inner):
        async with blobs.create(context=CONTEXT) as writer:
            await writer.write(b"x" * 200_000)

        assert [info async for info in inner.list()] == []


async def test_a_blob_can_be_written_under_its_old_id_and_removed() -> None:
    async with open_blobs() as (blobs, inner):
        blob_id = (await write(blobs, b"first")).id
        assert await blobs.remove(blob_id)

        async with blobs.create(context=CONTEXT, blob_id=blob_id) as writer:
            await writer.write(b"second")
            ref = await writer.finish()

        assert ref.id == blob_id
        assert await read(blobs, ref) == b"second"
        assert [info.id async for info in inner.list()] == [blob_id]


async def test_a_swept_blob_is_not_found() -> None:
    async with open_blobs() as (blobs, _):
        ref = await write(blobs, b"content")

        assert await blobs.sweep(grace_s=0) == 1

        with pytest.raises(BlobNotFound):
            await read(blobs, ref)


@pytest.mark.parametrize(
    "compression",
    [pytest.param(kind, marks=[pytest.mark.long] * (kind is not Compression.SNAPPY)) for kind in Compression],
)
async def test_a_hundred_megabytes_pass_in_less_than_eight_mebibytes(
    tmp_path: Path, compression: Compression
) -> None:
    piece = half_noise(MEBIBYTE)
    before, after = hashlib.sha256(), hashlib.sha256()
    async with open_backend(f"disk://{tmp_path}/store", StoreOptions()) as inner:
        blobs = EncodedBlobStore(inner.blobs, Codec(Keyring(b"R" * 32), compression=compression))
        tracemalloc.start()
        try:
            base_bytes = tracemalloc.get_traced_memory()[0]
            async with blobs.create(context=CONTEXT) as writer:
                for _ in range(100):
                    before.update(piece)
                    await writer.write(piece)
                ref = await writer.finish()
            async for plain in blobs.read(ref, context=CONTEXT):
                after.update(plain)
            peak_bytes = tracemalloc.get_traced_memory()[1] - base_bytes
        finally:
            tracemalloc.stop()

    assert after.digest() == before.digest() == ref.sha256
    assert peak_bytes < 8 * MEBIBYTE
