"""Many keepalives in one call share commits, and none of them decides about another."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.common.clock import FakeClock
from holdfast.common.errors import InvalidBody
from holdfast.leases.layer.errors import LeaseExpired, LeaseRequired
from holdfast.leases.layer.grant import Grant, Renewal
from holdfast.leases.layer.keepalive_batch import CHUNK
from holdfast.leases.protocol.schemas import batched_keepalives
from holdfast.storage.errors import TransactionContended
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Member
from tests.unit.leases.test_service import Plane, claim, open_plane


async def acquired(plane: Plane, count: int, **params: object) -> list[Renewal]:
    members = [Member("default", f"key/{number}") for number in range(count)]
    grants: list[Grant] = [await plane.acquire(member, **params) for member in members]
    return [Renewal(member, claim(grant), 60) for member, grant in zip(members, grants, strict=True)]


async def test_renewals_of_one_batch_share_a_commit_per_chunk() -> None:
    async with open_memory(StoreOptions()) as store, open_plane(store) as plane:
        renewals = await acquired(plane, 2 * CHUNK + 1)
        before = store.revision

        outcomes = await plane.leases.keepalive_many(renewals)

        assert store.revision - before == 3
        assert all(isinstance(outcome, int) for outcome in outcomes)


async def test_all_renewals_of_one_transaction_share_a_commit() -> None:
    async with open_memory(StoreOptions()) as store, open_plane(store) as plane:
        first = await plane.acquire(Member("default", "first"))
        renewals = await acquired(plane, 30, txn_id=first.txn_id)
        before = store.revision

        outcomes = await plane.leases.keepalive_many(renewals)

        assert store.revision - before == 1
        assert all(isinstance(outcome, int) for outcome in outcomes)


async def test_a_lease_that_is_over_fails_alone() -> None:
    clock = FakeClock()
    async with open_memory(StoreOptions()) as store, open_plane(store, clock) as plane:
        brief = Renewal(
            Member("default", "brief"), claim(await plane.acquire(Member("default", "brief"), ttl_s=5)), 60
        )
        renewals = await acquired(plane, 3)
        clock.advance(6)

        outcomes = await plane.leases.keepalive_many([renewals[0], brief, *renewals[1:]])

        assert isinstance(outcomes[1], LeaseExpired | LeaseRequired)
        assert [isinstance(outcome, int) for outcome in outcomes] == [True, False, True, True]


async def test_the_same_lease_twice_in_a_batch_ends_as_the_last_one_asks() -> None:
    async with open_memory(StoreOptions()) as store, open_plane(store) as plane:
        [renewal] = await acquired(plane, 1)

        outcomes = await plane.leases.keepalive_many([renewal, renewal._replace(ttl_s=120)])
        described = await plane.leases.describe(renewal.member)

        assert outcomes[1] == described.expires_at_unix


async def test_a_chunk_that_is_fought_over_is_renewed_lease_by_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_memory(StoreOptions()) as store, open_plane(store) as plane:
        renewals = await acquired(plane, 3)
        transact: Any = store.transact
        calls = 0

        async def contended(fn: Callable[[Transaction], Awaitable[Any]], **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise TransactionContended(b"key", 16)
            return await transact(fn, **more)

        monkeypatch.setattr(store, "transact", contended)

        outcomes = await plane.leases.keepalive_many(renewals)

        assert calls == 4
        assert all(isinstance(outcome, int) for outcome in outcomes)


def test_a_renewal_that_is_no_object_is_refused_in_words_of_the_wire() -> None:
    """Not with the name of a class of ours."""
    (refused,) = batched_keepalives(b'{"renewals":[7]}')

    assert isinstance(refused, InvalidBody)
    assert refused.detail == "Input should be an object"
