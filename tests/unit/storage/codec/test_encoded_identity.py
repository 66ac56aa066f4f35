"""A store says what it is before anything in it is misread."""

from collections.abc import AsyncIterator
from typing import cast

import pytest

from holdfast.common.clock import FakeClock
from holdfast.storage.codec.descriptor import MAGIC
from holdfast.storage.codec.encoded import EncodedStore
from holdfast.storage.codec.identity import IDENTITY_KEY, check_identity
from holdfast.storage.codec.keyring import Keyring, key_id
from holdfast.storage.errors import DecryptionError, EncryptionMismatch, StoreCorrupt
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Record, Store

KEY, OTHER_KEY = b"R" * 32, b"O" * 32
KEYRING = Keyring(KEY)


@pytest.fixture
async def store() -> AsyncIterator[LocalStore]:
    async with open_memory(StoreOptions()) as opened:
        yield opened


@pytest.mark.parametrize("keyring", [None, KEYRING])
async def test_an_empty_store_gets_an_identity_and_keeps_it(
    store: LocalStore, keyring: Keyring | None
) -> None:
    created = await check_identity(store, keyring, "server.pem", clock=FakeClock(wall_s=5.0))

    again = await check_identity(store, keyring, "server.pem")

    assert again == created
    assert created.created_at_ms == 5000
    assert created.encryption == (keyring is not None)
    record = await store.get(IDENTITY_KEY)
    assert record is not None
    assert record.value.startswith(MAGIC) == (keyring is not None)


async def test_the_identity_of_an_encrypted_store_reads_through_it(store: LocalStore) -> None:
    identity = await check_identity(store, KEYRING, "server.pem")

    record = await EncodedStore(store, KEYRING).get(IDENTITY_KEY)

    assert record is not None
    assert record.value == identity.SerializeToString(deterministic=True)


async def test_the_wrong_bundle_is_named(store: LocalStore) -> None:
    await check_identity(store, KEYRING, "right.pem")

    with pytest.raises(DecryptionError, match=rf"bundle wrong\.pem .*mem://.*{key_id(KEY).hex()}"):
        await check_identity(store, Keyring(OTHER_KEY), "wrong.pem")


async def test_a_rotated_bundle_opens_the_store(store: LocalStore) -> None:
    created = await check_identity(store, KEYRING, "server.pem")

    assert await check_identity(store, Keyring(OTHER_KEY, [KEY]), "server.pem") == created


async def test_an_encrypted_store_without_keys_is_refused(store: LocalStore) -> None:
    await check_identity(store, KEYRING, "server.pem")

    with pytest.raises(EncryptionMismatch, match=r"mem:// is encrypted"):
        await check_identity(store, None, None)


async def test_a_plain_store_with_keys_is_refused(store: LocalStore) -> None:
    await check_identity(store, None, None)

    with pytest.raises(EncryptionMismatch, match="without encryption"):
        await check_identity(store, KEYRING, "server.pem")


async def test_records_without_an_identity_must_be_of_the_same_kind(store: LocalStore) -> None:
    await store.commit(Batch(puts={b"k": b"plain"}))

    with pytest.raises(EncryptionMismatch, match="without encryption"):
        await check_identity(store, KEYRING, "server.pem")
    assert not (await check_identity(store, None, None)).encryption


async def test_sealed_records_without_an_identity_need_their_key(store: LocalStore) -> None:
    await EncodedStore(store, KEYRING).commit(Batch(puts={b"k": b"sealed"}))

    with pytest.raises(EncryptionMismatch, match="is encrypted"):
        await check_identity(store, None, None)
    with pytest.raises(DecryptionError, match=r"wrong\.pem"):
        await check_identity(store, Keyring(OTHER_KEY), "wrong.pem")
    assert (await check_identity(store, KEYRING, "server.pem")).encryption


async def test_of_two_that_create_it_one_wins_and_the_other_reads_it(store: LocalStore) -> None:
    class Late:
        """Sees the store as it was before the other one came."""

        def __init__(self) -> None:
            self.reads = 0

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def get(self, key: bytes) -> Record | None:
            self.reads += 1
            return None if self.reads == 1 else await store.get(key)

    first = await check_identity(store, KEYRING, "server.pem")

    assert await check_identity(cast("Store", Late()), KEYRING, "server.pem") == first


async def test_an_identity_that_is_no_message_is_corrupt(store: LocalStore) -> None:
    await store.commit(Batch(puts={IDENTITY_KEY: b"\xff\xff"}))

    with pytest.raises(StoreCorrupt, match="mem://"):
        await check_identity(store, None, None)
