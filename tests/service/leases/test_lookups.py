"""What is known not to exist is not looked up on the engine: keys with an id that was minted for them, new entries of the index."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.common.clock import SystemClock
from holdfast.storage.disk.rocks import RocksEngine
from holdfast.storage.disk.store import open_disk
from holdfast.storage.keys import unpack
from holdfast.storage.local.layout import RECORD
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Record, Transaction
from tests.unit.leases.test_service import A, Plane, open_plane


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with (
        open_disk(tmp_path / "store", StoreOptions()) as store,
        open_plane(store, SystemClock()) as plane,
    ):
        yield plane


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables of the keys that the engine was asked for."""
    tables: list[str] = []
    get = RocksEngine.get

    def counted(engine: RocksEngine, key: bytes) -> bytes | None:
        if key.startswith(RECORD):
            tables.append(str(unpack(key.removeprefix(RECORD))[0]))
        return get(engine, key)

    monkeypatch.setattr(RocksEngine, "get", counted)
    return tables


async def test_a_known_key_is_acquired_and_released_without_a_look_at_the_engine(
    plane: Plane, looked_up: list[str]
) -> None:
    await plane.release(A, await plane.acquire(A))
    looked_up.clear()

    grant = await plane.acquire(A)
    assert looked_up == []
    await plane.update(A, grant, b'{"name":"new","list":[1,2,3]}')
    assert looked_up == ["stage"]
    looked_up.clear()
    await plane.release(A, grant)

    assert [table for table in looked_up if table != "indexinfo"] == []


async def test_a_key_that_is_said_to_be_fresh_is_stored_as_a_new_one(
    tmp_path: Path, looked_up: list[str]
) -> None:
    async with open_disk(tmp_path / "fresh", StoreOptions()) as store:
        looked_up.clear()
        first = await store.commit(Batch(puts={b"Aa\0": b"1"}, fresh={b"Aa\0"}))
        assert looked_up == []
        second = await store.commit(Batch(puts={b"Aa\0": b"2"}))

        assert await store.get(b"Aa\0") == Record(b"Aa\0", b"2", first, second, 2)
        assert await store.get(b"Aa\0", at_revision=first) == Record(b"Aa\0", b"1", first, first, 1)


async def test_what_a_transaction_has_read_or_written_is_not_fresh_to_it(tmp_path: Path) -> None:
    async with open_disk(tmp_path / "read", StoreOptions()) as store:
        created = await store.commit(Batch(puts={b"Aa\0": b"1"}))

        def overwrite(tx: Transaction) -> None:
            tx.get(b"Aa\0")
            tx.put_fresh(b"Aa\0", b"2")

        await store.transact(overwrite)

        record = await store.get(b"Aa\0")
        assert record is not None
        assert (record.create_revision, record.version) == (created, 2)
