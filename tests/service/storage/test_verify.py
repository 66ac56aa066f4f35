"""Verification and rotation on every backend."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.storage.codec.descriptor import root_id_of
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.codec.rewrap import rewrap_values
from holdfast.storage.errors import DecryptionError
from holdfast.storage.opening import open_backend, open_store
from holdfast.storage.port import Store
from tests.unit.storage.maintenance.test_verify import (
    LAST_NAMES,
    NAMES,
    NEW_KEY,
    OLD_KEY,
    PLAIN,
    fill_under,
    opened,
    put_blob,
    sealed,
    snapshot_of,
    verify,
)


@pytest.fixture(params=["mem", "disk", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "mem://" if request.param == "mem" else f"disk://{tmp_path / 'store'}"


@pytest.fixture
async def plain(url: str) -> AsyncIterator[Store]:
    async with open_store(url, PLAIN) as store:
        yield store


async def test_a_good_store_passes_every_check(plain: Store) -> None:
    assert await verify(plain) == dict.fromkeys([*NAMES, *LAST_NAMES])


async def test_nothing_is_left_behind(plain: Store) -> None:
    ref = await put_blob(plain, b"mine", b"content")
    before = await snapshot_of(plain)

    await verify(plain)

    assert await snapshot_of(plain) == before
    assert [info.id async for info in plain.blobs.list()] == [ref.id]


async def test_rewrap_makes_the_old_root_key_unnecessary(url: str) -> None:
    options = sealed(NEW_KEY, OLD_KEY)
    keyring = options.keyring
    assert keyring is not None
    async with open_backend(url, options) as backend:
        await fill_under(backend, Keyring(OLD_KEY))
        before = await snapshot_of(backend)

        summary = await rewrap_values(backend, keyring)

        after = await snapshot_of(backend)
        assert summary == (3, 0)
        assert {root_id_of(item.record.value) for item in after} == {keyring.current_id}
        assert [item.blobs for item in after] == [item.blobs for item in before]
        assert await rewrap_values(backend, keyring) == (0, 3)
        assert await opened(backend, Keyring(NEW_KEY)) == [b"1", b"2", b"with a blob"]
        with pytest.raises(DecryptionError):
            await opened(backend, Keyring(OLD_KEY))
