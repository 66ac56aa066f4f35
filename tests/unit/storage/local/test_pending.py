"""What a local store remembers of recent commits, to judge range expectations, has a bound."""

import sys

import pytest

from holdfast.storage.local import layout
from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.pending import RECENT_CHANGES_MAX, PendingBatch, PendingBatches
from holdfast.storage.local.store import events_of
from holdfast.storage.port import Batch, RangeExpectation, Record

STORED = layout.encode_stored(Record(b"", b"", 1, 1, 1))


def commit(pending: PendingBatches, keys: list[bytes]) -> None:
    revision = pending.revision + 1
    staged = PendingBatch(revision, revision - 1, 0, [(key, STORED, None) for key in keys])
    pending.add(staged)
    pending.remove([staged])


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
    staged = PendingBatch(1, 0, 0, [(b"k", value, value)])

    pending.add(staged)
    pending.remove([staged])
    del staged

    assert sys.getrefcount(value) == held_before
    assert pending.has_changed(RangeExpectation(b"a", None, 0))


def test_a_staged_batch_is_written_as_the_layout_reads_it() -> None:
    pending = PendingBatches(0, MemoryEngine())
    blob = "b" * 36
    first = pending.stage(Batch(puts={b"kept": b"1", b"gone": b"2"}, blobs={b"kept": (blob,)}), 5)
    second = pending.stage(
        Batch(puts={b"kept": b"3", b"new": b"", b"bare": b""}, deletes={b"gone", b"never"}, bare={b"bare"}), 7
    )

    entry = layout.decode_entry(second.entry)
    events = {
        event.key: event
        for event in layout.decode_change(2, dict(second.writes)[layout.change_key(2)] or b"")
    }

    assert (entry.revision, entry.after_revision, entry.at_ms) == (2, 1, 7)
    assert dict(entry.puts) == {key: stored for key, stored, _ in second.changes}
    assert events[b"kept"].record == Record(b"kept", b"3", 1, 2, 2)
    assert events[b"kept"].previous == Record(b"kept", b"1", 1, 1, 1)
    assert events[b"new"].record == Record(b"new", b"", 2, 2, 1)
    assert events[b"bare"].record == Record(b"bare", b"", 2, 2, 1)
    assert (events[b"gone"].record, events[b"gone"].previous) == (None, Record(b"gone", b"2", 1, 1, 1))
    assert set(events) == {b"kept", b"new", b"bare", b"gone"}
    assert first.has_blobs
    assert second.has_blobs  # Its record refers to none, but the one before did.
    assert layout.stored_blobs(dict(entry.puts)[b"kept"]) == ()
    assert layout.stored_blobs(dict(layout.decode_entry(first.entry).puts)[b"kept"]) == (blob,)


def test_of_several_batches_on_their_way_those_that_are_applied_are_forgotten() -> None:
    pending = PendingBatches(0, MemoryEngine())
    first = pending.stage(Batch(puts={b"a": b"1", b"b": b"1"}), 0)
    second = pending.stage(Batch(puts={b"a": b"2"}), 0)

    pending.remove([first])

    assert set(pending.undurable) == {b"a"}
    pending.remove([second])
    assert pending.is_empty
    assert not pending.undurable


def test_only_records_of_watched_keys_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    pending = PendingBatches(0, MemoryEngine())
    staged = pending.stage(Batch(puts={b"k%d" % number: b"" for number in range(50)}), 0)
    decoded: list[bytes] = []

    def decode(key: bytes, stored: bytes) -> Record:
        decoded.append(key)
        return Record(key, stored, 1, 1, 1)

    monkeypatch.setattr(layout, "decode_stored", decode)

    assert [event.key for event in events_of(staged, lambda key: key == b"k7")] == [b"k7"]
    assert decoded == [b"k7"]
