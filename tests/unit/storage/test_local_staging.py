"""What a local store remembers of recent commits, to judge range expectations, has a bound."""

import sys

from holdfast.storage.local.layout import Change
from holdfast.storage.local.staging import RECENT_CHANGES_MAX, Staged, Staging
from holdfast.storage.port import RangeExpectation


def commit(staging: Staging, keys: list[bytes]) -> None:
    revision = staging.revision + 1
    staged = Staged(revision, revision - 1, 0, [Change(key, b"", None) for key in keys])
    staging.add(staged)
    staging.remove(staged)


def test_a_change_in_the_range_is_noticed_and_another_one_is_not() -> None:
    staging = Staging(0)
    commit(staging, [b"b"])

    assert staging.has_changed(RangeExpectation(b"a", b"c", 0))
    assert not staging.has_changed(RangeExpectation(b"a", b"c", 1))
    assert not staging.has_changed(RangeExpectation(b"c", None, 0))


def test_of_large_batches_only_the_newest_are_remembered_and_all_older_ones_count_as_changed() -> None:
    staging = Staging(0)
    keys = [b"k%05d" % number for number in range(RECENT_CHANGES_MAX // 4)]
    for _ in range(10):
        commit(staging, keys)

    assert staging.has_changed(RangeExpectation(b"x", None, 2))
    assert not staging.has_changed(RangeExpectation(b"x", None, 6))


def test_of_what_was_written_only_the_keys_are_remembered() -> None:
    staging = Staging(0)
    value = bytes(64 << 10)
    held_before = sys.getrefcount(value)
    staged = Staged(1, 0, 0, [Change(b"k", value, value)])

    staging.add(staged)
    staging.remove(staged)
    del staged

    assert sys.getrefcount(value) == held_before
    assert staging.has_changed(RangeExpectation(b"a", None, 0))
