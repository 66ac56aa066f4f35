"""Export and import between stores of different kinds, PostgreSQL among them."""

import os
from pathlib import Path

from holdfast.storage.maintenance.transfer import import_lines
from holdfast.storage.opening import open_store
from holdfast.storage.port import VALUE_BYTES_MAX, Batch
from tests.unit.storage.maintenance.test_transfer import (
    BIG,
    PLAIN,
    export,
    put_blob,
    read_blob,
    sealed,
    values_of,
)


async def test_the_largest_value_travels_between_encrypted_stores(postgres_url: str) -> None:
    from_options, to_options = sealed(os.urandom(32)), sealed(os.urandom(32))
    async with open_store("mem://", from_options) as source, open_store(postgres_url, to_options) as target:
        await source.commit(Batch(puts={b"large": os.urandom(VALUE_BYTES_MAX)}))

        await import_lines(target, await export(source, from_options.keyring), keyring=to_options.keyring)

        assert await values_of(target) == await values_of(source)


async def test_blobs_travel_between_backends(postgres_url: str, tmp_path: Path) -> None:
    async with (
        open_store(f"disk://{tmp_path / 'a'}", PLAIN) as source,
        open_store(postgres_url, PLAIN) as target,
    ):
        refs = [await put_blob(source, b"k%d" % n, content) for n, content in enumerate((BIG, b"x", b""))]

        await import_lines(target, await export(source))
        await target.blobs.sweep(grace_s=-60)

        assert [await read_blob(target, ref) for ref in refs] == [BIG, b"x", b""]
