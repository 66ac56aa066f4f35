"""What the index keeps in memory is bounded in bytes, whatever documents name."""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.lql.document.value import NESTING_MAX
from holdfast.state.layer.index.terms import Terms
from holdfast.state.layer.index.writer import DocumentChange, IndexWriter
from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.opening import open_store
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Member


@pytest.fixture
def grown_bytes() -> Iterator[Callable[[], int]]:
    gc.collect()
    tracemalloc.start()
    try:

        def grown_bytes() -> int:
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        yield grown_bytes
    finally:
        tracemalloc.stop()


def nested(number: int, *, depth: int, name_chars: int) -> bytes:
    text = "1"
    for level in range(depth):
        text = json.dumps(f"{number}-{level}".ljust(name_chars, "n")) + ":" + text
        text = "{" + text + "}"
    return text.encode()


def document_of(text: bytes) -> Document:
    document = Document(version=1, etag=sha256(text).hexdigest())
    document.content.inline = text
    return document


def test_paths_of_deep_documents_with_long_names_are_not_kept(grown_bytes: Callable[[], int]) -> None:
    terms = Terms()

    for number in range(20):
        assert len(terms.of_text(nested(number, depth=400, name_chars=140))) == 401

    assert grown_bytes() < 20 << 20


def test_short_paths_that_no_document_has_any_more_are_dropped(grown_bytes: Callable[[], int]) -> None:
    terms = Terms()

    for number in range(200):
        names = {f"{number}-{place}".ljust(240, "n"): None for place in range(200)}
        terms.of_text(json.dumps({str(number): names}).encode())

    assert grown_bytes() < 20 << 20


def test_a_member_below_a_long_name_costs_no_copy_of_it(grown_bytes: Callable[[], int]) -> None:
    terms = Terms()
    text = json.dumps({"n" * 30_000: {str(number): None for number in range(4_000)}}).encode()

    terms.of_text(text)

    grown_bytes()
    assert tracemalloc.get_traced_memory()[1] < 20 << 20


async def test_entries_of_documents_are_kept_up_to_a_number_of_bytes(
    grown_bytes: Callable[[], int], tmp_path: Path
) -> None:
    async with open_store(f"disk://{tmp_path}/store") as store:
        writer = IndexWriter(store)
        member = Member("default", "key")

        before = Document()
        for number in range(150):
            after = document_of(
                json.dumps({f"{number}-{place}".ljust(240, "n"): "t" * 64 for place in range(500)}).encode()
            )
            # As if the store refused the commit: what the store itself keeps is not counted.
            with pytest.raises(InterruptedError):
                await store.transact(partial(refused, writer, DocumentChange(member, before, after)))
            before = after

        assert grown_bytes() < 20 << 20


def refused(writer: IndexWriter, change: DocumentChange, tx: Transaction) -> None:
    writer.publish(tx, [change])
    raise InterruptedError


def test_a_path_is_the_same_entry_whether_it_is_kept_or_not() -> None:
    names = ["a" * 100, "ß~/" * 20, "\ud800" * 10, "b" * 300, "c", "d" * 5_000]
    text = b"1"
    for name in reversed(names):
        text = b'{"%b":[%b]}' % (json.dumps(name)[1:-1].encode(), text)

    once, again = Terms(), Terms()

    assert once.of_text(text) == once.of_text(text) == again.of_text(text)
    assert len(names) * 4 < NESTING_MAX
