"""Transactions: as if each ran alone."""

import asyncio

import pytest

from holdfast.storage.errors import TransactionContended
from holdfast.storage.port import RANGE_LIMIT_MAX, Batch, Store, Transaction, View
from tests.conformance.interleaving import Commit, after_first_fetch, batch_of, before_commits


def increment(tx: Transaction) -> int:
    record = tx.get(b"counter")
    value = int(record.value) + 1 if record else 1
    tx.put(b"counter", b"%d" % value)
    return value


async def test_concurrent_increments_are_all_counted(store: Store) -> None:
    values = await asyncio.gather(*[store.transact(increment, attempts_max=1000) for _ in range(50)])

    assert sorted(values) == list(range(1, 51))


async def test_a_transaction_sees_its_own_writes_and_nobody_else_does(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"2"}))

    async def look(commit: Commit) -> None:
        assert await store.get(b"c") is None

    before_commits(monkeypatch, store, look)

    def work(tx: Transaction) -> list[bytes]:
        tx.put(b"a", b"own")
        tx.put(b"c", b"new")
        tx.delete(b"b")
        one = tx.get(b"a")
        assert one is not None
        assert one.value == b"own"
        assert tx.get(b"b") is None
        assert set(tx.get_many([b"a", b"b", b"c", b"d"])) == {b"a", b"c"}
        return [record.key for record in tx.range(b"a", b"z", limit=2, reverse=True)]

    assert await store.transact(work) == [b"c", b"a"]
    assert await store.get(b"b") is None


async def test_an_error_in_the_function_writes_nothing(store: Store) -> None:
    def work(tx: Transaction) -> None:
        tx.get(b"a")
        tx.put(b"a", b"1")
        raise KeyError("domain")

    with pytest.raises(KeyError, match="domain"):
        await store.transact(work)

    assert await store.get(b"a") is None


async def test_a_point_read_that_changes_makes_it_run_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_commits(monkeypatch, store, batch_of(Batch(puts={b"a": b"other"})))
    runs = 0

    def work(tx: Transaction) -> None:
        nonlocal runs
        record = tx.get(b"a")
        runs += 1
        tx.put(b"b", record.value if record else b"none")

    await store.transact(work)

    assert runs == 2
    record = await store.get(b"b")
    assert record is not None
    assert record.value == b"other"


@pytest.mark.parametrize(
    "intruder",
    [Batch(puts={b"r5": b""}), Batch(puts={b"r1": b"x"}), Batch(deletes={b"r1"})],
    ids=["enters", "changes", "leaves"],
)
@pytest.mark.parametrize("reverse", [False, True])
async def test_an_expected_range_that_changes_makes_it_run_again(
    store: Store, intruder: Batch, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit(Batch(puts={b"r1": b"", b"r9": b""}))
    before_commits(monkeypatch, store, batch_of(intruder))
    runs = 0

    def work(tx: Transaction) -> None:
        nonlocal runs
        tx.range(b"r", b"s", limit=10, expected=True, reverse=reverse)
        runs += 1
        tx.put(b"result", b"")

    await store.transact(work)

    assert runs == 2


async def test_what_was_not_read_of_an_expected_range_may_change(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit(Batch(puts={b"r1": b"", b"r2": b"", b"r9": b""}))
    before_commits(monkeypatch, store, batch_of(Batch(puts={b"r5": b"", b"q": b""})))
    runs = 0

    def work(tx: Transaction) -> None:
        nonlocal runs
        tx.range(b"r", b"s", limit=2, expected=True)
        runs += 1
        tx.put(b"result", b"")

    await store.transact(work)

    assert runs == 1


async def test_a_range_that_is_not_expected_may_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before_commits(monkeypatch, store, batch_of(Batch(puts={b"r5": b""})))
    runs = 0

    def work(tx: Transaction) -> None:
        nonlocal runs
        tx.range(b"r", b"s", limit=10)
        runs += 1
        tx.put(b"result", b"")

    await store.transact(work)

    assert runs == 1


async def test_attempts_are_bounded_and_end_in_a_typed_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [batch_of(Batch(puts={b"a": b"%d" % number})) for number in range(4)]
    before_commits(monkeypatch, store, *others)
    runs = 0

    def work(tx: Transaction) -> None:
        nonlocal runs
        tx.get(b"a")
        runs += 1
        tx.put(b"a", b"mine")

    with pytest.raises(TransactionContended) as caught:
        await store.transact(work, attempts_max=3)

    assert runs == 3
    assert caught.value.key == b"a"
    assert caught.value.attempts == 3


def both(view: View) -> tuple[bytes, bytes]:
    one, other = view.get(b"a"), view.get(b"b")
    assert one is not None
    assert other is not None
    return one.value, other.value


BOTH = Batch(puts={b"a": b"2", b"b": b"2"})


async def test_two_reads_of_a_transaction_without_writes_are_of_one_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"1"}))
    after_first_fetch(monkeypatch, store, batch_of(BOTH))

    one, other = await store.transact(both)

    assert one == other


async def test_a_view_is_of_one_moment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"1"}))
    after_first_fetch(monkeypatch, store, batch_of(BOTH))

    one, other = await store.view(both)

    assert one == other


async def test_an_error_made_of_a_torn_view_is_not_believed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"1"}))
    after_first_fetch(monkeypatch, store, batch_of(BOTH))

    def work(tx: Transaction) -> None:
        one, other = both(tx)
        if one != other:
            raise ValueError("torn")

    await store.transact(work)


async def test_an_error_made_of_what_was_overtaken_is_not_believed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"1"}))
    before_commits(monkeypatch, store, batch_of(BOTH))

    def work(tx: Transaction) -> None:
        if both(tx) == (b"1", b"1"):
            raise ValueError("old")

    await store.transact(work)


async def test_a_view_reads_points_many_and_ranges_of_what_is_committed(store: Store) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"2", b"c": b"3"}))

    def read(view: View) -> tuple[list[bytes], set[bytes], bytes]:
        view.prefetch(lambda: [b"a", b"b", b"x"])
        keys = [record.key for record in view.range(b"a", b"z", limit=2, reverse=True)]
        one = view.get(b"a")
        assert one is not None
        return keys, set(view.get_many([b"a", b"b", b"x"])), one.value

    assert await store.view(read) == ([b"c", b"b"], {b"a", b"b"}, b"1")


async def test_what_is_prefetched_comes_in_one_round_trip(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"1"}))
    runs = 0

    def work(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        tx.prefetch(lambda: [b"a", b"b", b"c"], lambda: [(b"a", b"b"), (b"c", None)])
        assert both(tx) == (b"1", b"1")
        assert tx.get(b"c") is None
        for bounds, found in (((b"a", b"b"), [b"a"]), ((b"c", None), [])):
            assert [one.key for one in tx.range(*bounds, limit=RANGE_LIMIT_MAX, expected=True)] == found

    await store.transact(work)

    assert runs == (2 if store.is_shared else 1)


async def test_ranges_that_are_missed_at_once_are_right_in_every_direction_and_beyond_what_one_statement_takes(
    store: Store,
) -> None:
    await store.commit(Batch(puts={b"%02d" % number: b"v" for number in range(40)}))

    def read(tx: Transaction) -> None:
        bounds = [(b"%02d" % number, b"%02d" % (number + 3)) for number in range(30)]
        tx.prefetch(lambda: [b"00", b"99"], lambda: bounds)
        for start, end in bounds:
            found = [record.key for record in tx.range(start, end, limit=RANGE_LIMIT_MAX, expected=True)]
            assert found == [b"%02d" % number for number in range(int(start), int(end))]
        last = tx.range(b"30", None, limit=2, reverse=True, expected=True)
        assert [record.key for record in last] == [b"39", b"38"]
        assert tx.get(b"99") is None

    await store.transact(read)


async def test_who_follows_a_transaction_is_told_its_revision_once_and_only_of_the_attempt_that_commits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_commits(monkeypatch, store, batch_of(Batch(puts={b"a": b"another writer's"})))
    told: list[tuple[str, int]] = []
    attempts = 0

    def write(tx: Transaction) -> None:
        nonlocal attempts
        tx.get(b"a")
        attempts += 1
        name = f"attempt {attempts}"
        tx.put(b"b", b"1")
        tx.after_commit(lambda revision: told.append((name, revision)))

    await store.transact(write)

    record = await store.get(b"b")
    assert record is not None
    assert told == [("attempt 2", record.mod_revision)]


async def test_in_commit_order_sees_what_was_begun_before_however_large_it_is(store: Store) -> None:
    batch = Batch(puts={b"k%04d" % number: b"" for number in range(2000)})
    committing = asyncio.create_task(store.commit(batch))
    await asyncio.sleep(0)

    record = await store.transact(lambda tx: tx.get(b"k1999"), in_commit_order=True)

    assert record is not None
    assert await committing == record.mod_revision


async def test_many_records_without_a_value_are_new_ones_to_every_reader(store: Store) -> None:
    entries = [b"index-%d" % number for number in range(30)]
    assert await store.get(entries[0]) is None  # What is remembered of it is no longer so afterwards.

    def put_all(tx: Transaction) -> list[bytes]:
        tx.put_all_fresh(entries)
        assert tx.get(entries[1]) is not None
        return [record.key for record in tx.range(b"index-", b"index.", limit=100)]

    assert await store.transact(put_all) == sorted(entries)
    revision = store.revision
    async with store.watch(b"index-", b"index.", after=revision - 1) as watch:
        assert {event.key for event in await anext(watch)} == set(entries)
    first = await store.get(entries[0])
    assert first is not None
    assert (first.value, first.create_revision, first.mod_revision, first.version) == (
        b"",
        revision,
        revision,
        1,
    )
    assert await store.transact(lambda tx: tx.get(entries[2])) == await store.get(entries[2])

    def replace_all(tx: Transaction) -> None:
        for entry in entries:
            tx.delete(entry)
        tx.put(entries[0], b"first")
        tx.put_all_fresh(entries)  # Not new to this transaction, whatever its caller says.
        tx.put(entries[1], b"value")
        tx.delete(entries[2])

    await store.transact(replace_all)
    records = {record.key: record for record in await store.range(b"index-", b"index.", limit=100)}
    assert entries[2] not in records
    assert (records[entries[0]].value, records[entries[1]].value) == (b"", b"value")
    assert records[entries[0]].create_revision == revision
    assert records[entries[3]].version == 2


async def test_a_new_key_is_a_record_like_any_other(store: Store) -> None:
    def create(tx: Transaction) -> None:
        tx.put_new(b"a", b"1")
        tx.put_new(b"b", b"1")

    def move(tx: Transaction) -> None:
        tx.delete(b"a")
        tx.put_new(b"a", b"2")
        tx.put_new(b"c", b"1")
        tx.delete(b"c")

    await store.transact(create)
    await store.transact(move)

    records = await store.range(b"a", b"d", limit=10)
    assert [(record.key, record.value, record.version) for record in records] == [
        (b"a", b"2", 2),
        (b"b", b"1", 1),
    ]
