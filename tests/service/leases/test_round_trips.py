"""What a call costs on a database: the commit, and one round trip before it for what the cache does not have."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast.common.clock import SystemClock
from holdfast.common.ids import new_xid
from holdfast.leases.layer.errors import Waiting
from holdfast.leases.layer.grant import Grant
from holdfast.leases.layer.records import LEASES
from holdfast.storage.fetched import Fetched, Missing
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from holdfast.storage.postgres.feed.cache import GUESS_AFTER
from holdfast.storage.postgres.store import PostgresStore, open_postgres
from holdfast.txn.layer.port import Member
from tests.unit.leases.test_service import A, B, Plane, open_plane


class Trips:
    """Counts what a store sends."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seen: list[str] = []
        fetch, commit = store._fetch, store.commit

        async def counted_fetch(missing: Missing, fetched: Fetched) -> None:
            self._seen.append("fetch")
            await fetch(missing, fetched)

        async def counted_commit(batch: Batch) -> int:
            self._seen.append("commit")
            return await commit(batch)

        monkeypatch.setattr(store, "_fetch", counted_fetch)
        monkeypatch.setattr(store, "commit", counted_commit)

    async def of(self, call: Callable[[], Awaitable[object]]) -> list[str]:
        self._seen.clear()
        await call()
        return list(self._seen)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with open_postgres(postgres_url, StoreOptions()) as opened:
        yield opened


@pytest.fixture
async def plane(store: PostgresStore) -> AsyncIterator[Plane]:
    async with open_plane(store, SystemClock()) as opened:
        yield opened


async def cycle(trips: Trips, plane: Plane, member: Member) -> list[list[str]]:
    """What acquire, update and release of a key cost."""
    grants: list[Grant] = []

    async def acquire() -> None:
        grants.append(await plane.acquire(member))

    return [
        await trips.of(acquire),
        await trips.of(lambda: plane.update(member, grants[0], b'{"n":1}')),
        await trips.of(lambda: plane.release(member, grants[0])),
    ]


async def joint_cycle(trips: Trips, plane: Plane, number: int, txn_id: str = "") -> list[list[str]]:
    """What a transaction over two new keys costs: acquire twice, update twice, release of both by one of them."""
    one, other = A._replace(key=f"one {number}"), A._replace(key=f"other {number}")
    grants: list[Grant] = []

    async def acquire(member: Member, txn_id: str = "") -> None:
        grants.append(await plane.acquire(member, txn_id=txn_id))

    return [
        await trips.of(lambda: acquire(one, txn_id)),
        await trips.of(lambda: acquire(other, grants[0].txn_id)),
        await trips.of(lambda: plane.update(one, grants[0], b'{"n":1}')),
        await trips.of(lambda: plane.update(other, grants[1], b'{"n":1}')),
        await trips.of(lambda: plane.release(one, grants[0])),
    ]


async def warm_up(trips: Trips, plane: Plane) -> None:
    """Keys that were new one after the other, until the next one is expected to be new as well."""
    for number in range(GUESS_AFTER):
        await cycle(trips, plane, A._replace(key=f"warm {number}"))


COMMIT, FETCHED = ["commit"], ["fetch", "commit"]


async def test_what_is_not_known_yet_is_fetched_once_and_committed_once(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(store, monkeypatch)

    first = await cycle(trips, plane, A)

    assert first == [FETCHED, FETCHED, FETCHED]


async def test_a_key_that_was_used_here_costs_one_commit_a_call(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(store, monkeypatch)
    await warm_up(trips, plane)
    await cycle(trips, plane, A)

    again = await cycle(trips, plane, A)

    assert again == [COMMIT, COMMIT, COMMIT]


async def test_a_new_key_costs_one_commit_a_call_after_others_were_new(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(store, monkeypatch)
    await warm_up(trips, plane)

    assert await cycle(trips, plane, A) == [COMMIT, COMMIT, COMMIT]


async def test_a_key_that_is_wrongly_taken_for_new_costs_one_conflict_and_ends_the_guessing(
    plane: Plane, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for member in (A, B):
        await plane.release(member, await plane.acquire(member))
    async with (
        open_postgres(postgres_url, StoreOptions()) as later,
        open_plane(later, SystemClock()) as other,
    ):
        trips = Trips(later, monkeypatch)
        await warm_up(trips, other)

        first = await trips.of(lambda: other.acquire(A))
        second = await trips.of(lambda: other.acquire(B))

    assert first == ["commit", "fetch", "commit"]
    assert second == FETCHED


async def test_a_lease_of_another_process_is_known_by_the_feed(
    store: PostgresStore, plane: Plane, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_postgres(postgres_url, StoreOptions()) as elsewhere,
        open_plane(elsewhere, SystemClock()) as other,
    ):
        async with asyncio.timeout(20), store.watch(*LEASES.bounds()) as watch:
            grant = await other.acquire(A)
            await anext(watch)
        trips = Trips(store, monkeypatch)

        updated = await trips.of(lambda: plane.update(A, grant, b'{"n":1}'))
        updated_again = await trips.of(lambda: plane.update(A, grant, b'{"n":2}'))

    assert updated == FETCHED  # Document and stage.
    assert updated_again == COMMIT


async def test_a_transaction_that_its_first_lease_began_fetches_once_who_takes_part_and_nothing_else(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(store, monkeypatch)
    for number in range(2 * GUESS_AFTER):
        await joint_cycle(trips, plane, number)

    assert await joint_cycle(trips, plane, -1) == [COMMIT, FETCHED, COMMIT, COMMIT, COMMIT]
    assert await joint_cycle(trips, plane, -2, new_xid()) == [FETCHED, COMMIT, COMMIT, COMMIT, COMMIT]


async def test_a_transaction_under_an_id_of_the_client_fetches_nothing_after_others_were_new(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(store, monkeypatch)
    for number in range(2 * GUESS_AFTER):
        await joint_cycle(trips, plane, number, new_xid())

    assert await joint_cycle(trips, plane, -1, new_xid()) == [COMMIT] * 5


async def test_a_transaction_that_is_wrongly_taken_for_new_costs_one_conflict(
    plane: Plane, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_postgres(postgres_url, StoreOptions()) as later,
        open_plane(later, SystemClock()) as other,
    ):
        trips = Trips(later, monkeypatch)
        for number in range(2 * GUESS_AFTER):
            await joint_cycle(trips, other, number, new_xid())
        begun = await plane.acquire(A, txn_id=new_xid())

        joined = await trips.of(lambda: other.acquire(B, txn_id=begun.txn_id))
        await plane.release(A, begun)

        assert joined[0] == "commit"
        assert joined[-1] == "commit"
        assert (await plane.acquire(B)).txn_id != begun.txn_id  # The release ended both.


async def test_a_refusal_costs_one_fetch(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(store, monkeypatch)
    await plane.acquire(A)

    async def refused() -> None:
        with pytest.raises(Waiting):
            await plane.acquire(A)

    assert await trips.of(refused) == ["fetch"]


async def test_without_a_cache_every_call_fetches(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        open_postgres(postgres_url, StoreOptions(postgres_cache_bytes_max=0)) as store,
        open_plane(store, SystemClock()) as plane,
    ):
        trips = Trips(store, monkeypatch)
        await warm_up(trips, plane)

        assert await cycle(trips, plane, A) == [FETCHED, FETCHED, FETCHED]
