"""The cache of a store on PostgreSQL: kept by the feed, dropped with it, never a reason for a wrong answer."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from holdfast.storage.codec.encoded import EncodedStore
from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.fetched import Fetched, Missing
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Transaction
from holdfast.storage.postgres.store import PostgresStore, open_postgres
from tests.conformance.backends import KEYRING
from tests.infra.two_stores import next_keys

OPTIONS = StoreOptions(postgres_poll_interval_s=3600.0)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with open_postgres(postgres_url, OPTIONS) as opened:
        yield opened


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with open_postgres(postgres_url, OPTIONS) as opened:
        yield opened


def append(text: bytes) -> Callable[[Transaction], bytes]:
    def work(tx: Transaction) -> bytes:
        record = tx.get(b"a")
        value = (b"" if record is None else record.value) + text
        tx.put(b"a", value)
        return value

    return work


async def test_a_second_transaction_reads_what_the_first_one_wrote(store: PostgresStore) -> None:
    await store.transact(append(b"1"))

    assert await store.transact(append(b"2")) == b"12"
    assert (store.figures()["cache_hits"], store.figures()["cache_misses"]) == (1, 1)
    record = await store.get(b"a")
    assert record is not None
    assert (record.value, record.version) == (b"12", 2)


async def test_what_another_process_wrote_arrives_by_the_feed(
    store: PostgresStore, other: PostgresStore
) -> None:
    await store.transact(append(b"1"))
    async with store.watch(b"z", b"zz") as watch:
        await other.transact(append(b"2"))
        await store.commit(Batch(puts={b"z": b""}))
        assert await next_keys(watch) == [b"z"]  # And with it all that was before.

    assert await store.transact(append(b"3")) == b"123"
    assert store.figures()["cache_conflicts"] == 0


async def test_what_the_feed_has_not_told_yet_costs_a_conflict(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late() -> None:
        pass

    monkeypatch.setattr(store._follower, "_look", late)
    await store.transact(append(b"1"))
    await other.transact(append(b"2"))

    assert await store.transact(append(b"3")) == b"123"
    assert await store.transact(append(b"4")) == b"1234"
    assert store.figures()["cache_conflicts"] == 1


async def test_own_commits_alone_are_not_read_back(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late() -> None:
        pass

    monkeypatch.setattr(store._follower, "_look", late)
    for _ in range(5):
        await store.transact(append(b"x"))

    assert store._follower._hub.revision == store.revision
    assert b"a" in store._cache


async def test_a_feed_that_fails_empties_the_cache_until_it_goes_on(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.transact(append(b"1"))

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(store._follower, "_page", away)
        await store._follower._look()
        is_empty = not store._cache.is_readable and b"a" not in store._cache
    await store._follower._look()

    assert is_empty
    assert store._cache.is_readable
    assert await store.transact(append(b"2")) == b"12"


async def test_history_that_is_gone_empties_the_cache(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.transact(append(b"1"))

    async def late() -> None:
        pass

    with monkeypatch.context() as held:
        held.setattr(store._follower, "_look", late)
        await other.transact(append(b"2"))
        await other.compact(other.revision)
    await store._follower._look()

    assert b"a" not in store._cache
    assert await store.transact(append(b"3")) == b"123"


async def test_a_view_and_a_plain_read_do_not_use_it(store: PostgresStore, other: PostgresStore) -> None:
    await store.transact(append(b"1"))
    hits = store.figures()["cache_hits"]
    await other.transact(append(b"2"))

    viewed = await store.view(lambda view: view.get(b"a"))
    read = await store.get(b"a")

    assert viewed is not None
    assert viewed.value == b"12"
    assert read == viewed
    assert store.figures()["cache_hits"] == hits


async def test_with_encryption_the_cache_holds_what_is_stored(postgres_url: str) -> None:
    async with open_postgres(postgres_url, replace(OPTIONS, keyring=KEYRING)) as inner:
        store = EncodedStore(inner, KEYRING)
        await store.transact(append(b"secret"))

        assert await store.transact(append(b"!")) == b"secret!"
        known = inner._cache.find(b"a")

    assert known is not None
    assert known.record is not None
    assert b"secret" not in known.record.value
    assert inner.figures()["cache_hits"] == 2


async def test_after_a_conflict_all_that_was_read_comes_by_one_statement(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another process that commits all the time is ahead each time."""
    async with open_postgres(postgres_url, StoreOptions()) as store:
        await store.commit(Batch(puts={b"%d" % number: b"%d" % (number + 1) for number in range(5)}))
        fetches = commits = 0
        fetch, commit = PostgresStore._fetch, PostgresStore.commit

        async def counted(self: PostgresStore, missing: Missing, fetched: Fetched) -> None:
            nonlocal fetches
            fetches += 1
            await fetch(self, missing, fetched)

        async def overtaken(self: PostgresStore, batch: Batch) -> int:
            nonlocal commits, fetches
            commits += 1
            if commits == 1:
                await commit(self, Batch(puts={b"3": b"4"}))
                fetches = 0
            return await commit(self, batch)

        def follow(tx: Transaction) -> None:
            """Each key says which one is read next."""
            key = b"0"
            while (record := tx.get(key)) is not None:
                key = record.value
            assert tx.range(b"0", b"3", limit=10)
            tx.put(key, b"end")

        monkeypatch.setattr(PostgresStore, "_fetch", counted)
        monkeypatch.setattr(PostgresStore, "commit", overtaken)
        await store.transact(follow)

        assert (commits, fetches) == (2, 1)
