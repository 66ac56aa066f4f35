"""Known ranges: whatever is told in whatever order, a range is what the database held at the revision it is known for."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast.storage import known_ranges as ranges_module
from holdfast.storage.known_ranges import ENTRY_BYTES, RANGE_RECORDS_MAX, VALUE_BYTES_MAX, RangeCache
from holdfast.storage.port import EMPTY, Batch, RangeExpectation, Record

RANGES = [(b"a", b"b"), (b"b", b"d"), (b"c", b"e")]
"""The last two overlap: one of them is known at a time."""
KEYS = [b"a1", b"a2", b"b1", b"c1", b"c2", b"d1", b"z"]

keys = st.sampled_from(KEYS)
bounds = st.sampled_from(RANGES)


def _batch(puts: list[bytes], deletes: list[bytes]) -> Batch:
    return Batch(puts=dict.fromkeys(puts, b""), deletes=set(deletes) - set(puts))


batches = st.builds(
    _batch,
    st.lists(keys, max_size=2),
    st.lists(keys, max_size=2),
)

Content = dict[bytes, Record]


class Ranges(RuleBasedStateMachine):
    """A database with its history, a feed that lags behind, answers to fetches that come late."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = RangeCache(1 << 20)
        self.history: list[Content] = [{}]
        self.changed: list[list[bytes]] = [[]]
        self.answers: list[tuple[tuple[bytes, bytes], list[Record], int]] = []
        self.commits: list[tuple[Batch, int]] = []

    @property
    def revision(self) -> int:
        return len(self.history) - 1

    def within(self, at: int, start: bytes, end: bytes) -> list[Record]:
        return [record for key, record in sorted(self.history[at].items()) if start <= key < end]

    def commit(self, batch: Batch) -> int:
        content = dict(self.history[-1])
        revision = self.revision + 1
        changed = [*batch.puts, *(key for key in batch.deletes if key in content)]
        for key, value in batch.puts.items():
            content[key] = Record.after(content.get(key), key, value, revision)
        for key in batch.deletes:
            content.pop(key, None)
        self.history.append(content)
        self.changed.append(changed)
        return revision

    def is_unchanged(self, expected: RangeExpectation) -> bool:
        start, end, revision = expected
        later = (key for changed in self.changed[revision + 1 :] for key in changed)
        return not any(start <= key and (end is None or key < end) for key in later)

    @rule(batch=batches)
    def another_process_commits(self, batch: Batch) -> None:
        if batch.puts or batch.deletes:
            self.commit(batch)

    @rule(batch=batches, read=st.none() | bounds)
    def this_process_commits(self, batch: Batch, read: tuple[bytes, bytes] | None) -> None:
        known = None if read is None else self.cache.find(*read)
        if read is not None and known is not None:
            batch.expect_ranges.append(RangeExpectation(*read, known[1]))
            if not self.is_unchanged(batch.expect_ranges[0]):
                self.cache.drop(read[0])
                return
        self.answer_later(batch)

    @rule(batch=batches, read=bounds)
    def this_process_commits_what_it_read_past_the_cache(
        self, batch: Batch, read: tuple[bytes, bytes]
    ) -> None:
        batch.expect_ranges.append(RangeExpectation(*read, self.revision))
        self.answer_later(batch)

    @rule(batch=batches, read=bounds)
    def this_process_guesses_a_range_to_be_empty(self, batch: Batch, read: tuple[bytes, bytes]) -> None:
        if self.cache.find(*read) is None and not self.within(self.revision, *read):
            batch.expect_ranges.append(RangeExpectation(*read, EMPTY))
            self.answer_later(batch)

    def answer_later(self, batch: Batch) -> None:
        has_writes = batch.puts or batch.deletes
        self.commits.append((batch, self.commit(batch) if has_writes else self.revision))

    @rule()
    def a_commit_is_answered(self) -> None:
        """In order, and maybe after the feed has told of it and of later ones."""
        if self.commits:
            self.cache.committed(*self.commits.pop(0))

    @rule()
    def the_feed_tells_the_next_revision(self) -> None:
        told = self.cache.told_revision + 1
        if told <= self.revision:
            for key in self.changed[told]:
                self.cache.changed(key, self.history[told].get(key), told)
            self.cache.told_revision = told

    @rule(read=bounds)
    def a_range_is_fetched(self, read: tuple[bytes, bytes]) -> None:
        self.answers.append((read, self.within(self.revision, *read), self.revision))

    @rule()
    def an_answer_comes(self) -> None:
        if self.answers:
            (start, end), records, revision = self.answers.pop(0)
            self.cache.fetched(start, end, records, revision)

    @invariant()
    def what_is_known_was_so(self) -> None:
        for start, end in RANGES:
            known = self.cache.find(start, end)
            if known is not None:
                records, revision = known
                assert records == self.within(revision, start, end)


def run(machine: type[RuleBasedStateMachine], max_examples: int = 150, **more: Any) -> None:
    options = settings(max_examples=max_examples, stateful_step_count=30, deadline=None, **more)
    run_state_machine_as_test(machine, settings=options)


def test_a_known_range_is_what_the_database_held() -> None:
    run(Ranges)


def with_told(cache: RangeCache, revision: int, call: Callable[[], None]) -> None:
    """A call that believes the feed to be elsewhere."""
    told, cache.told_revision = cache.told_revision, revision
    call()
    cache.told_revision = told


FETCHED = RangeCache.fetched


def _drop_event(cache: RangeCache, key: bytes, record: Record | None, revision: int) -> None:
    pass


def _take_old_answer(
    cache: RangeCache, start: bytes, end: bytes | None, records: Sequence[Record], revision: int
) -> None:
    with_told(cache, 0, lambda: FETCHED(cache, start, end, records, revision))


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("changed", _drop_event),
        ("fetched", _take_old_answer),
    ],
    ids=["an event is dropped", "an old answer is taken in"],
)
def test_a_range_that_misses_a_change_is_caught(
    name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RangeCache, name, mutant)

    with pytest.raises(AssertionError):
        run(
            Ranges, 2000, phases=[Phase.generate], report_multiple_bugs=False
        )  # It ends with the first one found.


def record(key: bytes, value: bytes = b"") -> Record:
    return Record(key, value, 1, 1, 1)


def test_a_commit_that_did_not_expect_the_range_says_nothing_of_what_others_did_before() -> None:
    cache = RangeCache(1 << 20)
    cache.fetched(b"a", b"b", [record(b"a1")], 1)

    cache.committed(Batch(puts={b"a2": b""}), 3)  # Another process may have committed 2.

    assert cache.find(b"a", b"b") is None


def test_a_range_that_became_empty_is_forgotten_and_one_that_was_is_not() -> None:
    cache = RangeCache(1 << 20)
    cache.fetched(b"a", b"b", [record(b"a1")], 1)
    cache.fetched(b"c", b"d", [], 1)

    cache.changed(b"a1", None, 2)

    assert cache.find(b"a", b"b") is None
    assert cache.find(b"c", b"d") == ([], 1)
    assert len(cache) == 1


@pytest.mark.parametrize(
    "records",
    [
        [record(b"a%03d" % n) for n in range(RANGE_RECORDS_MAX + 1)],
        [record(b"a", bytes(VALUE_BYTES_MAX + 1))],
    ],
)
def test_a_large_range_is_not_kept(records: list[Record]) -> None:
    cache = RangeCache(1 << 20)

    cache.fetched(b"a", b"b", records, 1)

    assert cache.find(b"a", b"b") is None


def test_a_range_that_grows_large_is_dropped() -> None:
    cache = RangeCache(1 << 20)
    cache.fetched(b"a", b"b", [record(b"a%03d" % n) for n in range(RANGE_RECORDS_MAX)], 1)

    cache.changed(b"a", record(b"a"), 2)

    assert cache.find(b"a", b"b") is None


def test_the_least_recently_used_range_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges_module, "RANGES_MAX", 2)
    cache = RangeCache(1 << 20)
    for start, end in ((b"a", b"b"), (b"b", b"c")):
        cache.fetched(start, end, [], 1)
    cache.find(b"a", b"b")

    cache.fetched(b"c", b"d", [], 1)

    assert [cache.find(*each) is not None for each in ((b"a", b"b"), (b"b", b"c"), (b"c", b"d"))] == [
        True,
        False,
        True,
    ]
    assert b"a1" in cache
    assert b"b1" not in cache


def test_a_commit_that_is_answered_late_changes_nothing_that_the_feed_has_told() -> None:
    cache = RangeCache(1 << 20)
    cache.fetched(b"a", b"b", [Record(b"a1", b"old", 1, 1, 1), record(b"a2")], 1)
    batch = Batch(expect_ranges=[RangeExpectation(b"a", b"b", 1)], puts={b"a1": b"ours", b"a3": b""})
    later = Record(b"a1", b"of another process", 1, 3, 3)
    cache.changed(b"a1", Record(b"a1", b"ours", 1, 2, 2), 2)
    cache.changed(b"a3", Record(b"a3", b"", 2, 2, 1), 2)
    cache.changed(b"a1", later, 3)
    cache.changed(b"a3", None, 3)
    cache.told_revision = 3

    cache.committed(batch, 2)

    assert cache.find(b"a", b"b") == ([later, record(b"a2")], 3)


def test_what_a_commit_read_past_the_cache_does_not_vouch_for_what_is_cached() -> None:
    cache = RangeCache(1 << 20)
    cache.fetched(b"a", b"b", [record(b"a1")], 1)
    of_another_process = Record(b"a2", b"", 2, 2, 1)

    cache.committed(Batch(expect_ranges=[RangeExpectation(b"a", b"b", 2)], puts={b"z": b""}), 3)
    cache.changed(b"a2", of_another_process, 2)
    cache.changed(b"z", Record(b"z", b"", 3, 3, 1), 3)
    cache.told_revision = 3

    known = cache.find(b"a", b"b")
    assert known is None or known == ([record(b"a1"), of_another_process], 3)


def test_a_range_that_was_guessed_to_be_empty_is_known_after_the_commit() -> None:
    cache = RangeCache(1 << 20)

    cache.committed(
        Batch(expect_ranges=[RangeExpectation(b"a", b"b", EMPTY)], puts={b"a1": b"", b"b": b""}), 3
    )

    assert cache.find(b"a", b"b") == ([Record(b"a1", b"", 3, 3, 1)], 3)


def test_ranges_stay_within_their_size() -> None:
    size_bytes_max = 20 * ENTRY_BYTES
    cache = RangeCache(size_bytes_max)
    for number in range(100):
        start = b"%03d" % number
        cache.fetched(start, start + b"\xff", [record(start + b"a", bytes(200))], 1)
        cache.changed(start + b"b", record(start + b"b"), 2)
        assert 0 < cache.size_bytes <= size_bytes_max

    assert 5 <= len(cache) <= 10
    for number in range(100):
        cache.drop(b"%03d" % number)
    assert cache.size_bytes == 0
