"""The start check: is this store what it is opened as, and do the keys at hand open it?

The record ("sys", "backend-id") tells a store from every other one. It is written once, before anything else: sealed
like any other value if the store is encrypted, as a plain message if not. Its first bytes say which, without a key:
a sealed value begins with `HFD1`, a plain message with the tag of its id. So a store opened the other way round is
refused before a single value is misread or written.
"""

from pathlib import Path

from google.protobuf.message import DecodeError

from holdfast.common.clock import Clock, SystemClock
from holdfast.common.ids import uuid7
from holdfast.storage.codec.descriptor import MAGIC
from holdfast.storage.codec.encoded import ValueCodec
from holdfast.storage.codec.hf1 import Codec
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.errors import Conflict, DecryptionError, EncryptionMismatch, StoreCorrupt
from holdfast.storage.keys import pack
from holdfast.storage.port import ABSENT, Batch, Record, Store
from holdfast.storage.records_pb2 import BackendIdentity

IDENTITY_KEY = pack(("sys", "backend-id"))


async def check_identity(
    store: Store, keyring: Keyring | None, bundle_path: str | Path | None, *, clock: Clock | None = None
) -> BackendIdentity:
    """The identity of `store`, created if the store is empty.

    `store` is the backend itself, not an encoded store over it; without a keyring it is opened unencrypted. Raises
    EncryptionMismatch, or DecryptionError naming the bundle. Two processes may create it at once: one wins.
    """
    record = await store.get(IDENTITY_KEY)
    if record is None:
        await _check_strangers(store, keyring, bundle_path)
        try:
            return await _create(store, keyring, clock or SystemClock())
        except Conflict:
            record = await store.get(IDENTITY_KEY)
            assert record is not None, "an identity is never deleted"
    try:
        return BackendIdentity.FromString(_open(store, record, keyring, bundle_path))
    except DecodeError as error:
        raise StoreCorrupt(f"the identity of the store at {store.url} can't be read") from error


async def _check_strangers(store: Store, keyring: Keyring | None, bundle_path: str | Path | None) -> None:
    """Records without an identity were written by something that skips this check: they must be of the same kind."""
    for record in await store.range(b"", None, limit=1):
        _open(store, record, keyring, bundle_path)


async def _create(store: Store, keyring: Keyring | None, clock: Clock) -> BackendIdentity:
    identity = BackendIdentity(
        id=uuid7(), created_at_ms=int(clock.wall_s() * 1000), encryption=keyring is not None
    )
    value = identity.SerializeToString(deterministic=True)
    if keyring is not None:
        value = ValueCodec(Codec(keyring)).seal(IDENTITY_KEY, value)
    await store.commit(Batch(expects={IDENTITY_KEY: ABSENT}, puts={IDENTITY_KEY: value}))
    return identity


def _open(store: Store, record: Record, keyring: Keyring | None, bundle_path: str | Path | None) -> bytes:
    is_sealed = record.value.startswith(MAGIC)
    if is_sealed != (keyring is not None):
        raise _mismatch(store, is_sealed=is_sealed)
    if keyring is None:
        return record.value
    try:
        return ValueCodec(Codec(keyring)).open(record).value
    except DecryptionError as error:
        raise DecryptionError(
            f"bundle {bundle_path} does not open the store at {store.url}: {error.detail}; "
            "start with the bundle this store was created with"
        ) from error


def _mismatch(store: Store, *, is_sealed: bool) -> EncryptionMismatch:
    if is_sealed:
        return EncryptionMismatch(
            f"the store at {store.url} is encrypted: start with storage encryption on and its server bundle"
        )
    return EncryptionMismatch(
        f"the store at {store.url} was created without encryption: start with storage encryption off, "
        "or export it and import it into a new, encrypted store"
    )
