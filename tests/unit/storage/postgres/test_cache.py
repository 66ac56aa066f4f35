"""The cache of records: what is told of a key comes in any order, and the newest is kept."""

from itertools import permutations

import pytest

from holdfast.storage.known_ranges import ENTRY_BYTES
from holdfast.storage.port import ABSENT, Batch, Record
from holdfast.storage.postgres.feed import cache as cache_module
from holdfast.storage.postgres.feed.cache import GUESS_AFTER, RecordCache


class Time:
    now_s = 0.0


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def cache(time: Time) -> RecordCache:
    return RecordCache(size_bytes_max=1 << 20, revision=0, lag_s_max=3, now_s=lambda: time.now_s)


def record(key: bytes, revision: int, *, version: int = 1, created: int | None = None) -> Record:
    return Record(key, b"v%d" % revision, revision if created is None else created, revision, version)


def found(cache: RecordCache, key: bytes) -> Record | None:
    known = cache.find(key)
    assert known is not None, "it is in the cache"
    return known.record


def test_what_was_fetched_is_found_and_what_was_not_there_too(cache: RecordCache) -> None:
    cache.fetched({b"a": record(b"a", 3), b"b": None}, 5)

    assert found(cache, b"a") == record(b"a", 3)
    assert found(cache, b"b") is None
    assert cache.find(b"c") is None
    assert (cache.hits, cache.misses) == (2, 1)


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_in_whatever_order_they_come_the_newest_is_kept(cache: RecordCache, order: tuple[int, ...]) -> None:
    cache.fetched({b"a": None}, 1)
    told = [
        lambda: cache.fetched({b"a": record(b"a", 2)}, 2),
        lambda: cache.changed(b"a", record(b"a", 3), 3),
        lambda: cache.changed(b"a", None, 4),
    ]

    for number in order:
        told[number]()

    assert found(cache, b"a") is None


def test_the_answer_to_an_old_question_does_not_come_in_after_the_event_that_overtook_it(
    cache: RecordCache,
) -> None:
    cache.passed(b"a", 7)

    cache.fetched({b"a": record(b"a", 3), b"b": None}, 6)

    assert b"a" not in cache
    assert b"b" in cache


def test_nor_when_that_event_is_long_gone(cache: RecordCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "CHANGES_MAX", 2)
    for revision, key in enumerate((b"a", b"x", b"y"), start=5):
        cache.passed(key, revision)

    cache.fetched({b"a": record(b"a", 3)}, 4)
    cache.fetched({b"z": None}, 5)

    assert b"a" not in cache
    assert b"z" in cache


def test_nor_when_what_was_known_had_to_make_room() -> None:
    cache = RecordCache(size_bytes_max=ENTRY_BYTES + 10, revision=0, lag_s_max=3)
    cache.fetched({b"a": record(b"a", 6)}, 6)
    cache.fetched({b"b": None}, 6)
    cache.fetched({b"a": None}, 5)

    assert b"a" not in cache


def test_a_commit_of_this_process_tells_what_it_wrote_with_its_version(cache: RecordCache) -> None:
    cache.fetched({b"old": record(b"old", 2, version=4, created=1), b"gone": record(b"gone", 2)}, 3)

    cache.committed(
        Batch(
            expects={b"old": 2, b"new": ABSENT, b"gone": 2, b"none": ABSENT},
            puts={b"old": b"x", b"new": b"y"},
            deletes={b"gone"},
        ),
        9,
    )

    assert found(cache, b"old") == Record(b"old", b"x", 1, 9, 5)
    assert found(cache, b"new") == Record(b"new", b"y", 9, 9, 1)
    assert found(cache, b"gone") is None
    assert found(cache, b"none") is None


def test_a_write_that_read_nothing_leaves_no_guess_of_its_version(cache: RecordCache) -> None:
    cache.fetched({b"a": record(b"a", 2)}, 3)

    cache.committed(Batch(puts={b"a": b"x", b"b": b"y"}, deletes={b"c"}), 9)
    cache.fetched({b"a": record(b"a", 2), b"b": None, b"c": record(b"c", 1)}, 8)

    assert not any(key in cache for key in (b"a", b"b", b"c"))


def test_the_least_recently_used_make_room(cache: RecordCache) -> None:
    size_bytes_max = 4 * (ENTRY_BYTES + 10)  # A part of it is for ranges.
    small = RecordCache(size_bytes_max=size_bytes_max, revision=0, lag_s_max=3)
    small.fetched({b"a": None, b"b": None, b"c": None}, 1)
    small.find(b"a")

    small.fetched({b"d": None}, 1)

    assert [key for key in (b"a", b"b", b"c", b"d") if key in small] == [b"a", b"c", b"d"]
    assert small.figures()["cache_bytes"] <= size_bytes_max


def test_what_is_larger_than_the_cache_does_not_stay() -> None:
    small = RecordCache(size_bytes_max=ENTRY_BYTES * 2, revision=0, lag_s_max=3)

    small.fetched({b"a": Record(b"a", b"x" * 10_000, 1, 1, 1)}, 1)

    assert len(small) == 0
    assert small.figures()["cache_bytes"] == 0


def test_a_feed_that_fails_empties_it_until_it_goes_on(cache: RecordCache) -> None:
    cache.fetched({b"a": None}, 1)

    cache.lost()
    cache.fetched({b"b": None}, 2)
    is_readable_meanwhile = cache.is_readable
    cache.followed(10)
    cache.fetched({b"c": None}, 9)  # Asked before, and what came in between is unknown.
    cache.fetched({b"d": None}, 10)

    assert not is_readable_meanwhile
    assert cache.is_readable
    assert [key for key in (b"a", b"b", b"c", b"d") if key in cache] == [b"d"]


def test_a_feed_that_is_silent_for_long_makes_it_unreadable(cache: RecordCache, time: Time) -> None:
    time.now_s = 3.5
    is_readable_late = cache.is_readable
    cache.followed(1)

    assert not is_readable_late
    assert cache.is_readable


def test_of_size_zero_it_is_never_read() -> None:
    off = RecordCache(size_bytes_max=0, revision=0, lag_s_max=3)

    off.followed(1)
    off.fetched({b"a": None}, 1)

    assert not off.is_readable
    assert len(off) == 0


def test_keys_of_a_table_are_guessed_to_be_new_until_one_is_not(cache: RecordCache) -> None:
    for number in range(GUESS_AFTER):
        assert not cache.guesses_absent([b"Alease\0x"])
        cache.fetched({b"Alease\0%d" % number: None, b"Adoc\0%d" % number: record(b"d", 1)}, 1)

    assert cache.guesses_absent([b"Alease\0x"])
    assert not cache.guesses_absent([b"Alease\0x", b"Adoc\0x"])

    cache.fetched({b"Alease\0y": record(b"Alease\0y", 1)}, 1)

    assert not cache.guesses_absent([b"Alease\0x"])
