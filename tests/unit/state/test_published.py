"""What is kept of published documents takes no more memory than it may, and goes when it is least used."""

import tracemalloc
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.express.message import Answer, Header, Request, header_list
from holdfast.state.layer.document.published import ENTRY_BYTES, MISSED_BYTES, SHARES_MIN, PublishedCache
from holdfast.state.layer.document.staging import View
from holdfast.state.layer.records import DOCUMENTS
from holdfast.state.protocol.lockd.ready import Ready, ReadyAnswers
from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, SnapshotRecord
from holdfast.storage.records_pb2 import BlobRef, Payload
from holdfast.txn.layer.port import Member

BYTES_MAX = 40 * ENTRY_BYTES
KEY = Member("default", "orders")


def key_of(number: int) -> bytes:
    return b"%03d" % number


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["keep", "keep", "get", "forget", "all"]),
            st.integers(0, 40),
            st.integers(0, 1),
            st.integers(0, 4096),
        ),
        max_size=200,
    )
)
def test_it_finds_what_was_kept_last_or_nothing_and_stays_within_its_memory(
    steps: list[tuple[str, int, int, int]],
) -> None:
    cache = PublishedCache[int](BYTES_MAX)
    kept: dict[bytes, tuple[int, int]] = {}
    for what, number, spelling, size in steps:
        key = key_of(number)
        name = key + b"x" * spelling
        if what == "keep":
            cache.keep(key, name, size, size)
            kept[name] = size, ENTRY_BYTES + len(key) + len(name) + size
        elif what == "forget":
            cache.forget([key, b"another"])
            kept.pop(key, None)
            kept.pop(key + b"x", None)
        elif what == "all" and size < 400:
            cache.forget_all()
            kept.clear()
        else:
            found = cache.get(name)
            assert found is None or found == kept[name][0]
        there = {name: kept[name] for name in cache._entries}
        assert sorted(name for names in cache._names.values() for name in names) == sorted(there)
        assert cache.size_bytes == sum(size_bytes for _, size_bytes in there.values()) <= BYTES_MAX


def test_what_is_used_stays_and_what_was_used_longest_ago_goes() -> None:
    cache = PublishedCache[int](BYTES_MAX)
    for number in range(200):
        cache.keep(key_of(number), key_of(number), number, 0)
        cache.get(key_of(0))

    assert [number for number in range(200) if cache.get(key_of(number)) is not None] == [0, *range(164, 200)]
    assert (cache.hits, cache.misses) == (200 + 37, 163)


def test_what_is_read_once_is_not_wanted() -> None:
    cache = PublishedCache[int](1 << 20)

    first = [cache.wants(key_of(number)) for number in range(100)]
    second = [cache.wants(key_of(number)) for number in range(100)]
    many = [cache.wants(b"%d" % number) for number in range(1000, 10_000)]
    long_ago = cache.wants(key_of(0))

    assert not any(first)
    assert all(second)
    assert not any(many)
    assert not long_ago
    assert len(cache._missed) <= (1 << 20) // SHARES_MIN // MISSED_BYTES


def test_the_memory_of_what_was_missed_is_no_less_than_what_it_takes() -> None:
    cache = PublishedCache[int](64 << 20)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100_000):
            cache.wants(b"key=key-%d&public=1" % number)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()

    assert peak <= (64 << 20) // SHARES_MIN


def test_what_would_take_a_large_share_is_not_kept_and_ends_what_was() -> None:
    cache = PublishedCache[str](BYTES_MAX)
    cache.keep(b"a", b"name", "small", 0)

    cache.keep(b"a", b"name", "large", BYTES_MAX // SHARES_MIN)

    assert cache.get(b"name") is None
    assert cache.size_bytes == 0


def view_of(text: bytes, etag: str = "a" * 64) -> View:
    return View(7, etag, Payload(inline=text, size_bytes=len(text)), False)


def headers_of(view: View) -> list[Header]:
    return [(b"etag", view.etag.encode()), (b"x-key-version", b"%d" % view.version)]


def request(query: str, *headers: Header) -> Request:
    return Request("GET", "/v1/get", query.encode(), list(headers), b"", None, None, "id")


ASKED = request("key=orders&public=1")


def ready() -> tuple[PublishedCache[Ready], ReadyAnswers]:
    cache = PublishedCache[Ready](1 << 20)
    return cache, ReadyAnswers(cache)


def keep(answers: ReadyAnswers, view: View, asked: Request = ASKED, member: Member = KEY) -> None:
    answers.keep(asked, member, view, headers_of(view))


@pytest.mark.parametrize("size_bytes", [2, 1000, 60_000])
def test_the_memory_that_is_counted_is_no_less_than_what_is_taken(size_bytes: int) -> None:
    cache = PublishedCache[Ready](64 << 20)
    answers = ReadyAnswers(cache)
    count = (
        2800 if size_bytes < 2000 else 200
    )  # Just after the dicts have grown, where each place costs most.
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            etag = f"{number:064x}"
            asked = request(f"key=key-{number}&public=1")
            keep(answers, view_of(b"x" * size_bytes, etag), asked, Member("default", f"key-{number}"))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert len(cache) == count
    assert taken <= cache.size_bytes
    assert cache.size_bytes - taken < count * ENTRY_BYTES // 2


@pytest.mark.parametrize(
    "asked",
    [
        ASKED,
        request("key=orders&public=1", (b"x-lease-id", b"")),
        request("key=orders&public=1", (b"if-none-match", b'"other"'), (b"x-txn-id", b"c0")),
    ],
)
def test_a_read_with_the_same_query_is_answered_with_what_is_kept(asked: Request) -> None:
    _, answers = ready()
    keep(answers, view_of(b"{}"))

    answer = answers.find(asked)

    assert answer is not None
    assert (answer.status, answer.body) == (200, b"{}")
    assert header_list(answer, "id") == [
        (b"content-type", b"application/json"),
        (b"etag", b"a" * 64),
        (b"x-key-version", b"7"),
        (b"content-length", b"2"),
        (b"x-correlation-id", b"id"),
    ]


@pytest.mark.parametrize(
    "asked",
    [
        request("key=orders&public=1", (b"x-lease-id", b"c0")),
        request("key=orders"),
        request("key=orders&public=1&namespace=other"),
        request(""),
    ],
)
def test_every_other_request_is_left_to_the_route(asked: Request) -> None:
    _, answers = ready()
    keep(answers, view_of(b"{}"))

    assert answers.find(asked) is None


@pytest.mark.parametrize(
    "view",
    [
        View(0, "", None, False),
        View(7, "", None, True),
        View(7, "a" * 64, Payload(blob=BlobRef(id="b"), size_bytes=1 << 20), False),
        view_of(b"{}", "a\r\nset-cookie: b"),
    ],
)
def test_nothing_else_than_a_document_of_one_record_is_kept(view: View) -> None:
    cache, answers = ready()

    keep(answers, view)

    assert len(cache) == 0


def test_a_reader_that_has_it_is_told_so() -> None:
    _, answers = ready()
    keep(answers, view_of(b"{}"))

    answer = answers.find(request("key=orders&public=1", (b"if-none-match", b'"%b"' % (b"a" * 64))))

    assert isinstance(answer, Answer)
    assert (answer.status, answer.body) == (304, b"")
    assert [name for name, _ in header_list(answer, "id")] == [b"etag", b"x-key-version", b"x-correlation-id"]


async def test_a_store_that_is_not_what_it_was_forgets_everything() -> None:
    cache, answers = ready()
    store: Any = LocalStore(url="mem://", engine=MemoryEngine(), options=StoreOptions())
    assert store.keep_current(cache)

    keep(answers, view_of(b"{}"))
    store.reload(MemoryEngine(), [])
    after_reload = len(cache)
    keep(answers, view_of(b"{}"))
    await store.restore(5, no_pages())
    after_restore = len(cache)
    keep(answers, view_of(b"{}"))
    await store.close()

    assert (after_reload, after_restore, len(cache)) == (0, 0, 0)


async def no_pages() -> AsyncIterator[Sequence[SnapshotRecord]]:
    for page in list[Sequence[SnapshotRecord]]():
        yield page


async def test_a_commit_forgets_its_keys_and_no_other() -> None:
    cache, answers = ready()
    other = request("key=other&public=1")
    async with open_memory(StoreOptions()) as store:
        assert store.keep_current(cache)
        keep(answers, view_of(b"{}"))
        keep(answers, view_of(b"{}"), request("key=ORDERS&public=1"))
        keep(answers, view_of(b"{}"), other, Member("default", "other"))

        await store.commit(Batch(puts={DOCUMENTS.key(*KEY): b"", b"x": b""}))

        assert list(cache._entries) == [other.query_string]
