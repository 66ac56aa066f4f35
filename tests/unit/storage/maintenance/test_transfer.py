"""Export and import: JSON lines that carry a store into any other, and refuse what does not fit."""

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.ids import uuid7
from holdfast.storage.codec.identity import IDENTITY_KEY
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.errors import Conflict, InvalidArchive, InvalidBatch
from holdfast.storage.keys import Element, pack
from holdfast.storage.maintenance.key_json import key_from_json, key_to_json
from holdfast.storage.maintenance.transfer import LINE_BYTES_MAX, TransferSummary, export_lines, import_lines
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, BlobRef, Store

PLAIN = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=0)
BIG = bytes(range(256)) * 10_000


def sealed(root_key: bytes, *old_keys: bytes) -> StoreOptions:
    return StoreOptions(keyring=Keyring(root_key, old_keys), journal_segment_bytes=1 << 20, free_bytes_min=0)


async def export(store: Store, keyring: Keyring | None = None) -> list[bytes]:
    return [line.encode() + b"\n" async for line in export_lines(store, keyring=keyring)]


async def values_of(store: Store) -> dict[bytes, bytes]:
    records = await store.range(b"", None, limit=2000)
    return {record.key: record.value for record in records if record.key != IDENTITY_KEY}


async def put_blob(store: Store, key: bytes, content: bytes) -> BlobRef:
    async with store.blobs.create(context="state:k") as writer:
        await writer.write(content)
        ref = await writer.finish()
    await store.commit(Batch(puts={key: b"with a blob"}, blobs={key: (ref.id,)}))
    return ref


async def fill(store: Store, count: int = 1200) -> None:
    puts = {pack(("doc", "default", number)): b"value %d" % number for number in range(count)}
    await store.commit(Batch(puts={**puts, b"\xff no tuple": b"\x00\xff"}))


async def read_blob(store: Store, ref: BlobRef) -> bytes:
    return b"".join([piece async for piece in store.blobs.read(ref, context="state:k")])


@pytest.mark.parametrize("is_source_sealed", [True, False])
@pytest.mark.parametrize("is_target_sealed", [True, False])
async def test_plain_and_encrypted_stores_exchange_records(
    is_source_sealed: bool, is_target_sealed: bool, tmp_path: Path
) -> None:
    from_options = sealed(os.urandom(32)) if is_source_sealed else PLAIN
    to_options = sealed(os.urandom(32)) if is_target_sealed else PLAIN
    async with (
        open_store(f"disk://{tmp_path / 'a'}", from_options) as source,
        open_store(f"disk://{tmp_path / 'b'}", to_options) as target,
    ):
        await fill(source)

        lines = await export(source, from_options.keyring)
        summary = await import_lines(target, lines, keyring=to_options.keyring)

        assert await values_of(target) == await values_of(source)
        assert summary == TransferSummary(target.revision, records=1201)


async def test_sealed_blobs_travel_to_a_store_with_the_same_root_keys() -> None:
    old, new = os.urandom(32), os.urandom(32)
    from_options, to_options = sealed(old), sealed(new, old)
    async with open_store("mem://", from_options) as source, open_store("mem://", to_options) as target:
        ref = await put_blob(source, b"k", BIG)

        await import_lines(target, await export(source, from_options.keyring), keyring=to_options.keyring)

        assert await read_blob(target, ref) == BIG


@pytest.mark.parametrize(
    ("from_options", "to_options", "problem"),
    [
        (PLAIN, sealed(os.urandom(32)), "plain blobs"),
        (sealed(os.urandom(32)), PLAIN, "encrypted blobs"),
        (sealed(os.urandom(32)), sealed(os.urandom(32)), "does not hold"),
    ],
)
async def test_blobs_that_could_not_be_read_are_refused(
    from_options: StoreOptions, to_options: StoreOptions, problem: str
) -> None:
    async with open_store("mem://", from_options) as source, open_store("mem://", to_options) as target:
        await put_blob(source, b"k", b"content")

        with pytest.raises(InvalidArchive, match=problem):
            await import_lines(target, await export(source, from_options.keyring), keyring=to_options.keyring)

        assert await values_of(target) == {}


async def test_an_import_can_be_run_again() -> None:
    async with open_store("mem://", PLAIN) as source, open_store("mem://", PLAIN) as target:
        await fill(source, 10)
        await put_blob(source, b"k", b"content")
        lines = await export(source)
        await import_lines(target, lines)

        again = await import_lines(target, lines)

        assert (again.records, again.unchanged) == (0, 12)


async def test_an_existing_other_value_is_not_overwritten() -> None:
    async with open_store("mem://", PLAIN) as source, open_store("mem://", PLAIN) as target:
        await source.commit(Batch(puts={b"a": b"theirs", b"b": b"theirs"}))
        await target.commit(Batch(puts={b"a": b"mine"}))

        with pytest.raises(Conflict, match="--overwrite"):
            await import_lines(target, await export(source))

        assert await values_of(target) == {b"a": b"mine"}


async def test_an_existing_other_value_is_overwritten_when_asked() -> None:
    async with open_store("mem://", PLAIN) as source, open_store("mem://", PLAIN) as target:
        await source.commit(Batch(puts={b"a": b"theirs"}))
        await target.commit(Batch(puts={b"a": b"mine", b"other": b"mine"}))

        await import_lines(target, await export(source), overwrite=True)

        assert await values_of(target) == {b"a": b"theirs", b"other": b"mine"}


async def test_the_identity_of_a_store_stays_its_own() -> None:
    async with open_store("mem://", PLAIN) as source, open_store("mem://", PLAIN) as target:
        before = await target.get(IDENTITY_KEY)

        lines = await export(source)
        await import_lines(target, lines)

        assert await target.get(IDENTITY_KEY) == before
        assert len(lines) == 2


HEADER = b'{"holdfast_export":1,"revision":1,"blobs":"plain","root_keys":[]}'
RECORD = b'{"key":["doc","a"],"value":"dg=="}'
BLOB = uuid7().encode()


@pytest.mark.parametrize(
    "lines",
    [
        [b"not json"],
        [b"[]"],
        [b'{"holdfast_export":2}'],
        [RECORD],
        [HEADER, b"{}"],
        [HEADER, b"[" * 100_000],
        [HEADER, b'{"key":"doc","value":"dg=="}'],
        [HEADER, b'{"key":[{"what":"x"}],"value":"dg=="}'],
        [HEADER, b'{"key":[{"bytes":1}],"value":"dg=="}'],
        [HEADER, b'{"key":[{"bytes":"zz"}],"value":"dg=="}'],
        [HEADER, b'{"key":[1.5],"value":"dg=="}'],
        [HEADER, b'{"key":["\\ud800"],"value":"dg=="}'],
        [HEADER, b'{"key":' + b"[" * 50 + b"]" * 50 + b',"value":"dg=="}'],
        [HEADER, b'{"key_hex":7,"value":"dg=="}'],
        [HEADER, b'{"key":["doc"]}'],
        [HEADER, b'{"key":["doc"],"value":"no base64"}'],
        [HEADER, b'{"key":["doc"],"value":"dg==","blobs":7}'],
        [HEADER, b'{"key":["sys","backend-id"],"value":"dg=="}'],
        [HEADER, b'{"blob":7}'],
        [HEADER, b'{"blob":"%b","offset":1,"last":true}' % BLOB],
        [HEADER, b'{"blob":"%b","offset":0}' % BLOB, RECORD],
        [HEADER, RECORD, b'{"end":{"records":2,"blobs":0}}'],
        [HEADER, b'{"end":{"records":0,"blobs":0}}', RECORD],
        [HEADER, b" " * (LINE_BYTES_MAX + 1)],
    ],
)
async def test_lines_that_are_no_export_are_refused(lines: list[bytes]) -> None:
    async with open_store("mem://", PLAIN) as target:
        with pytest.raises(InvalidArchive):
            await import_lines(target, lines)


@pytest.mark.parametrize("blob_id", ["../../etc/passwd", "a" * 36])
async def test_a_blob_id_that_is_none_is_refused(blob_id: str) -> None:
    lines = [HEADER, json.dumps({"blob": blob_id, "offset": 0, "last": True}).encode()]

    async with open_store("mem://", PLAIN) as target:
        with pytest.raises(InvalidBatch, match="no blob id"):
            await import_lines(target, lines)


async def test_a_cut_export_says_what_is_in_the_store() -> None:
    async with open_store("mem://", PLAIN) as target:
        with pytest.raises(InvalidArchive, match="cut short after 1 record"):
            await import_lines(target, [HEADER, RECORD])

        assert await values_of(target) == {pack(("doc", "a")): b"v"}


async def test_an_error_names_its_line() -> None:
    async with open_store("mem://", PLAIN) as target:
        with pytest.raises(InvalidArchive, match="line 3"):
            await import_lines(target, [HEADER, RECORD, b"{"])


elements: st.SearchStrategy[Element] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 80), 1 << 80) | st.floats() | st.text() | st.binary(),
    lambda children: st.lists(children, max_size=3).map(tuple),
    max_leaves=5,
)


@given(st.lists(elements, max_size=4).map(tuple))
def test_every_tuple_key_survives_json(parts: Iterable[Element]) -> None:
    key = pack(tuple(parts))

    assert key_from_json(json.loads(json.dumps(key_to_json(key)))) == key


@given(st.binary(max_size=40))
def test_every_other_key_survives_json(key: bytes) -> None:
    assert key_from_json(json.loads(json.dumps(key_to_json(key)))) == key


def test_keys_read_well() -> None:
    key = pack(("doc", 1, None, True, 1.5, math.inf, b"\x00", ("a",), 1 << 60))

    assert key_to_json(key) == {
        "key": [
            "doc",
            1,
            None,
            True,
            {"float": "1.5"},
            {"float": "inf"},
            {"bytes": "00"},
            ["a"],
            {"int": "0x1000000000000000"},
        ]
    }
