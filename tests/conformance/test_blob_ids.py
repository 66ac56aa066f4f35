"""Blobs under given ids, as a restore writes them, and removed one by one."""

import pytest

from holdfast.common.ids import uuid7
from holdfast.storage.errors import InvalidBatch
from holdfast.storage.port import Batch, BlobRef, Store

AN_ID = "01a1e458-e522-7ba2-9f6c-ff42e2529d2e"


async def write(store: Store, content: bytes, blob_id: str | None = None) -> BlobRef:
    async with store.blobs.create(blob_id=blob_id) as writer:
        await writer.write(content)
        return await writer.finish()


async def read(store: Store, ref: BlobRef) -> bytes:
    return b"".join([piece async for piece in store.blobs.read(ref)])


async def test_a_given_id_is_kept(store: Store) -> None:
    blob_id = uuid7()

    ref = await write(store, b"content", blob_id)

    assert ref.id == blob_id
    assert await read(store, ref) == b"content"


async def test_an_id_is_not_given_twice(store: Store) -> None:
    ref = await write(store, b"first")

    with pytest.raises(InvalidBatch, match="exists"):
        await write(store, b"second", ref.id)

    assert await read(store, ref) == b"first"


@pytest.mark.parametrize("blob_id", ["", "x", "../" * 12, AN_ID.upper(), f"{AN_ID}\n"])
async def test_what_is_no_id_is_refused(store: Store, blob_id: str) -> None:
    with pytest.raises(InvalidBatch, match="no blob id"):
        await write(store, b"content", blob_id)


async def test_only_a_blob_that_nothing_refers_to_is_removed(store: Store) -> None:
    ref = await write(store, b"content")
    await store.commit(Batch(puts={b"k": b"v"}, blobs={b"k": (ref.id,)}))

    was_removed = await store.blobs.remove(ref.id)

    assert not was_removed
    assert await read(store, ref) == b"content"


async def test_a_removed_blob_is_gone(store: Store) -> None:
    ref = await write(store, b"content")

    was_removed = await store.blobs.remove(ref.id)

    assert was_removed
    assert await store.blobs.info(ref.id) is None
    assert not await store.blobs.remove(ref.id)
