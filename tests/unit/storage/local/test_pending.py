"""What a local store remembers of recent commits, to judge range expectations, has a bound."""

import sys

from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.layout import RecordChange
from holdfast.storage.local.pending import RECENT_CHANGES_MAX, PendingBatch, PendingBatches
from holdfast.storage.port import RangeExpectation


def commit(pending: PendingBatches, keys: list[bytes]) -> None:
    revision = pending.revision + 1
    staged = PendingBatch(revision, revision - 1, 0, [RecordChange(key, b"", None) for key in keys], [])
    pending.add(staged)
    pending.remove(staged)


def test_a_change_in_the_range_is_noticed_and_another_one_is_not() -> None:
    pending = PendingBatches(0, MemoryEngine())
    commit(pending, [b"b"])

    assert pending.has_changed(RangeExpectation(b"a", b"c", 0))
    assert not pending.has_changed(RangeExpectation(b"a", b"c", 1))
    assert not pending.has_changed(RangeExpectation(b"c", None, 0))


def test_of_large_batches_only_the_newest_are_remembered_and_all_older_ones_count_as_changed() -> None:
    pending = PendingBatches(0, MemoryEngine())
    keys = [b"k%05d" % number for number in range(RECENT_CHANGES_MAX // 4)]
    for _ in range(10):
        commit(pending, keys)

    assert pending.has_changed(RangeExpectation(b"x", None, 2))
    assert not pending.has_changed(RangeExpectation(b"x", None, 6))


def test_of_what_was_written_only_the_keys_are_remembered() -> None:
    pending = PendingBatches(0, MemoryEngine())
    value = bytes(64 << 10)
    held_before = sys.getrefcount(value)
    staged = PendingBatch(1, 0, 0, [RecordChange(b"k", value, value)], [])

    pending.add(staged)
    pending.remove(staged)
    del staged

    assert sys.getrefcount(value) == held_before
    assert pending.has_changed(RangeExpectation(b"a", None, 0))
