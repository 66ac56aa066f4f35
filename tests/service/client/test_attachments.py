"""Attachments of the real plane, through the SDK."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.client import AsyncClient, NotFound, TooLarge
from holdfast.client.testing import inprocess


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with inprocess(qrf_disabled=True) as connected:
        yield connected


async def test_uploads_are_the_holders_own_until_the_release(client: AsyncClient) -> None:
    async with client.acquire("files") as session:
        put = await session.attachments.put("ключ 1.txt", b"hello", content_type="text/plain")
        mine = [item.name for item in await session.attachments.list()]
        public = await client.attachments("files").list()
        with pytest.raises(NotFound):
            await client.attachments("files").read("ключ 1.txt")
    committed = await client.attachments("files").list()
    content = await client.attachments("files").read(id=put.attachment.id)

    assert (put.attachment.size_bytes, put.version, put.is_noop) == (5, 1, False)
    assert (mine, public) == (["ключ 1.txt"], [])
    assert [(item.name, item.content_type) for item in committed] == [("ключ 1.txt", "text/plain")]
    assert content == b"hello"


async def test_a_name_that_is_taken_is_kept_if_asked(client: AsyncClient) -> None:
    async with client.acquire("files") as session:
        first = await session.attachments.put("a", b"first")
        second = await session.attachments.put("a", b"second", prevent_overwrite=True)
        with pytest.raises(TooLarge):
            await session.attachments.put("b", b"12345", max_bytes=3)
        content = await session.attachments.read("a")

    assert second.is_noop
    assert second.attachment.id == first.attachment.id
    assert content == b"first"


async def test_deleting_and_writing_a_document_go_together(client: AsyncClient) -> None:
    async with client.acquire("files") as session:
        await session.save({"n": 1})
        await session.attachments.put("a", b"1")
        await session.attachments.put("b", b"2")
        await session.save({"n": 2})
    async with client.acquire("files") as session:
        deleted = (await session.attachments.delete("a"), await session.attachments.delete("a"))
        await session.save({"n": 3})
        rest = await session.attachments.delete_all()

    assert (deleted, rest) == ((True, False), 1)
    assert await client.attachments("files").list() == []
    assert await client.load("files") == {"n": 3}


async def test_large_files_are_streamed_both_ways(client: AsyncClient, tmp_path: Path) -> None:
    source, copy = tmp_path / "in", tmp_path / "out"
    source.write_bytes(bytes(range(256)) * 40_000)

    async with client.acquire("files") as session:
        await session.attachments.put("big", source)
    attachment = await client.attachments("files").save(copy, "big")

    assert attachment.size_bytes == source.stat().st_size
    assert copy.read_bytes() == source.read_bytes()
