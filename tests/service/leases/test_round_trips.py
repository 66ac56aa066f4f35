"""What a call costs on a database: the commit, and one round trip before it for what the cache does not have."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from holdfast.common.clock import SystemClock
from holdfast.common.ids import new_xid, uuid7
from holdfast.leases.layer.errors import Waiting
from holdfast.leases.layer.grant import Grant
from holdfast.leases.layer.records import LEASES
from holdfast.queue.layer.message.staging import NewStaged, stage
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import QueueMessage, StagedMessage
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import RANGE_LIMIT_MAX, Batch, Record, Transaction
from holdfast.storage.postgres.feed.cache import GUESS_AFTER
from holdfast.storage.postgres.store import PostgresStore, open_postgres
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.port import Member
from tests.unit.leases.test_service import A, B, Plane, open_plane


class Trips:
    """Counts the statements that the transactions of this process send, whatever connection they go by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seen: list[str] = []
        for name in ("fetch", "fetchrow", "fetchval"):
            send = getattr(asyncpg.Connection, name)
            monkeypatch.setattr(asyncpg.Connection, name, self._counted(send))

    def _counted(self, send: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        def sent(connection: Any, query: str, *args: Any, **named: Any) -> Awaitable[Any]:
            if "commit_group" in query:
                self._seen.append("commit")
            elif "records" in query and "changes" not in query:  # Else the feed or the clock asks.
                self._seen.append("fetch")
            return send(connection, query, *args, **named)

        return sent

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


ORDERS = QueueAddress("default", "orders")
COMMIT, FETCHED = ["commit"], ["fetch", "commit"]


async def test_what_is_not_known_yet_is_fetched_once_and_committed_once(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(monkeypatch)

    first = await cycle(trips, plane, A)

    assert first == [FETCHED, FETCHED, FETCHED]


async def test_a_key_that_was_used_here_costs_one_commit_a_call(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(monkeypatch)
    await warm_up(trips, plane)
    await cycle(trips, plane, A)

    again = await cycle(trips, plane, A)

    assert again == [COMMIT, COMMIT, COMMIT]


async def test_a_new_key_costs_one_commit_a_call_after_others_were_new(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(monkeypatch)
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
        trips = Trips(monkeypatch)
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
        trips = Trips(monkeypatch)

        updated = await trips.of(lambda: plane.update(A, grant, b'{"n":1}'))
        updated_again = await trips.of(lambda: plane.update(A, grant, b'{"n":2}'))

    assert updated == FETCHED  # Document and stage.
    assert updated_again == COMMIT


async def test_a_transaction_that_its_first_lease_began_fetches_once_who_takes_part_and_nothing_else(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(monkeypatch)
    for number in range(2 * GUESS_AFTER):
        await joint_cycle(trips, plane, number)

    assert await joint_cycle(trips, plane, -1) == [COMMIT, FETCHED, COMMIT, COMMIT, COMMIT]
    assert await joint_cycle(trips, plane, -2, new_xid()) == [FETCHED, COMMIT, COMMIT, COMMIT, COMMIT]


async def test_a_transaction_under_an_id_of_the_client_fetches_nothing_after_others_were_new(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(monkeypatch)
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
        trips = Trips(monkeypatch)
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
    trips = Trips(monkeypatch)
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
        trips = Trips(monkeypatch)
        await warm_up(trips, plane)

        assert await cycle(trips, plane, A) == [FETCHED, FETCHED, FETCHED]


async def test_keys_and_ranges_that_are_named_together_come_in_one_round_trip(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [b"a", b"b/1", b"b/2", b"c/1", b"d"]
    await store.commit(Batch(puts={key: key for key in keys}))
    trips = Trips(monkeypatch)
    seen: list[list[Record]] = []

    def read(tx: Transaction) -> None:
        tx.prefetch(lambda: [b"a", b"x"], lambda: [(b"b/", b"b0"), (b"c/", b"c0")])
        tx.prefetch(lambda: [b"d"], lambda: [(b"y/", b"y0")])
        points = tx.get_many([b"a", b"d", b"x"])
        ranges = [(b"b/", b"b0"), (b"c/", b"c0"), (b"y/", b"y0")]
        found = [tx.range(*bounds, limit=RANGE_LIMIT_MAX, expected=True) for bounds in ranges]
        seen[:] = [list(points.values()), *found]

    assert await trips.of(lambda: store.transact(read)) == ["fetch"]
    assert [[record.key for record in part] for part in seen] == [
        [b"a", b"d"],
        [b"b/1", b"b/2"],
        [b"c/1"],
        [],
    ]
    assert [record.value for part in seen for record in part] == [b"a", b"d", b"b/1", b"b/2", b"c/1"]


async def test_sending_into_a_transaction_of_another_process_fetches_what_is_known_of_it_together(
    plane: Plane, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = await plane.acquire(A, txn_id=new_xid())
    async with (
        open_postgres(postgres_url, StoreOptions()) as elsewhere,
        open_plane(elsewhere, SystemClock()) as other,
    ):
        trips = Trips(monkeypatch)
        coordinator = Coordinator(elsewhere.clock)
        coordinator.enlist(other.leases)

        def send(tx: Transaction) -> None:
            message = NewStaged(ORDERS, uuid7(), QueueMessage(), StagedMessage())
            stage(tx, grant.txn_id, [message], 1000, elsewhere.clock.now_ms(), coordinator)

        assert await trips.of(lambda: elsewhere.transact(send)) == [
            "fetch",
            "fetch",
            "commit",
        ]  # The second one has its leases.


async def test_joining_a_transaction_of_another_process_fetches_key_and_members_together(
    plane: Plane, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.release(B, await plane.acquire(B))
    grant = await plane.acquire(A, txn_id=new_xid())
    async with (
        open_postgres(postgres_url, StoreOptions()) as elsewhere,
        open_plane(elsewhere, SystemClock()) as other,
    ):
        trips = Trips(monkeypatch)

        joined = await trips.of(lambda: other.acquire(B, txn_id=grant.txn_id))

    assert joined == ["fetch", "fetch", "commit"]  # The second one has the lease of the other member.
