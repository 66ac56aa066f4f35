"""Verification finds what is wrong and leaves nothing behind; rotation re-wraps every value."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage.codec.encoded import Backend, EncodedStore
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.codec.rewrap import rewrap_values
from holdfast.storage.errors import DecryptionError
from holdfast.storage.maintenance.verify import CheckResult, Verification
from holdfast.storage.opening import open_backend, open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, BlobRef, SnapshotRecord, Store

PLAIN = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=0, postgres_poll_interval_s=0.2)
OLD_KEY, NEW_KEY = os.urandom(32), os.urandom(32)
NAMES = ["Put", "Get", "List", "Delete", "ConcurrentCAS", "Watch", "BlobRoundTrip"]
CRYPTO_NAMES = ["CryptoMetaStateRoundTrip", "CryptoQueueRoundTrip"]
LAST_NAMES = ["ReadEverything", "ReadHistory", "Cleanup"]


def sealed(root_key: bytes, *old_keys: bytes) -> StoreOptions:
    return StoreOptions(keyring=Keyring(root_key, old_keys), journal_segment_bytes=1 << 20, free_bytes_min=0)


async def verify(store: Store, keyring: Keyring | None = None) -> dict[str, str | None]:
    results: list[CheckResult] = [result async for result in Verification(store, keyring=keyring).results()]
    return dict(results)


async def snapshot_of(store: Store) -> list[SnapshotRecord]:
    async with store.snapshot() as snapshot:
        return [item async for page in snapshot.records() for item in page]


async def put_blob(store: Store, key: bytes, content: bytes) -> BlobRef:
    async with store.blobs.create(context="state:k") as writer:
        await writer.write(content)
        ref = await writer.finish()
    await store.commit(Batch(puts={key: b"with a blob"}, blobs={key: (ref.id,)}))
    return ref


def damage(folder: Path, blob_id: str, change: Callable[[bytes], bytes]) -> None:
    path = next(folder.rglob(blob_id))
    path.write_bytes(change(path.read_bytes()))


def remove_file(folder: Path, blob_id: str) -> None:
    next(folder.rglob(blob_id)).unlink()


async def test_an_encrypted_store_passes_the_decrypt_path_too(tmp_path: Path) -> None:
    options = sealed(NEW_KEY)
    async with open_store(f"disk://{tmp_path}", options) as store:
        assert await verify(store, options.keyring) == dict.fromkeys([*NAMES, *CRYPTO_NAMES, *LAST_NAMES])


async def test_nothing_is_left_behind_by_a_run_that_stops_early() -> None:
    async with open_store("mem://", PLAIN) as store:
        before = await snapshot_of(store)
        results = Verification(store).results()

        async for result in results:
            if result.name == "BlobRoundTrip":
                await results.aclose()  # type: ignore[attr-defined]  # It is a generator.

        assert await snapshot_of(store) == before
        assert [info async for info in store.blobs.list()] == []


async def test_a_damaged_blob_is_found(tmp_path: Path) -> None:
    async with open_store(f"disk://{tmp_path}", PLAIN) as store:
        ref = await put_blob(store, b"k", b"x" * 200_000)
        damage(tmp_path, ref.id, lambda raw: raw[:70_000] + b"!" + raw[70_001:])

        results = await verify(store)

    assert ref.id in (results["ReadEverything"] or "")
    assert [name for name, problem in results.items() if problem] == ["ReadEverything"]


async def test_a_blob_cut_at_a_chunks_border_is_found(tmp_path: Path) -> None:
    async with open_store(f"disk://{tmp_path}", PLAIN) as store:
        ref = await put_blob(store, b"k", b"x" * (2 << 16))
        damage(tmp_path, ref.id, lambda raw: raw[: -(1 << 16) - 4])

        results = await verify(store)

    assert "cut short" in (results["ReadEverything"] or "")


async def test_a_missing_blob_is_found(tmp_path: Path) -> None:
    async with open_store(f"disk://{tmp_path}", PLAIN) as store:
        ref = await put_blob(store, b"k", b"x")
        remove_file(tmp_path, ref.id)

        results = await verify(store)

    assert ref.id in (results["ReadEverything"] or "")


async def test_values_that_do_not_decrypt_are_counted(tmp_path: Path) -> None:
    options = sealed(NEW_KEY)
    async with open_store(f"disk://{tmp_path}", options) as store:
        await store.commit(Batch(puts={b"a": b"1", b"b": b"2", b"c": b"3"}))
    async with open_backend(f"disk://{tmp_path}", options) as backend:
        first, second, *_ = await backend.range(b"a", None, limit=2)
        await backend.commit(Batch(puts={first.key: second.value, second.key: first.value}))

    async with open_store(f"disk://{tmp_path}", options) as store:
        results = await verify(store, options.keyring)

    assert (results["ReadEverything"] or "").startswith("2 records")


class TwoWinners:
    """A store whose commits ignore what they expect."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def commit(self, batch: Batch) -> int:
        return await self._store.commit(Batch(puts=batch.puts, deletes=batch.deletes, blobs=batch.blobs))


async def test_a_store_that_lets_two_creators_win_is_found() -> None:
    async with open_store("mem://", PLAIN) as store:
        results = await verify(TwoWinners(store))  # type: ignore[arg-type]  # The rest is delegated.

    assert results["ConcurrentCAS"] == "8 of 8 creators of one key won, not one"


async def test_a_blob_from_before_a_rotation_needs_its_old_root_key_after_a_rewrap() -> None:
    options = sealed(NEW_KEY, OLD_KEY)
    assert options.keyring is not None
    async with open_backend("mem://", options) as backend:
        ref = await put_blob(EncodedStore(backend, Keyring(OLD_KEY)), b"c", b"content")
        await rewrap_values(backend, options.keyring)

        async def content(keyring: Keyring) -> bytes:
            pieces = EncodedStore(backend, keyring).blobs.read(ref, context="state:k")
            return b"".join([piece async for piece in pieces])

        assert await content(options.keyring) == b"content"
        with pytest.raises(DecryptionError, match=Keyring(OLD_KEY).current_id.hex()):
            await content(Keyring(NEW_KEY))


async def fill_under(backend: Backend, keyring: Keyring) -> None:
    store = EncodedStore(backend, keyring)
    await store.commit(Batch(puts={b"a": b"1", b"b": b"2"}))
    await put_blob(store, b"c", b"content")


async def opened(backend: Backend, keyring: Keyring) -> list[bytes]:
    return [record.value for record in await EncodedStore(backend, keyring).range(b"", None, limit=10)]


class Racing:
    """A backend in which another writer changes a key just before the first commit."""

    def __init__(self, store: Store, key: bytes, value: bytes) -> None:
        self._store = store
        self._key = key
        self._value: bytes | None = value

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def commit(self, batch: Batch) -> int:
        if self._value is not None:
            value, self._value = self._value, None
            await self._store.commit(Batch(puts={self._key: value}))
        return await self._store.commit(batch)


async def test_rewrap_loses_no_write_that_comes_in_between() -> None:
    options = sealed(NEW_KEY, OLD_KEY)
    assert options.keyring is not None
    async with open_backend("mem://", options) as backend:
        await fill_under(backend, Keyring(OLD_KEY))
        stored = await backend.get(b"b")
        assert stored is not None
        racing = Racing(backend, b"b", stored.value)

        summary = await rewrap_values(racing, options.keyring)  # type: ignore[arg-type]  # The rest is delegated.

        assert summary.rewrapped == 3
        assert await opened(backend, Keyring(NEW_KEY)) == [b"1", b"2", b"with a blob"]
