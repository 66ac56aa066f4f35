"""Export and import: a store as lines of JSON, plain, to read, to edit, and to carry into any other store.

line 1   {"holdfast_export": 1, "revision": 7, "blobs": "plain" | "sealed", "root_keys": [id, …]}
record   {"key": [...] | "key_hex": "…", "value": base64, "create_revision", "mod_revision", "version", "blobs": [id, …]}
blob     {"blob": id, "offset": 0, "data": base64}, then {"blob": id, "offset": size, "last": true}
end      {"end": {"records": 3, "blobs": 1}}

A blob comes before the first record that refers to it. Values are plaintext. A blob is carried as it is stored,
because the key to it lies in the record of the layer that wrote it: an export with sealed blobs goes into a store
that has the same root keys, one with plain blobs into a store without encryption, one without blobs anywhere.

Revisions are told, not kept: an import commits like any other writer. The identity of a store is its own and stays.
What is derived from other records, such as the index, is not carried: the server makes it again after an import.
"""

import base64
import binascii
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from holdfast.storage.blob import checked_id
from holdfast.storage.codec.encoded import EncodedStore
from holdfast.storage.codec.identity import IDENTITY_KEY
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.errors import Conflict, InvalidArchive, StorageError
from holdfast.storage.keys import pack
from holdfast.storage.maintenance.backup import stored_blob
from holdfast.storage.maintenance.key_json import key_from_json, key_to_json
from holdfast.storage.maintenance.progress import Advance, silent
from holdfast.storage.port import ABSENT, Batch, BlobStore, BlobWriter, SnapshotRecord, Store

FORMAT_VERSION = 1
LINE_BYTES_MAX = 4 << 20  # A value of 1 MiB, or a piece of a blob, takes a third more as base64.
BATCH_RECORDS = 500
BATCH_BYTES = 4 << 20

# Made from other records: an export leaves them out, and after an import they are made again.
_DERIVED_TABLES: Final = tuple(pack((name,)) for name in ("index", "indexinfo", "indexprogress"))

# Says how derived records were made. Where it is missing, their owner makes them anew.
_DERIVATION_KEY: Final = pack(("indexinfo", "format"))


@dataclass(slots=True)
class TransferSummary:
    """What went through. `unchanged` counts records that the store had already, exactly so."""

    revision: int = 0
    records: int = 0
    blobs: int = 0
    unchanged: int = 0


async def export_lines(
    store: Store, *, keyring: Keyring | None = None, advance: Advance = silent
) -> AsyncIterator[str]:
    """Every line but its line feed. `store` is open for services, with the keyring it was opened with."""
    async with store.snapshot() as snapshot:
        yield _line(
            {
                "holdfast_export": FORMAT_VERSION,
                "revision": snapshot.revision,
                "blobs": "plain" if keyring is None else "sealed",
                "root_keys": [] if keyring is None else sorted(name.hex() for name in keyring.key_ids),
            }
        )
        records = 0
        exported: set[str] = set()
        async for page in snapshot.records():
            for item in page:
                if item.record.key == IDENTITY_KEY or _is_derived(item.record.key):
                    continue
                for blob_id in item.blobs:
                    if blob_id not in exported:
                        exported.add(blob_id)
                        async for line in _blob_lines(_stored(store), blob_id, advance):
                            yield line
                yield _record_line(item)
                records += 1
                advance(1, len(item.record.value))
        yield _line({"end": {"records": records, "blobs": len(exported)}})


async def import_lines(
    store: Store,
    lines: Iterable[bytes],
    *,
    keyring: Keyring | None = None,
    overwrite: bool = False,
    advance: Advance = silent,
) -> TransferSummary:
    """Commit what the lines hold, in batches. What was committed before an error stays; running it again goes on.

    Raises Conflict for a key that exists with another value, unless `overwrite`.
    """
    importing = _Importing(store, keyring, overwrite=overwrite, advance=advance)
    try:
        for line in lines:
            importing.line_number += 1
            await importing.add(_members(line))
        await importing.finish()
    except (ValueError, binascii.Error, RecursionError) as error:
        raise InvalidArchive(f"line {importing.line_number} of the export can't be read: {error}") from error
    finally:
        await importing.close()
    return importing.summary


def _stored(store: Store) -> BlobStore:
    return store.inner.blobs if isinstance(store, EncodedStore) else store.blobs


def _line(members: dict[str, object]) -> str:
    return json.dumps(members, ensure_ascii=True, separators=(",", ":"))


def _record_line(item: SnapshotRecord) -> str:
    record = item.record
    members: dict[str, object] = {
        **key_to_json(record.key),
        "value": base64.b64encode(record.value).decode(),
        "create_revision": record.create_revision,
        "mod_revision": record.mod_revision,
        "version": record.version,
    }
    if item.blobs:
        members["blobs"] = list(item.blobs)
    return _line(members)


async def _blob_lines(blobs: BlobStore, blob_id: str, advance: Advance) -> AsyncIterator[str]:
    offset = 0
    async for data in stored_blob(blobs, blob_id):
        yield _line({"blob": blob_id, "offset": offset, "data": base64.b64encode(data).decode()})
        offset += len(data)
        advance(0, len(data))
    yield _line({"blob": blob_id, "offset": offset, "last": True})


def _members(line: bytes) -> dict[str, object]:
    if len(line) > LINE_BYTES_MAX:
        raise InvalidArchive(f"a line of the export is longer than {LINE_BYTES_MAX} bytes")
    members = json.loads(line)
    if not isinstance(members, dict):
        raise ValueError("no JSON object")
    return cast("dict[str, object]", members)


class _Pending(NamedTuple):
    value: bytes
    blobs: tuple[str, ...]


@dataclass(slots=True)
class _OpenBlob:
    """A blob on its way in; without a writer it is in the store already, and its pieces pass by."""

    id: str
    writer: BlobWriter | None
    size_bytes: int = 0


@dataclass(slots=True)
class _Importing:
    """The lines one after another: header, blobs and records, end."""

    store: Store
    keyring: Keyring | None
    overwrite: bool = field(kw_only=True)
    advance: Advance = field(kw_only=True)
    summary: TransferSummary = field(default_factory=TransferSummary)
    line_number: int = 0
    _header: dict[str, object] | None = None
    _has_ended: bool = False
    _records_seen: int = 0
    _blob: _OpenBlob | None = None
    _pending: dict[bytes, _Pending] = field(default_factory=dict[bytes, _Pending])
    _pending_bytes: int = 0

    async def add(self, members: dict[str, object]) -> None:
        if self._has_ended:
            raise InvalidArchive("the export goes on after its end")
        if self._header is None:
            self._begin(members)
        elif "blob" in members:
            await self._add_blob_piece(members)
        elif self._blob is not None:
            raise InvalidArchive(f"blob {self._blob.id} has no end")
        elif "end" in members:
            await self._end(members["end"])
        else:
            await self._add_record(members)

    async def finish(self) -> None:
        if not self._has_ended:
            await self._commit()
            raise InvalidArchive(
                f"the export is cut short after {self._records_seen} records, which are in the store now; "
                "import the whole file to complete it"
            )

    async def close(self) -> None:
        if self._blob is not None and self._blob.writer is not None:
            await self._blob.writer.__aexit__(None, None, None)

    def _begin(self, members: dict[str, object]) -> None:
        if members.get("holdfast_export") != FORMAT_VERSION:
            raise InvalidArchive(f"no export of a holdfast store in format {FORMAT_VERSION}")
        self._header = members

    async def _end(self, counts: object) -> None:
        await self._commit()
        if counts != {"records": self._records_seen, "blobs": self.summary.blobs}:
            raise InvalidArchive("the export does not hold as many records or blobs as its end says")
        self.summary.revision = self.store.revision
        self._has_ended = True

    async def _add_record(self, members: dict[str, object]) -> None:
        key = key_from_json(members)
        if key == IDENTITY_KEY:
            raise InvalidArchive("the export holds the identity of a store, which is never imported")
        value = base64.b64decode(_text(members, "value"), validate=True)
        blobs = members.get("blobs", [])
        if not isinstance(blobs, list):
            raise ValueError("blobs is no array")
        blob_ids = tuple(checked_id(str(blob_id)) for blob_id in cast("list[object]", blobs))
        self._records_seen += 1
        if _is_derived(key):
            return
        self._pending[key] = _Pending(value, blob_ids)
        self._pending_bytes += len(key) + len(value)
        if len(self._pending) == BATCH_RECORDS or self._pending_bytes >= BATCH_BYTES:
            await self._commit()

    async def _commit(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, {}, 0
        if not pending:
            return
        found = await self.store.get_many(list(pending))
        batch = Batch()
        for key, (value, blobs) in pending.items():
            existing = found.get(key)
            if existing is not None and existing.value == value:
                self.summary.unchanged += 1
                continue
            if existing is not None and not self.overwrite:
                raise Conflict(key, detail="exists with another value; use --overwrite to replace it")
            batch.expects[key] = ABSENT if existing is None else existing.mod_revision
            batch.puts[key] = value
            if blobs:
                batch.blobs[key] = blobs
        if batch.puts:
            batch.deletes.add(_DERIVATION_KEY)
            await self.store.commit(batch)
        self.summary.records += len(batch.puts)
        self.advance(len(pending), 0)

    async def _add_blob_piece(self, members: dict[str, object]) -> None:
        blob_id = checked_id(_text(members, "blob"))
        if self._blob is None:
            self._blob = await self._begin_blob(blob_id)
        blob = self._blob
        if (blob.id, blob.size_bytes) != (blob_id, members.get("offset")):
            raise InvalidArchive(f"the pieces of blob {blob_id} are mixed up")
        data = base64.b64decode(_text(members, "data"), validate=True) if "data" in members else b""
        if data and blob.writer is not None:
            await blob.writer.write(data)
        blob.size_bytes += len(data)
        self.advance(0, len(data))
        if members.get("last") is True:
            if blob.writer is not None:
                await blob.writer.finish()
            self._blob = None
            self.summary.blobs += 1

    async def _begin_blob(self, blob_id: str) -> _OpenBlob:
        self._check_sealing()
        blobs = _stored(self.store)
        if await blobs.info(blob_id) is not None:
            return _OpenBlob(blob_id, None)
        await blobs.remove(blob_id)  # An unfinished one, if any.
        return _OpenBlob(blob_id, await blobs.create(blob_id=blob_id).__aenter__())

    def _check_sealing(self) -> None:
        """Blobs come as they were stored: this store must read them the same way."""
        assert self._header is not None, "the header comes first"
        if self._header.get("blobs") == "plain":
            if self.keyring is not None:
                raise _wrong_sealing("plain blobs, but this store is encrypted")
            return
        if self.keyring is None:
            raise _wrong_sealing("encrypted blobs, but this store is not encrypted")
        needed = self._header.get("root_keys")
        held = {name.hex() for name in self.keyring.key_ids}
        if not isinstance(needed, list) or not held.issuperset(map(str, cast("list[object]", needed))):
            raise _wrong_sealing(
                "blobs encrypted under root keys that the bundle of this store does not hold"
            )


def _wrong_sealing(problem: str) -> StorageError:
    return InvalidArchive(
        f"the export has {problem}; import it into a store of the kind it came from, or use backup and restore"
    )


def _text(members: dict[str, object], name: str) -> str:
    text = members.get(name)
    if not isinstance(text, str):
        raise ValueError(f"{name} is missing or no text")
    return text


def _is_derived(key: bytes) -> bool:
    return key.startswith(_DERIVED_TABLES)
