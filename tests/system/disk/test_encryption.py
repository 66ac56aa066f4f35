"""With encryption on, what a record or a blob says stands in no stored byte."""

import asyncio
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from holdfast.storage.codec.compression import Compression
from holdfast.storage.errors import EncryptionMismatch
from holdfast.storage.keys import pack
from holdfast.storage.opening import open_store
from holdfast.storage.port import Batch
from tests.conformance.backends import KEYRING, SMALL

MARKER = b"the-marker-that-must-not-be-found"
KEY = pack(("doc", "default", "orders/1"))
SEALED = replace(SMALL, keyring=KEYRING)


async def leave_traces(url: str, compression: Compression = Compression.NONE) -> None:
    """Put, overwrite, delete and stream the marker, so that records, history, journal and blobs all held it."""
    async with open_store(url, replace(SEALED, compression=compression)) as store:
        for number in range(3):
            await store.commit(Batch(puts={KEY: MARKER * 10 + b"%d" % number, KEY + b"\x00": MARKER * 100}))
        await store.commit(Batch(deletes={KEY + b"\x00"}))
        async with store.blobs.create(context="state:default/orders/1") as writer:
            await writer.write(MARKER * 10_000)
            blob = await writer.finish()
        await store.commit(Batch(puts={KEY: MARKER}, blobs={KEY: (blob.id,)}))
        record = await store.get(KEY)
        assert record is not None
        assert record.value == MARKER


@pytest.mark.parametrize("compression", list(Compression))
async def test_no_file_of_a_disk_store_holds_the_marker(tmp_path: Path, compression: Compression) -> None:
    await leave_traces(f"disk://{tmp_path}", compression)

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if MARKER[:12] in path.read_bytes()] == []


async def test_no_row_of_a_postgres_store_holds_the_marker(postgres_url: str) -> None:
    await leave_traces(postgres_url)

    base, _, schema = postgres_url.rpartition("schema=")
    connection = await asyncpg.connect(base.rstrip("?&"))
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    rows = [
        row["line"]
        for table in tables
        for row in await connection.fetch(f'SELECT t::text AS line FROM "{schema}"."{table["tablename"]}" t')
    ]
    await connection.close()

    assert len(rows) > 8
    assert [line for line in rows if MARKER[:12].hex() in line or MARKER[:12].decode() in line] == []


async def test_an_encrypted_store_is_not_opened_without_its_key_nor_a_plain_one_with_it(
    tmp_path: Path,
) -> None:
    await leave_traces(f"disk://{tmp_path}/sealed")
    async with open_store(f"disk://{tmp_path}/plain", SMALL) as store:
        await store.commit(Batch(puts={KEY: b"plain"}))

    for name, options in (("sealed", SMALL), ("plain", SEALED)):
        with pytest.raises(EncryptionMismatch):
            async with asyncio.timeout(20), open_store(f"disk://{tmp_path}/{name}", options):
                raise AssertionError("opened")
