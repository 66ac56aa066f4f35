"""Damaged bytes are refused with a clear error, at open or at read; they are never skipped."""

import random
import shutil
from pathlib import Path

import pytest

from holdfast.storage.disk import segment
from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import StoreCorrupt
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch

OPTIONS = StoreOptions(journal_segment_bytes=256 << 10, free_bytes_min=0)
WANTED = {b"k%03d" % n: b"value %d " % n + b"x" * (n * 7 % 300) for n in range(100)}


async def fill(folder: Path) -> None:
    async with open_disk(folder, OPTIONS) as store:
        for key, value in WANTED.items():
            await store.commit(Batch(puts={key: value}))


async def read_all(folder: Path) -> dict[bytes, bytes]:
    async with open_disk(folder, OPTIONS) as store:
        return {record.key: record.value for record in await store.range(b"", None, limit=1000)}


async def outcome(folder: Path) -> str:
    try:
        found = await read_all(folder)
    except StoreCorrupt as error:
        assert str(folder) in error.detail
        return "refused"
    assert found == WANTED, "damage was skipped"
    return "intact"


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x40
    path.write_bytes(raw)


def only_journal(source: Path, target: Path) -> Path:
    """The store as a crash before any flush leaves it: everything is in the journal."""
    target.mkdir()
    shutil.copytree(source / "journal", target / "journal")
    return next((target / "journal").glob("*.segment"))


async def test_a_flipped_bit_anywhere_in_the_journal_is_never_skipped(tmp_path: Path) -> None:
    await fill(tmp_path / "good")
    rng = random.Random(7)
    end = used_bytes(tmp_path / "good")
    positions = [0, 9, 70, end - 1, end - 30, *[rng.randrange(segment.HEADER_BYTES, end) for _ in range(40)]]

    outcomes: list[str] = []
    for number, at in enumerate(positions):
        path = only_journal(tmp_path / "good", tmp_path / str(number))
        flip(path, at)
        outcomes.append(await outcome(tmp_path / str(number)))

    assert outcomes.count("refused") >= len(positions) - 3, "only bytes that hold nothing may go unnoticed"


def used_bytes(folder: Path) -> int:
    path = next((folder / "journal").glob("*.segment"))
    return max(record.end_offset for record in segment.read_records(path, segment.read_header(path)))


async def test_a_torn_last_write_is_no_damage(tmp_path: Path) -> None:
    await fill(tmp_path / "good")
    path = only_journal(tmp_path / "good", tmp_path / "torn")
    salt = segment.read_header(path).salt
    end = used_bytes(tmp_path / "good")
    torn = segment.encode_record(salt, 101, [b"entry " * 100])
    raw = bytearray(path.read_bytes())
    raw[end : end + len(torn) // 2] = torn[: len(torn) // 2]
    path.write_bytes(raw)

    assert await outcome(tmp_path / "torn") == "intact"


async def test_a_missing_segment_is_refused(tmp_path: Path) -> None:
    await fill(tmp_path)
    shutil.rmtree(tmp_path / "journal")

    with pytest.raises(StoreCorrupt, match="journal is missing"):
        await read_all(tmp_path)


async def test_a_hole_between_two_segments_is_refused(tmp_path: Path) -> None:
    options = StoreOptions(journal_segment_bytes=16 << 10, free_bytes_min=0)
    async with open_disk(tmp_path / "good", options) as store:
        first = tmp_path / "good" / "journal" / f"{0:020d}.segment"
        while first.exists() and store.revision < 20_000:
            await store.commit(Batch(puts={b"k%d" % store.revision: b"x" * 200}))
    (tmp_path / "bad").mkdir()
    shutil.copytree(tmp_path / "good" / "journal", tmp_path / "bad" / "journal")

    # Without the engine, what the recycled first segments held is missing.
    with pytest.raises(StoreCorrupt, match="begins after revision"):
        await read_all(tmp_path / "bad")


async def test_flipped_bits_on_the_engine_are_refused_at_open_or_at_read(tmp_path: Path) -> None:
    await fill(tmp_path / "good")
    tables = sorted((tmp_path / "good" / "shelf").glob("*.sst"))
    assert tables
    rng = random.Random(11)
    outcomes: list[str] = []

    for number in range(12):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "good", folder)
        path = folder / "shelf" / rng.choice(tables).name
        flip(path, rng.randrange(path.stat().st_size))
        outcomes.append(await outcome(folder))

    assert "refused" in outcomes


async def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    await fill(tmp_path)
    for path in (tmp_path / "shelf").glob("*.sst"):
        path.unlink()

    with pytest.raises(StoreCorrupt):
        await read_all(tmp_path)


async def test_a_damaged_blob_is_refused_before_the_damaged_chunk(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1024
    async with open_disk(tmp_path, OPTIONS) as store, store.blobs.create() as writer:
        await writer.write(content)
        ref = await writer.finish()
    path = next(path for path in (tmp_path / "blobs").rglob(ref.id))
    flip(path, 100_000)

    async with open_disk(tmp_path, OPTIONS) as store:
        with pytest.raises(StoreCorrupt, match="damaged"):
            _ = [chunk async for chunk in store.blobs.read(ref)]
        part = b"".join([chunk async for chunk in store.blobs.read(ref, end=65_536)])
        assert part == content[:65_536]
        path.write_bytes(path.read_bytes()[:150_000])
        with pytest.raises(StoreCorrupt):
            _ = [chunk async for chunk in store.blobs.read(ref, start=140_000)]
