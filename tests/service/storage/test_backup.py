"""Backups: everything as of one revision, into any kind of store; damage is told, never restored."""

import os
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.common.clock import FakeClock
from holdfast.common.ids import uuid7
from holdfast.storage.codec.identity import check_identity
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.errors import Compacted, InvalidArchive, InvalidBatch, StoreCorrupt
from holdfast.storage.keys import pack
from holdfast.storage.maintenance.backup import backup, check_backup, restore
from holdfast.storage.maintenance.backup_file import MAGIC, BackupFileWriter, read_frames
from holdfast.storage.opening import open_backend, open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, BlobRef, SnapshotRecord, Store
from holdfast.storage.records_pb2 import (
    BackupBlobChunk,
    BackupFrame,
    BackupHeader,
    BackupRecord,
    BackupTrailer,
)
from holdfast.storage.whole_file import written_whole

OPTIONS = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=0)
BIG = bytes(range(256)) * 10_000  # More than two chunks of a backup.


@pytest.fixture
async def source() -> AsyncIterator[Store]:
    async with open_backend("mem://", OPTIONS) as store:
        await check_identity(store, None, None)
        yield store


async def fill(store: Store) -> list[BlobRef]:
    """Records with several versions, a deleted one, and three blobs, one of them shared, one empty."""
    refs = [await put_blob(store, content) for content in (BIG, b"small", b"")]
    ids = [ref.id for ref in refs]
    for number in range(30):
        await store.commit(Batch(puts={pack(("doc", "default", f"k{number:02}")): b"v%d" % number}))
    first = pack(("doc", "default", "k00"))
    await store.commit(Batch(puts={first: b"again"}, blobs={first: (ids[0], ids[1])}))
    second = pack(("doc", "default", "k01"))
    await store.commit(Batch(puts={second: b"again"}, blobs={second: (ids[0], ids[2])}))
    await store.commit(Batch(deletes={pack(("doc", "default", "k02"))}))
    return refs


async def put_blob(store: Store, content: bytes) -> BlobRef:
    async with store.blobs.create() as writer:
        await writer.write(content)
        return await writer.finish()


async def read_blob(store: Store, ref: BlobRef) -> bytes:
    return b"".join([piece async for piece in store.blobs.read(ref)])


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def records_of(store: Store) -> list[SnapshotRecord]:
    async with store.snapshot() as snapshot:
        return [item async for page in snapshot.records() for item in page]


async def test_a_restored_store_is_the_same_store(source: Store, tmp_path: Path) -> None:
    refs = await fill(source)

    summary = await backup(source, tmp_path)
    async with open_backend(f"disk://{tmp_path / 'store'}", OPTIONS) as target:
        restored = await restore(target, summary.path)

        assert await records_of(target) == await records_of(source)
        assert target.revision == source.revision == restored.revision
        assert [await read_blob(target, ref) for ref in refs] == [BIG, b"small", b""]
        assert (restored.records, restored.blobs, restored.blob_bytes) == (30, 3, len(BIG) + 5)


async def test_a_restored_store_is_still_there_after_it_was_closed(source: Store, tmp_path: Path) -> None:
    refs = await fill(source)
    summary = await backup(source, tmp_path)
    url = f"disk://{tmp_path / 'store'}"
    async with open_backend(url, OPTIONS) as target:
        await restore(target, summary.path)

    async with open_store(url, OPTIONS) as target:
        await target.blobs.sweep(grace_s=-60)

        assert await records_of(target) == await records_of(source)
        assert await read_blob(target, refs[0]) == BIG


async def test_disk_to_postgres_and_back_changes_nothing(
    source: Store, postgres_url: str, tmp_path: Path
) -> None:
    refs = await fill(source)
    first = await backup(source, tmp_path / "first")

    async with open_backend(postgres_url, OPTIONS) as middle:
        await restore(middle, first.path)
        second = await backup(middle, tmp_path / "second")
    async with open_backend(f"disk://{tmp_path / 'store'}", OPTIONS) as target:
        await restore(target, second.path)

        assert await records_of(target) == await records_of(source)
        assert await read_blob(target, refs[0]) == BIG


async def test_a_restored_backup_begins_its_past_at_the_backup(tmp_path: Path, postgres_url: str) -> None:
    async with open_backend("mem://", OPTIONS) as source:
        for number in range(3):
            await source.commit(Batch(puts={b"k": b"%d" % number}))
        summary = await backup(source, tmp_path / "backup")
        kept = await source.get(b"k")

    for url in ("mem://", f"disk://{tmp_path / 'store'}", postgres_url):
        async with open_backend(url, OPTIONS) as target:
            await restore(target, summary.path)
            await target.commit(Batch(deletes={b"k"}))

            assert target.compacted_revision == 3
            assert await target.get(b"k", at_revision=3) == kept
            assert await target.get(b"k", at_revision=4) is None
            with pytest.raises(Compacted):
                await target.get(b"k", at_revision=2)


async def test_a_large_store_takes_little_memory_both_ways(tmp_path: Path) -> None:
    async with (
        open_backend(f"disk://{tmp_path / 'a'}", OPTIONS) as source,
        open_backend(f"disk://{tmp_path / 'b'}", OPTIONS) as target,
    ):
        for number in range(40):
            await source.commit(Batch(puts={b"k%02d" % number: bytes(1 << 20)}))
        async with source.blobs.create() as writer:
            for _ in range(40):
                await writer.write(bytes(1 << 20))
            ref = await writer.finish()
        await source.commit(Batch(puts={b"blob": b""}, blobs={b"blob": (ref.id,)}))
        await source.compact()
        tracemalloc.start()

        summary = await backup(source, tmp_path / "backup")
        await restore(target, summary.path)

        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (summary.records, summary.blob_bytes) == (41, 40 << 20)
        assert peak_bytes < 24 << 20


async def test_what_is_encrypted_stays_encrypted(tmp_path: Path) -> None:
    keyring = Keyring(os.urandom(32))
    options = StoreOptions(keyring=keyring, journal_segment_bytes=1 << 20, free_bytes_min=0)
    async with open_backend(f"disk://{tmp_path / 'a'}", options) as backend:
        await check_identity(backend, keyring, None)
    async with open_store(f"disk://{tmp_path / 'a'}", options) as store:
        await store.commit(Batch(puts={b"key": b"a marker that nobody may read"}))

    async with open_backend(f"disk://{tmp_path / 'a'}", options) as backend:
        summary = await backup(backend, tmp_path / "backup")
    async with open_backend(f"disk://{tmp_path / 'b'}", OPTIONS) as backend:
        await restore(backend, summary.path)

    assert summary.is_encrypted
    assert b"a marker" not in summary.path.read_bytes()
    async with open_store(f"disk://{tmp_path / 'b'}", options) as store:
        record = await store.get(b"key")
        assert record is not None and record.value == b"a marker that nobody may read"


async def test_a_backup_shows_one_revision_whatever_is_written_meanwhile(
    source: Store, tmp_path: Path
) -> None:
    await fill(source)
    before = await records_of(source)
    pending = [pack(("doc", "default", f"new{number}")) for number in range(5)]

    def write_meanwhile(records: int, size_bytes: int) -> None:
        if pending:
            commit = source.commit(Batch(puts={pending.pop(): b"late"}, deletes={before[-1].record.key}))
            with pytest.raises(StopIteration):
                commit.send(None)  # A store in memory commits without waiting.

    summary = await backup(source, tmp_path, advance=write_meanwhile)
    async with open_backend("mem://", OPTIONS) as target:
        await restore(target, summary.path)

        assert await records_of(target) == before


async def test_a_folder_gets_a_file_with_date_and_revision(source: Store, tmp_path: Path) -> None:
    await source.commit(Batch(puts={b"k": b"v"}))

    summary = await backup(source, tmp_path, clock=FakeClock(wall_s=1_700_000_000.0))

    assert summary.path == tmp_path / "holdfast-20231114T221320Z-r2.hfbackup"
    assert names_in(tmp_path) == [summary.path.name]
    assert summary.path.stat().st_mode & 0o777 == 0o600


async def test_an_existing_file_is_never_overwritten(source: Store, tmp_path: Path) -> None:
    path = tmp_path / "backup"
    path.write_text("mine")

    with pytest.raises(InvalidArchive, match="exists"):
        await backup(source, path)

    assert path.read_text() == "mine"


async def test_a_failed_backup_leaves_no_file(source: Store, tmp_path: Path) -> None:
    refs = await fill(source)
    folder = tmp_path / "out"

    def stop(records: int, size_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await backup(source, folder / "file", advance=stop)

    assert refs and names_in(folder) == []


async def test_a_store_that_is_not_empty_is_not_restored_into(source: Store, tmp_path: Path) -> None:
    await fill(source)
    summary = await backup(source, tmp_path)

    with pytest.raises(InvalidBatch, match="not empty"):
        await restore(source, summary.path)


async def test_every_cut_is_found(source: Store, tmp_path: Path) -> None:
    await source.commit(Batch(puts={b"k": b"v" * 50}))
    whole = (await backup(source, tmp_path)).path.read_bytes()
    path = tmp_path / "cut"

    for size_bytes in range(len(whole)):
        path.write_bytes(whole[:size_bytes])
        with pytest.raises(InvalidArchive):
            await check_backup(path)


async def test_every_flipped_bit_is_found(source: Store, tmp_path: Path) -> None:
    await source.commit(Batch(puts={b"k": b"v" * 50}))
    whole = (await backup(source, tmp_path)).path.read_bytes()
    path = tmp_path / "flipped"

    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        with pytest.raises(InvalidArchive):
            await check_backup(path)


async def test_bytes_after_the_end_are_found(source: Store, tmp_path: Path) -> None:
    path = (await backup(source, tmp_path)).path
    path.write_bytes(path.read_bytes() + b"x")

    with pytest.raises(InvalidArchive, match="goes on"):
        await check_backup(path)


async def test_a_store_whose_restore_failed_does_not_open(source: Store, tmp_path: Path) -> None:
    await fill(source)
    path = (await backup(source, tmp_path)).path
    path.write_bytes(path.read_bytes()[:-1])
    url = f"disk://{tmp_path / 'store'}"

    with pytest.raises(InvalidArchive, match="cut short"):
        async with open_backend(url, OPTIONS) as target:
            await restore(target, path)

    with pytest.raises(StoreCorrupt, match="restore"):
        async with open_backend(url, OPTIONS):
            pass


async def test_a_failed_restore_into_postgres_leaves_it_empty_and_can_be_done_again(
    source: Store, postgres_url: str, tmp_path: Path
) -> None:
    await fill(source)
    path = (await backup(source, tmp_path)).path
    whole = path.read_bytes()

    async with open_backend(postgres_url, OPTIONS) as target:
        path.write_bytes(whole[:-1])
        with pytest.raises(InvalidArchive, match="cut short"):
            await restore(target, path)
        assert await records_of(target) == []
        path.write_bytes(whole)
        await restore(target, path)

        assert await records_of(target) == await records_of(source)


async def write_file(path: Path, frames: list[BackupFrame], trailer: BackupTrailer) -> None:
    with written_whole(path) as file:
        writer = BackupFileWriter(file, path)
        for frame in frames:
            await writer.add(frame)
        await writer.finish(trailer)


def frames_of_a_backup(*frames: BackupFrame, revision: int = 5) -> list[BackupFrame]:
    return [BackupFrame(header=BackupHeader(format_version=1, revision=revision)), *frames]


def record(key: bytes = b"k", *, create: int = 1, mod: int = 1, version: int = 1) -> BackupFrame:
    return BackupFrame(
        record=BackupRecord(key=key, value=b"v", create_revision=create, mod_revision=mod, version=version)
    )


def chunk(blob_id: str, offset: int = 0, *, last: bool = False) -> BackupFrame:
    return BackupFrame(blob_chunk=BackupBlobChunk(id=blob_id, offset=offset, data=b"x", last=last))


BLOB = uuid7()


@pytest.mark.parametrize(
    "frames",
    [
        frames_of_a_backup(record(mod=6)),
        frames_of_a_backup(record(create=0)),
        frames_of_a_backup(record(version=0)),
        frames_of_a_backup(record(version=2)),
        frames_of_a_backup(record(b"b"), record(b"a")),
        frames_of_a_backup(record(b"a"), record(b"a")),
        frames_of_a_backup(record(b"k" * 3000)),
        frames_of_a_backup(record(), revision=1 << 63),
        frames_of_a_backup(chunk(BLOB), record()),
        frames_of_a_backup(chunk(BLOB, 1)),
        frames_of_a_backup(chunk(BLOB), chunk(BLOB, 2)),
        frames_of_a_backup(chunk(BLOB), chunk(uuid7(), 1)),
        frames_of_a_backup(BackupFrame(header=BackupHeader(format_version=1))),
        frames_of_a_backup(BackupFrame()),
    ],
)
async def test_a_well_sealed_file_that_makes_no_sense_is_refused(
    frames: list[BackupFrame], tmp_path: Path
) -> None:
    path = tmp_path / "backup"
    records = sum(frame.WhichOneof("frame") == "record" for frame in frames)
    blob_bytes = sum(len(frame.blob_chunk.data) for frame in frames)
    await write_file(path, frames, BackupTrailer(record_count=records, blob_bytes=blob_bytes))

    async with open_backend("mem://", OPTIONS) as target:
        with pytest.raises(InvalidArchive):
            await restore(target, path)


@pytest.mark.parametrize("blob_id", ["../../../../../../../tmp/aaaaaaaaaaaaa", "x", ""])
async def test_a_blob_id_that_is_none_is_refused(blob_id: str, tmp_path: Path) -> None:
    path = tmp_path / "backup"
    frames = frames_of_a_backup(chunk(blob_id, last=True))
    await write_file(path, frames, BackupTrailer(blob_count=1, blob_bytes=1))

    async with open_backend(f"disk://{tmp_path / 'store'}", OPTIONS) as target:
        with pytest.raises(InvalidBatch, match="no blob id"):
            await restore(target, path)


@pytest.mark.parametrize("content", [b"", b"something else", MAGIC, MAGIC + b"\xff\xff\xff\xff\x0f"])
async def test_something_else_is_no_backup(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)

    with pytest.raises(InvalidArchive):
        await check_backup(path)


async def test_a_later_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    await write_file(path, [BackupFrame(header=BackupHeader(format_version=2))], BackupTrailer())

    with pytest.raises(InvalidArchive, match="format 2"):
        await anext(read_frames(path))
