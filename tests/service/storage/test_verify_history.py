"""Verification reads the kept history too: damage, holes and contradictions to the records are found."""

import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.codec.rewrap import rewrap_values
from holdfast.storage.disk.rocks import RocksEngine
from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import StoreFull
from holdfast.storage.local import layout
from holdfast.storage.local.pending import PendingBatch
from holdfast.storage.maintenance import history_check
from holdfast.storage.maintenance.verify import Verification
from holdfast.storage.opening import open_backend, open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Record, Store
from holdfast.storage.postgres.url import parse_url
from tests.infra.files import FullFile

OPTIONS = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=0, postgres_poll_interval_s=0.2)


async def write_history(store: Store) -> int:
    """Creates, overwrites, a delete and a new life of a key; the revision of the first commit."""
    first = await store.commit(Batch(puts={b"a": b"1", b"b": b"1"}))
    await store.commit(Batch(puts={b"a": b"2"}))
    await store.commit(Batch(puts={b"c": b"1"}, deletes={b"b"}))
    await store.commit(Batch(puts={b"a": b"3", b"b": b"2"}))
    await store.commit(Batch(deletes={b"c", b"never was"}))
    await store.commit(Batch(deletes={b"never was"}))  # A revision without a change.
    await store.commit(Batch(puts={b"d": b"1"}))
    return first


async def problems(store: Store, keyring: Keyring | None = None) -> dict[str, str]:
    found = [result async for result in Verification(store, keyring=keyring).results()]
    return {name: problem for name, problem in found if problem is not None}


@pytest.fixture(params=["mem", "disk", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "mem://" if request.param == "mem" else f"disk://{tmp_path / 'store'}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url, OPTIONS) as opened:
        yield opened


async def test_a_good_history_passes(store: Store) -> None:
    await write_history(store)

    assert await problems(store) == {}


async def test_a_good_history_passes_in_several_passes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_check, "KEYS_PER_PASS", 2)
    await write_history(store)

    assert await problems(store) == {}


async def test_a_compacted_history_passes(url: str) -> None:
    async with open_store(url, replace(OPTIONS, history_revisions_max=3)) as store:
        await write_history(store)
        assert await store.compact() > 0

        assert await problems(store) == {}


async def test_a_history_compacted_at_any_revision_passes(store: Store) -> None:
    await write_history(store)

    for revision in range(1, store.revision + 1):
        await store.compact(revision)
        assert await problems(store) == {}


async def test_a_number_that_a_failed_write_burnt_reads_as_the_revision_before(tmp_path: Path) -> None:
    async with open_disk(tmp_path, OPTIONS, file_factory=FullFile) as store:
        before = await store.commit(Batch(puts={b"a": b"1", b"b": b"1"}))
        FullFile.is_full = True
        with pytest.raises(StoreFull):
            await store.commit(Batch(puts={b"a": b"lost", b"b": b"lost"}))
        FullFile.is_full = False
        wanted = await store.range(b"", None, limit=9)
        newest = await store.commit(Batch(puts={b"a": b"2"}, deletes={b"b"}))

        for revision in range(before, newest):
            assert [await store.get(key, at_revision=revision) for key in (b"a", b"b")] == wanted
            assert await store.range(b"", None, limit=9, at_revision=revision) == wanted
        assert [r.value for r in await store.range(b"", None, limit=9, at_revision=newest)] == [b"2"]


async def test_a_history_with_numbers_that_failed_writes_burnt_passes(tmp_path: Path) -> None:
    async with open_disk(tmp_path, OPTIONS, file_factory=FullFile) as store:
        await write_history(store)
        FullFile.is_full = True
        with pytest.raises(StoreFull):
            await store.commit(Batch(puts={b"a": b"lost"}))
        FullFile.is_full = False
        before = store.revision
        assert await store.commit(Batch(puts={b"a": b"4"})) > before + 1

        assert await problems(store) == {}


def alter(folder: Path, change: Callable[[RocksEngine], None]) -> None:
    """Change what is stored behind the back of a closed store."""
    engine = RocksEngine(folder / "shelf")
    change(engine)
    engine.flush()
    engine.close()


def other_value(engine: RocksEngine, revision: int) -> list[tuple[bytes, bytes | None]]:
    stored = layout.encode_stored(Record(b"a", b"forged", revision - 1, revision, 2), ())
    previous = layout.encode_stored(Record(b"a", b"1", revision - 1, revision - 1, 1), ())
    changed = PendingBatch(revision, revision - 1, 0, [(b"a", stored, previous)])
    return [write for write in changed.writes if write[0] == layout.change_key(revision)]


DAMAGES: dict[str, tuple[Callable[[RocksEngine, int], list[tuple[bytes, bytes | None]]], str]] = {
    "a missing change": (lambda _, first: [(layout.change_key(first + 1), None)], "lacks"),
    "the newest change is missing": (
        lambda _, first: [(layout.change_key(first + 6), None)],
        "lacks",
    ),
    "a missing delete": (lambda _, first: [(layout.change_key(first + 4), None)], "is missing"),
    "a change cut short": (
        lambda engine, first: [
            (layout.change_key(first), (engine.get(layout.change_key(first)) or b"")[:-1])
        ],
        "damaged",
    ),
    "a change with another value": (lambda engine, first: other_value(engine, first + 1), "does not go on"),
    "a change of the future": (
        lambda engine, first: [(layout.change_key(first + 90), engine.get(layout.change_key(first)))],
        "revision",
    ),
    "a record without its change": (
        lambda _, first: [
            (layout.RECORD + b"x", layout.encode_stored(Record(b"x", b"", first, first, 1), ()))
        ],
        "lacks",
    ),
    "a record that is gone": (lambda _, first: [(layout.RECORD + b"d", None)], "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_to_the_history_on_disk_is_found(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "store"
    async with open_store(f"disk://{folder}", OPTIONS) as store:
        first = await write_history(store)
    change, words = DAMAGES[damage]
    alter(folder, lambda engine: engine.write(change(engine, first)))

    async with open_store(f"disk://{folder}", OPTIONS) as store:
        found = await problems(store)

    assert list(found) == ["ReadHistory"]
    assert words in found["ReadHistory"]


async def test_flipped_bits_in_a_table_that_only_the_history_needs_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    marker = os.urandom(20_000)
    async with open_store(f"disk://{folder}", OPTIONS) as store:
        await store.commit(Batch(puts={b"a": marker}))
        await store.commit(Batch(puts={b"a": b"small"}))
    (table,) = [path for path in (folder / "shelf").glob("*.sst") if marker[:64] in path.read_bytes()]
    raw = bytearray(table.read_bytes())
    raw[raw.index(marker[:64]) + 10_000] ^= 1
    table.write_bytes(raw)

    async with open_store(f"disk://{folder}", OPTIONS) as store:
        record = await store.get(b"a")
        found = await problems(store)

    assert record is not None
    assert record.value == b"small"
    assert "checksum" in found["ReadHistory"]  # RocksDB itself may stop too, once it comes across the damage.
    assert "ReadEverything" not in found


POSTGRES_DAMAGES = {
    "a missing change": ("DELETE FROM changes WHERE revision = $1 + 1", "lacks"),
    "the newest change is missing": ("DELETE FROM changes WHERE revision = $1 + 6", "lacks"),
    "another value": ("UPDATE changes SET value = 'x' WHERE revision = $1 + 1", "does not go on"),
    "another version": ("UPDATE changes SET version = 7 WHERE revision = $1 + 1", "revision"),
    "a record that is gone": ("DELETE FROM records WHERE key = 'd' AND $1 > 0", "is missing"),
}


@pytest.mark.parametrize("damage", POSTGRES_DAMAGES)
async def test_damage_to_the_history_on_postgresql_is_found(postgres_url: str, damage: str) -> None:
    statement, words = POSTGRES_DAMAGES[damage]
    async with open_store(postgres_url, OPTIONS) as store:
        first = await write_history(store)
        await execute(postgres_url, statement, first)

        found = await problems(store)

    assert list(found) == ["ReadHistory"]
    assert words in found["ReadHistory"]


async def execute(url: str, statement: str, *arguments: object) -> None:
    parsed = parse_url(url)
    connection = await asyncpg.connect(parsed.dsn, server_settings={"search_path": parsed.schema})
    try:
        await connection.execute(statement, *arguments)
    finally:
        await connection.close()


async def test_an_encrypted_history_passes_also_when_its_root_key_was_retired(tmp_path: Path) -> None:
    """What was re-wrapped needs the old key no more; the history of that time is checked without being opened."""
    old_key, new_key = os.urandom(32), os.urandom(32)
    old, both = Keyring(old_key), Keyring(new_key, (old_key,))
    async with open_store(f"disk://{tmp_path}", replace(OPTIONS, keyring=old)) as store:
        await write_history(store)
        assert await problems(store, old) == {}
    async with open_backend(f"disk://{tmp_path}", replace(OPTIONS, keyring=both)) as backend:
        await rewrap_values(backend, both)

    async with open_store(f"disk://{tmp_path}", replace(OPTIONS, keyring=Keyring(new_key))) as store:
        assert await problems(store, Keyring(new_key)) == {}


async def test_a_blob_that_no_record_refers_to_is_read_too(tmp_path: Path) -> None:
    async with open_store(f"disk://{tmp_path}", OPTIONS) as store:
        async with store.blobs.create() as writer:
            await writer.write(b"x" * 1000)
            ref = await writer.finish()
        path = next(tmp_path.rglob(ref.id))
        raw = bytearray(path.read_bytes())
        raw[500] ^= 1
        path.write_bytes(raw)

        found = await problems(store)

    assert ref.id in found["ReadEverything"]
