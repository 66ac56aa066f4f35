"""Transactions: as if each ran alone."""

import asyncio

import pytest

from holdfast.storage.errors import TransactionContended
from holdfast.storage.port import Batch, Store, Transaction


async def increment(tx: Transaction) -> int:
    record = await tx.get(b"counter")
    value = int(record.value) + 1 if record else 1
    tx.put(b"counter", b"%d" % value)
    return value


async def test_concurrent_increments_are_all_counted(store: Store) -> None:
    values = await asyncio.gather(*[store.transact(increment, attempts_max=1000) for _ in range(50)])

    assert sorted(values) == list(range(1, 51))


async def test_a_transaction_sees_its_own_writes_and_nobody_else_does(store: Store) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"2"}))

    async def work(tx: Transaction) -> list[bytes]:
        tx.put(b"a", b"own")
        tx.put(b"c", b"new")
        tx.delete(b"b")
        assert (await store.get(b"c")) is None
        one = await tx.get(b"a")
        assert one is not None
        assert one.value == b"own"
        assert await tx.get(b"b") is None
        assert set(await tx.get_many([b"a", b"b", b"c", b"d"])) == {b"a", b"c"}
        return [record.key for record in await tx.range(b"a", b"z", limit=2, reverse=True)]

    assert await store.transact(work) == [b"c", b"a"]
    assert await store.get(b"b") is None


async def test_an_error_in_the_function_writes_nothing(store: Store) -> None:
    async def work(tx: Transaction) -> None:
        await tx.get(b"a")
        tx.put(b"a", b"1")
        raise KeyError("domain")

    with pytest.raises(KeyError, match="domain"):
        await store.transact(work)

    assert await store.get(b"a") is None


async def test_a_point_read_that_changes_makes_it_run_again(store: Store) -> None:
    runs = 0

    async def work(tx: Transaction) -> bytes:
        nonlocal runs
        runs += 1
        record = await tx.get(b"a")
        if runs == 1:
            await store.commit(Batch(puts={b"a": b"other"}))
        tx.put(b"b", record.value if record else b"none")
        return b""

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
    store: Store, intruder: Batch, reverse: bool
) -> None:
    await store.commit(Batch(puts={b"r1": b"", b"r9": b""}))
    runs = 0

    async def work(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await tx.range(b"r", b"s", limit=10, expected=True, reverse=reverse)
        if runs == 1:
            await store.commit(intruder)
        tx.put(b"result", b"")

    await store.transact(work)

    assert runs == 2


async def test_what_was_not_read_of_an_expected_range_may_change(store: Store) -> None:
    await store.commit(Batch(puts={b"r1": b"", b"r2": b"", b"r9": b""}))
    runs = 0

    async def work(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await tx.range(b"r", b"s", limit=2, expected=True)
        await store.commit(Batch(puts={b"r5": b"", b"q": b""}))
        tx.put(b"result", b"")

    await store.transact(work)

    assert runs == 1


async def test_a_range_that_is_not_expected_may_change(store: Store) -> None:
    runs = 0

    async def work(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await tx.range(b"r", b"s", limit=10)
        await store.commit(Batch(puts={b"r5": b""}))
        tx.put(b"result", b"")

    await store.transact(work)

    assert runs == 1


async def test_attempts_are_bounded_and_end_in_a_typed_error(store: Store) -> None:
    runs = 0

    async def work(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await tx.get(b"a")
        await store.commit(Batch(puts={b"a": b"%d" % runs}))
        tx.put(b"a", b"mine")

    with pytest.raises(TransactionContended) as caught:
        await store.transact(work, attempts_max=3)

    assert runs == 3
    assert caught.value.key == b"a"
    assert caught.value.attempts == 3


async def test_two_reads_of_a_transaction_without_writes_are_of_one_moment(store: Store) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"1"}))
    runs = 0

    async def work(tx: Transaction) -> tuple[bytes, bytes]:
        nonlocal runs
        runs += 1
        one = await tx.get(b"a")
        if runs == 1:
            await store.commit(Batch(puts={b"a": b"2", b"b": b"2"}))
        other = await tx.get(b"b")
        assert one is not None
        assert other is not None
        return one.value, other.value

    assert await store.transact(work) == (b"2", b"2")


async def test_an_error_made_of_a_torn_view_is_not_believed(store: Store) -> None:
    await store.commit(Batch(puts={b"a": b"1", b"b": b"1"}))
    runs = 0

    async def work(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        one = await tx.get(b"a")
        if runs == 1:
            await store.commit(Batch(puts={b"a": b"2", b"b": b"2"}))
        other = await tx.get(b"b")
        assert one is not None
        assert other is not None
        if one.value != other.value:
            raise ValueError("torn")

    await store.transact(work)

    assert runs == 2


async def test_who_follows_a_transaction_is_told_its_revision_once_and_only_of_the_attempt_that_commits(
    store: Store,
) -> None:
    told: list[tuple[str, int]] = []
    attempts = 0

    async def write(tx: Transaction) -> None:
        nonlocal attempts
        attempts += 1
        name = f"attempt {attempts}"
        await tx.get(b"a")
        if attempts == 1:
            await store.commit(Batch(puts={b"a": b"somebody else's"}))
        tx.put(b"b", b"1")
        tx.after_commit(lambda revision: told.append((name, revision)))

    await store.transact(write)

    record = await store.get(b"b")
    assert record is not None
    assert told == [("attempt 2", record.mod_revision)]
