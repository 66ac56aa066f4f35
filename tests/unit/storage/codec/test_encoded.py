"""An encoded store is a store like any other, and what lies below it is unreadable."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.storage.codec.compression import Compression
from holdfast.storage.codec.descriptor import MAGIC
from holdfast.storage.codec.encoded import STEP_RECORDS, EncodedStore, value_context
from holdfast.storage.codec.keyring import Keyring, key_id
from holdfast.storage.errors import Conflict, DecryptionError, InvalidBatch
from holdfast.storage.keys import pack
from holdfast.storage.memory import open_memory
from holdfast.storage.opening import open_backend
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import ABSENT, VALUE_BYTES_MAX, Batch, Event, Record, Transaction
from tests.conformance.interleaving import batch_of, before_commits

MARKER = b"a marker that must never be stored as it is "
KEYRING = Keyring(b"R" * 32)


@asynccontextmanager
async def open_encoded(
    keyring: Keyring = KEYRING, compression: Compression = Compression.NONE
) -> AsyncGenerator[EncodedStore, None]:
    async with open_memory(StoreOptions()) as inner:
        yield EncodedStore(inner, keyring, compression)


def files_with(needle: bytes, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()]


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


@pytest.mark.parametrize("compression", list(Compression))
async def test_values_are_stored_sealed_and_read_plain(compression: Compression) -> None:
    async with open_encoded(compression=compression) as store:
        revision = await store.commit(Batch(puts={b"k": MARKER * 20, b"empty": b""}))

        assert await store.get(b"k") == Record(b"k", MARKER * 20, revision, revision, 1)
        assert {
            key: record.value for key, record in (await store.get_many([b"k", b"empty", b"no"])).items()
        } == {
            b"k": MARKER * 20,
            b"empty": b"",
        }
        assert await store.get(b"no") is None
        stored = await store.inner.get(b"k")
        assert stored is not None
        assert stored.value.startswith(MAGIC)
        assert b"marker" not in stored.value


async def test_values_are_compressed_before_they_are_sealed() -> None:
    sizes: dict[Compression, int] = {}
    for compression in (Compression.NONE, Compression.SNAPPY):
        async with open_encoded(compression=compression) as store:
            await store.commit(Batch(puts={b"k": MARKER * 1000}))
            stored = await store.inner.get(b"k")
            assert stored is not None
            sizes[compression] = len(stored.value)

    assert sizes[Compression.SNAPPY] * 4 < len(MARKER) * 1000 <= sizes[Compression.NONE]


async def test_ranges_are_opened_and_keys_only_ranges_open_nothing() -> None:
    async with open_encoded() as store:
        await store.commit(Batch(puts={b"%03d" % i: b"v%d" % i for i in range(3 * STEP_RECORDS)}))

        assert values(await store.range(b"001", b"004", limit=10)) == [b"v1", b"v2", b"v3"]
        assert values(await store.range(b"", None, limit=2, reverse=True)) == [b"v191", b"v190"]
        assert len(await store.range(b"", None, limit=1000)) == 3 * STEP_RECORDS
        await store.inner.commit(Batch(puts={b"000": b"not sealed"}))
        assert [record.key for record in await store.range(b"", None, limit=2, keys_only=True)] == [
            b"000",
            b"001",
        ]


async def test_a_watch_shows_opened_records_and_opened_previous_ones() -> None:
    async with open_encoded() as store:
        await store.commit(Batch(puts={b"k": b"one"}))
        async with store.watch(b"k", None, after=0, with_previous=True) as watch:
            await store.commit(Batch(puts={b"k": b"two"}))
            await store.commit(Batch(deletes={b"k"}))

            events: list[Event] = []
            while len(events) < 3:
                events += await anext(watch)

            assert [(e.record and e.record.value, e.previous and e.previous.value) for e in events] == [
                (b"one", None),
                (b"two", b"one"),
                (None, b"two"),
            ]
            assert watch.revision == store.revision


async def test_a_transaction_reads_and_writes_plain_values() -> None:
    async with open_encoded() as store:
        await store.commit(Batch(puts={b"count": b"1", b"other": b"x"}))

        def add(tx: Transaction) -> bytes:
            found = tx.get_many([b"count", b"other"])
            rows = tx.range(b"", None, limit=10, expected=True)
            assert values(rows) == [b"1", b"x"]
            tx.put(b"count", b"%d" % (int(found[b"count"].value) + 1))
            own = tx.get(b"count")
            assert own is not None
            return own.value

        assert await store.transact(add) == b"2"
        counted = await store.get(b"count")
        assert counted is not None
        assert (counted.value, counted.version) == (b"2", 2)


async def test_a_transaction_that_lost_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_encoded() as store:
        await store.commit(Batch(puts={b"k": b"0"}))
        before_commits(monkeypatch, store, batch_of(Batch(puts={b"k": b"5"})))
        seen: list[bytes] = []

        def add(tx: Transaction) -> None:
            record = tx.get(b"k")
            assert record is not None
            seen.append(record.value)
            tx.put(b"k", record.value + b"+")

        await store.transact(add)

        assert seen == [b"0", b"5"]


async def test_expectations_pass_through() -> None:
    async with open_encoded() as store:
        await store.commit(Batch(puts={b"k": b"v"}))

        with pytest.raises(Conflict):
            await store.commit(Batch(expects={b"k": ABSENT}, puts={b"k": b"w"}))


async def test_a_value_above_the_limit_is_refused_also_when_it_would_compress() -> None:
    async with open_encoded(compression=Compression.ZLIB) as store:
        with pytest.raises(InvalidBatch):
            await store.commit(Batch(puts={b"k": bytes(VALUE_BYTES_MAX + 1)}))


async def test_a_value_moved_to_another_key_does_not_open() -> None:
    async with open_encoded() as store:
        await store.commit(Batch(puts={b"a": b"v"}))
        moved = await store.inner.get(b"a")
        assert moved is not None
        await store.inner.commit(Batch(puts={b"b": moved.value}))

        with pytest.raises(DecryptionError, match="record b'b'"):
            await store.get(b"b")


async def test_rotation_keeps_old_values_readable_until_their_key_is_dropped() -> None:
    new, old = b"N" * 32, b"O" * 32
    async with open_memory(StoreOptions()) as inner:
        await EncodedStore(inner, Keyring(old)).commit(Batch(puts={b"k": b"v"}))

        record = await EncodedStore(inner, Keyring(new, [old])).get(b"k")
        assert record is not None
        assert record.value == b"v"
        with pytest.raises(DecryptionError, match=key_id(old).hex()):
            await EncodedStore(inner, Keyring(new)).get(b"k")


async def test_a_snapshot_is_plain_through_the_codec_and_sealed_below_it() -> None:
    async with open_encoded() as store, open_encoded(Keyring(b"X" * 32)) as other:
        await store.commit(Batch(puts={b"a": b"1", b"b": MARKER}))

        async with store.snapshot() as snapshot, store.inner.snapshot() as stored:
            plain = [row async for page in snapshot.records() for row in page]
            sealed = [row async for page in stored.records() for row in page]
            assert snapshot.revision == stored.revision
            assert snapshot.record_count == stored.record_count
            await other.restore(snapshot.revision, snapshot.records())

        assert values([row.record for row in plain]) == [b"1", MARKER]
        assert all(row.record.value.startswith(MAGIC) for row in sealed)
        assert await other.range(b"", None, limit=10) == await store.range(b"", None, limit=10)


async def test_a_snapshot_of_the_inner_store_restores_under_the_same_keys() -> None:
    async with open_encoded() as store, open_memory(StoreOptions()) as target:
        await store.commit(Batch(puts={b"a": MARKER}))

        async with store.inner.snapshot() as stored:
            await target.restore(stored.revision, stored.records())

        assert await EncodedStore(target, KEYRING).get(b"a") == await store.get(b"a")


async def test_the_rest_of_the_port_is_the_inner_store() -> None:
    async with open_encoded() as store:
        await store.commit(Batch(puts={b"a": b"1"}))

        await store.check()

        assert store.url == store.inner.url
        assert store.revision == store.inner.revision == 1
        assert store.problem is None
        assert await store.compact() == await store.inner.compact()


@pytest.mark.parametrize(
    ("table", "key_class"),
    [
        ("lease", "meta"),
        ("doc", "meta"),
        ("stage", "meta"),
        ("msg", "queue-meta"),
        ("ready", "queue-meta"),
        ("dlq", "queue-meta"),
        ("txn", "object"),
        ("sys", "object"),
    ],
)
def test_the_table_of_a_key_decides_its_class(table: str, key_class: str) -> None:
    key = pack((table, "default", "k"))

    assert value_context(key) == f"{key_class}:{key.hex()}"


@pytest.mark.parametrize("key", [b"", b"\x00", b"Adoc", b"doc\x00", bytes(range(200, 220))])
def test_a_key_that_is_no_tuple_is_an_object(key: bytes) -> None:
    assert value_context(key) == f"object:{key.hex()}"


@pytest.mark.parametrize("compression", list(Compression))
async def test_a_marker_never_reaches_the_disk(tmp_path: Path, compression: Compression) -> None:
    async with open_backend(f"disk://{tmp_path}/store", StoreOptions()) as inner:
        store = EncodedStore(inner, KEYRING, compression)
        async with store.blobs.create(context="attachment:x") as writer:
            await writer.write(MARKER * 50_000)
            ref = await writer.finish()
        await store.commit(Batch(puts={b"k": MARKER * 20, b"s": MARKER}, blobs={b"k": (ref.id,)}))
        await store.commit(Batch(puts={b"k": MARKER * 21}))

    assert files_with(MARKER[:12], tmp_path) == []
    assert files_with(b"HFD1", tmp_path) != []
