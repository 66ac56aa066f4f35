"""What is kept of the keys that were touched lately."""

from holdfast.storage.local.pending import (
    ENTRY_BYTES,
    GENERATION_BYTES,
    VALUE_BYTES_MAX,
    Kept,
    LatestRecords,
    Unknown,
)
from holdfast.storage.port import Record


def _kept(key: bytes, stored: bytes = b"stored") -> Kept:
    return Kept(Record(key, b"value", 1, 1, 1), stored)


def _fill_one_generation(latest: LatestRecords) -> None:
    for number in range(GENERATION_BYTES // ENTRY_BYTES + 1):
        latest.set(b"filler%d" % number, None)


def test_a_key_that_nobody_touched_is_unknown_and_not_absent() -> None:
    assert isinstance(LatestRecords().get(b"key"), Unknown)


def test_a_record_and_the_absence_of_one_are_both_remembered() -> None:
    latest = LatestRecords()
    latest.set(b"there", _kept(b"there"))
    latest.set(b"gone", None)

    assert latest.get(b"there") == _kept(b"there")
    assert latest.get(b"gone") is None


def test_what_is_used_outlives_a_full_generation_and_what_is_not_used_does_not() -> None:
    latest = LatestRecords()
    latest.set(b"used", _kept(b"used"))
    latest.set(b"unused", _kept(b"unused"))

    _fill_one_generation(latest)
    assert latest.get(b"used") == _kept(b"used")
    _fill_one_generation(latest)

    assert latest.get(b"used") == _kept(b"used")
    assert isinstance(latest.get(b"unused"), Unknown)


def test_a_large_record_is_not_kept_and_takes_the_older_one_with_it() -> None:
    latest = LatestRecords()
    latest.set(b"key", _kept(b"key"))

    latest.set(b"key", _kept(b"key", bytes(VALUE_BYTES_MAX + 1)))

    assert isinstance(latest.get(b"key"), Unknown)


def test_the_newest_state_wins_over_the_one_of_the_old_generation() -> None:
    latest = LatestRecords()
    latest.set(b"key", _kept(b"key", b"old"))
    _fill_one_generation(latest)

    latest.set(b"key", _kept(b"key", b"new"))

    assert latest.get(b"key") == _kept(b"key", b"new")


def test_nothing_is_known_after_a_clear() -> None:
    latest = LatestRecords()
    latest.set(b"key", _kept(b"key"))
    _fill_one_generation(latest)

    latest.clear()

    assert isinstance(latest.get(b"key"), Unknown)
