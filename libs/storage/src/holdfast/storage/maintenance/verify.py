"""Verification of a store: every operation tried for real, every record, blob and kept change read; nothing is left behind.

Samples live below ("sys", "verify", <run>), where no layer looks: servers may go on working meanwhile.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from holdfast.common.ids import uuid7
from holdfast.storage.codec.descriptor import MAGIC
from holdfast.storage.codec.encoded import EncodedStore, ValueCodec
from holdfast.storage.codec.hf1 import Codec
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.errors import BlobNotFound, Conflict, StorageError, StoreCorrupt
from holdfast.storage.keys import next_key, pack, prefix_range
from holdfast.storage.maintenance.backup import stored_blob
from holdfast.storage.maintenance.history_check import HistoryCheck
from holdfast.storage.maintenance.progress import Advance, silent
from holdfast.storage.port import ABSENT, Batch, BlobRef, Store

RACERS = 8
WATCH_TIMEOUT_S = 10.0
BLOB_BYTES = 200_000  # Several chunks of every backend but PostgreSQL's 256 KiB ones.


class CheckResult(NamedTuple):
    """One check; `problem` is None if all is well."""

    name: str
    problem: str | None


class Verification:
    """All checks of one store, in their order. `store` is open for services, with the keyring it was opened with."""

    def __init__(self, store: Store, *, keyring: Keyring | None = None, advance: Advance = silent) -> None:
        self._store = store
        self._keyring = keyring
        self._advance = advance
        self._run = uuid7()
        self._keys: set[bytes] = set()
        self._blob_ids: list[str] = []

    async def results(self) -> AsyncIterator[CheckResult]:
        """Each check as it ends. Samples are removed at the end, also when the caller stops early."""
        try:
            for name, check in self._checks().items():
                yield await _result(name, check)
        finally:
            cleanup = await _result("Cleanup", self._clean_up)
        yield cleanup

    def _checks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        checks: dict[str, Callable[[], Awaitable[None]]] = {
            "Put": self._put,
            "Get": self._get,
            "List": self._list,
            "Delete": self._delete,
            "ConcurrentCAS": self._race,
            "Watch": self._watch,
            "BlobRoundTrip": self._blob,
        }
        if self._keyring is not None:
            codec = Codec(self._keyring)
            checks["CryptoMetaStateRoundTrip"] = lambda: self._sealed_pair(codec, "meta", "state")
            checks["CryptoQueueRoundTrip"] = lambda: self._sealed_pair(codec, "queue-meta", "queue-payload")
        checks["ReadEverything"] = self._read_everything
        checks["ReadHistory"] = self._read_history
        return checks

    def _key(self, name: str) -> bytes:
        key = pack(("sys", "verify", self._run, name))
        self._keys.add(key)
        return key

    async def _put(self) -> None:
        for name in ("a", "b", "c"):
            key = self._key(name)
            await self._store.commit(Batch(expects={key: ABSENT}, puts={key: name.encode()}))

    async def _get(self) -> None:
        record = await self._store.get(self._key("b"))
        _expect(record is not None and record.value == b"b", "a record that was put is not read back")
        _expect(record is not None and record.version == 1, "a new record has not version 1")

    async def _list(self) -> None:
        start, end = prefix_range(("sys", "verify", self._run))
        records = await self._store.range(start, end, limit=10)
        _expect(
            [record.value for record in records] == [b"a", b"b", b"c"], "a range is not complete or in order"
        )

    async def _delete(self) -> None:
        key = self._key("c")
        await self._store.commit(Batch(deletes={key}))
        _expect(await self._store.get(key) is None, "a deleted record is still there")

    async def _race(self) -> None:
        """Several create the same key at once: one may."""
        key = self._key("race")

        async def create(racer: int) -> bool:
            try:
                await self._store.commit(Batch(expects={key: ABSENT}, puts={key: b"%d" % racer}))
            except Conflict:
                return False
            return True

        won = await asyncio.gather(*(create(racer) for racer in range(RACERS)))
        _expect(sum(won) == 1, f"{sum(won)} of {RACERS} creators of one key won, not one")
        record = await self._store.get(key)
        _expect(
            record is not None and record.value == b"%d" % won.index(True), "the winner's value is not stored"
        )

    async def _watch(self) -> None:
        key = self._key("watched")
        async with self._store.watch(key, next_key(key)) as watch:
            await self._store.commit(Batch(puts={key: b"seen"}))
            try:
                async with asyncio.timeout(WATCH_TIMEOUT_S):
                    events = await anext(watch)
            except TimeoutError:
                raise StorageError(f"a watch showed nothing for {WATCH_TIMEOUT_S:g} s") from None
        record = events[0].record
        _expect(
            record is not None and record.value == b"seen", "a watch shows something else than was written"
        )

    async def _blob(self) -> None:
        await self._blob_round_trip("object:verify", os.urandom(BLOB_BYTES), self._key("blob"), b"a blob")

    async def _sealed_pair(self, codec: Codec, value_class: str, blob_class: str) -> None:
        """A value and its blob under the keys of these classes: read back, and unreadable where they are stored."""
        marker = os.urandom(16).hex().encode()
        context = f"{value_class}:verify/{self._run}"
        key = self._key(value_class)
        sealed = codec.seal_inline(marker, context)
        ref = await self._blob_round_trip(f"{blob_class}:verify/{self._run}", marker * 100, key, sealed)
        record = await self._store.get(key)
        opened = (
            b"" if record is None else codec.open_inline(record.value, context, size_bytes_max=len(marker))
        )
        _expect(opened == marker, "a sealed value is not read back as it was written")
        backend = _backend(self._store)
        stored = await backend.get(key)
        _expect(stored is not None and stored.value.startswith(MAGIC), "a value is stored unencrypted")
        raw = b"".join([piece async for piece in stored_blob(backend.blobs, ref.id)])
        _expect(marker not in raw, "a blob is stored unencrypted")

    async def _blob_round_trip(self, context: str, content: bytes, key: bytes, value: bytes) -> BlobRef:
        """A blob and the record that refers to it."""
        async with self._store.blobs.create(context=context) as writer:
            await writer.write(content)
            ref = await writer.finish()
        self._blob_ids.append(ref.id)
        await self._store.commit(Batch(puts={key: value}, blobs={key: (ref.id,)}))
        pieces = [piece async for piece in self._store.blobs.read(ref, context=context)]
        _expect(b"".join(pieces) == content, "a blob is not read back as it was written")
        part = [piece async for piece in self._store.blobs.read(ref, context=context, start=100, end=300)]
        _expect(b"".join(part) == content[100:300], "a part of a blob is not read back as it was written")
        return ref

    async def _read_everything(self) -> None:
        """Checksums on the way out of the backend, decryption after it; blobs as they are stored."""
        backend = _backend(self._store)
        values = None if self._keyring is None else ValueCodec(Codec(self._keyring))
        read: set[str] = set()
        broken: list[StorageError] = []
        async with backend.snapshot() as snapshot:
            async for page in snapshot.records():
                for record, blob_ids in page:
                    try:
                        if values is not None:
                            values.open(record)
                        for blob_id in set(blob_ids) - read:
                            read.add(blob_id)
                            await self._read_blob(backend, blob_id)
                    except StorageError as error:
                        broken.append(error)
                    self._advance(1, len(record.value))
                await asyncio.sleep(0)
        await self._read_unreferenced_blobs(backend, read, broken)
        if broken:
            raise StoreCorrupt(
                f"{len(broken)} records or their blobs can't be read, the first: {broken[0].detail}"
            )

    async def _read_unreferenced_blobs(
        self, backend: Store, read: set[str], broken: list[StorageError]
    ) -> None:
        """They may be on their way into a record, or wait for the sweep, which may come while they are read."""
        async for info in backend.blobs.list():
            if info.id in read:
                continue
            try:
                await self._read_blob(backend, info.id)
            except BlobNotFound:
                continue
            except StorageError as error:
                broken.append(error)

    async def _read_history(self) -> None:
        async with _backend(self._store).snapshot() as snapshot:
            await HistoryCheck(snapshot, self._keyring, self._advance).run()

    async def _read_blob(self, backend: Store, blob_id: str) -> None:
        async for piece in stored_blob(backend.blobs, blob_id):
            self._advance(0, len(piece))

    async def _clean_up(self) -> None:
        if self._keys:
            await self._store.commit(Batch(deletes=self._keys))
        left = [blob_id for blob_id in self._blob_ids if not await self._store.blobs.remove(blob_id)]
        _expect(not left, f"blobs {left} can't be removed; they are swept later")
        start, end = prefix_range(("sys", "verify", self._run))
        _expect(not await self._store.range(start, end, limit=1), "samples can't be removed")


def _backend(store: Store) -> Store:
    return store.inner if isinstance(store, EncodedStore) else store


async def _result(name: str, check: Callable[[], Awaitable[None]]) -> CheckResult:
    try:
        await check()
    except StorageError as error:
        return CheckResult(name, error.detail)
    return CheckResult(name, None)


def _expect(is_right: bool, problem: str) -> None:
    if not is_right:
        raise StorageError(problem)
