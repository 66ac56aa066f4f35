"""What is remembered of opened values: never another value than opening would give, and never more than a bound."""

from typing import Any

import pytest

from holdfast.storage.codec.encoded import (
    OPENED_BYTES_MAX,
    OPENED_ENTRY_BYTES,
    OPENED_GENERATION_BYTES,
    EncodedStore,
    OpenedValues,
)
from holdfast.storage.codec.hf1 import Codec
from holdfast.storage.errors import DecryptionError
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Record, Transaction
from tests.unit.storage.codec.test_encoded import KEYRING, open_encoded


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The contexts of the values that were really opened."""
    contexts: list[str] = []
    open_inline = Codec.open_inline

    def counted(codec: Codec, stored: bytes, context: str, **more: Any) -> bytes:
        contexts.append(context)
        return open_inline(codec, stored, context, **more)

    monkeypatch.setattr(Codec, "open_inline", counted)
    return contexts


async def test_what_was_just_written_is_not_opened_again(opened: list[str]) -> None:
    async with open_encoded() as store:
        await store.commit(Batch(puts={b"k": b"value"}))

        def read(tx: Transaction) -> bytes:
            record = tx.get(b"k")
            assert record is not None
            return record.value

        assert await store.transact(read) == b"value"
        assert opened == []


async def test_what_another_opener_wrote_is_opened_once(opened: list[str]) -> None:
    async with open_memory(StoreOptions()) as inner:
        await EncodedStore(inner, KEYRING).commit(Batch(puts={b"k": b"value"}))
        store = EncodedStore(inner, KEYRING)

        for _ in range(3):
            record = await store.get(b"k")
            assert record is not None
            assert record.value == b"value"

        assert len(opened) == 1


async def test_bytes_that_were_altered_below_are_not_taken_for_what_was_written() -> None:
    async with open_encoded() as store:
        await store.commit(Batch(puts={b"k": b"value", b"other": b"another"}))
        stored = await store.inner.get(b"k")
        moved = await store.inner.get(b"other")
        assert isinstance(stored, Record)
        assert isinstance(moved, Record)
        altered = stored.value[:-1] + bytes([stored.value[-1] ^ 1])

        for value in (altered, moved.value):
            await store.inner.commit(Batch(puts={b"k": value}))
            with pytest.raises(DecryptionError):
                await store.get(b"k")


def test_what_is_used_outlives_a_full_generation_and_what_is_not_used_does_not() -> None:
    values = OpenedValues()
    values.add(b"used", b"sealed", b"1")
    values.add(b"unused", b"sealed", b"2")

    _fill_one_generation(values)
    assert values.find(b"used", b"sealed") == b"1"
    _fill_one_generation(values)

    assert values.find(b"used", b"sealed") == b"1"
    assert values.find(b"unused", b"sealed") is None


def test_a_large_value_is_not_kept() -> None:
    values = OpenedValues()

    values.add(b"k", bytes(OPENED_BYTES_MAX + 1), b"large")

    assert values.find(b"k", bytes(OPENED_BYTES_MAX + 1)) is None


def _fill_one_generation(values: OpenedValues) -> None:
    for number in range(OPENED_GENERATION_BYTES // OPENED_ENTRY_BYTES + 1):
        values.add(b"%d" % number, b"", b"")
