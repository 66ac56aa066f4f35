"""Durable locks: nothing is told before it is recorded, what can't be recorded did not happen, tokens never fall."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.common.clock import FakeClock
from holdfast.leases.layer.locks.durable import journal
from holdfast.leases.layer.locks.durable.service import DurableLockService
from holdfast.leases.layer.locks.records import Lock, Refused
from holdfast.leases.layer.locks.service import LockOptions
from holdfast.leases.layer.records_pb2 import LockRecord
from holdfast.storage.local.store import LocalStore
from holdfast.storage.store_clock import StoreClock
from tests.unit.leases.durable_locks import (
    Client,
    HeldStore,
    memory_store,
    recorded_tokens,
    service_over,
    turns,
)

OPTIONS = LockOptions(sweep_interval_s=3600, gc_interval_s=3600, idle_s_max=10)


@asynccontextmanager
async def life(
    store: LocalStore, clock: StoreClock | None = None
) -> AsyncIterator[tuple[DurableLockService, HeldStore]]:
    held = HeldStore(store, clock)
    service = service_over(held, OPTIONS)
    async with service.running():
        yield service, held
        held.is_holding = False
        held.let(succeed=True)


async def test_a_grant_a_renewal_and_a_release_are_told_when_they_are_recorded() -> None:
    store = memory_store()
    async with life(store) as (service, held):
        client = Client(service)
        held.is_holding = True
        granted = client.acquire(b"job")
        await turns()
        assert granted.outcomes == []
        held.let(succeed=True)
        await turns()
        assert recorded_tokens(store, b"job") == [granted.token]

        for call in (client.renew(b"job", granted.token, 60), client.release(b"job", granted.token)):
            await turns()
            assert call.outcomes == []
            held.let(succeed=True)
            await turns()
            assert call.outcome is True
        assert recorded_tokens(store, b"job") == []


async def test_what_was_held_is_held_after_a_restart_for_the_rest_of_its_time() -> None:
    clock = FakeClock()
    store = memory_store(clock)
    async with life(store) as (service, _):
        granted = Client(service, "10.0.0.1:77").acquire(b"job", ttl_s=30)
        await turns()
    clock.advance(12)

    async with life(store) as (service, _):
        (view,) = service.list()
        assert [(holder.token, holder.address) for holder in view.holders] == [(granted.token, "10.0.0.1:77")]
        assert view.holders[0].ends_in_s == pytest.approx(18, abs=0.01)
        other = Client(service)
        assert other.acquire(b"job").outcome is Refused.TIMEOUT
        waiting = other.acquire(b"job", timeout_s=60)
        clock.advance(18)
        service.sweep()
        await turns()
        assert waiting.token > granted.token


async def test_a_holder_of_an_earlier_life_renews_and_releases_by_its_token() -> None:
    store = memory_store()
    async with life(store) as (service, _):
        granted = Client(service).acquire(b"job")
        await turns()

    async with life(store) as (service, _):
        client = Client(service)
        for call in (client.renew(b"job", granted.token), client.release(b"job", granted.token)):
            await turns()
            assert call.outcome is True
        again = client.acquire(b"job")
        await turns()
        assert again.token > granted.token


async def test_what_can_not_be_recorded_did_not_happen() -> None:
    store = memory_store()
    async with life(store) as (service, held):
        holder, first, second = Client(service), Client(service), Client(service)
        granted = holder.acquire(b"job")
        await turns()
        waiting, queued = first.acquire(b"job", timeout_s=60), second.enqueue(b"job")
        held.is_holding = True

        released, free = holder.release(b"job", granted.token), second.acquire(b"free")
        await turns()
        held.let(succeed=False)
        await turns()

        assert released.outcome is Refused.UNAVAILABLE
        assert free.outcome is Refused.UNAVAILABLE
        assert (waiting.outcomes, queued.outcomes) == ([], [None])
        view = service.describe(b"job")
        assert view is not None
        assert [one.token for one in view.holders] == recorded_tokens(store, b"job") == [granted.token]
        assert [one.session for one in view.waiters] == [first.session.number, second.session.number]
        assert service.describe(b"free") is None

        held.is_holding = False
        released = holder.release(b"job", granted.token)
        await turns()
        assert released.outcome is True
        first.release(b"job", waiting.token)
        await turns()
        handed = second.wait(b"job")
        await turns()
        assert recorded_tokens(store, b"job") == [handed.token]


async def test_the_longest_lease_is_recorded_and_held_after_a_restart() -> None:
    store = memory_store()
    longest_s = (1 << 63) - 1
    async with life(store) as (service, _):
        first, second = Client(service), Client(service)
        granted = first.acquire(b"job", ttl_s=longest_s)
        await turns()
        waiting = second.acquire(b"job", ttl_s=longest_s, timeout_s=60)
        released = first.release(b"job", granted.token)
        await turns()
        renewed = second.renew(b"job", waiting.token, longest_s)
        await turns()
        assert (released.outcome, renewed.outcome) == (True, True)

    async with life(store) as (service, _):
        view = service.describe(b"job")
        assert view is not None
        assert [(holder.token, holder.ttl_s) for holder in view.holders] == [(waiting.token, longest_s)]


def defective(lock: Lock, token: int) -> LockRecord:
    raise ValueError


async def test_a_defect_while_a_release_is_recorded_loses_no_waiter(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory_store()
    async with life(store) as (service, _):
        holder, other = Client(service), Client(service)
        granted = holder.acquire(b"job")
        await turns()
        waiting = other.acquire(b"job", timeout_s=60)
        with monkeypatch.context() as patch:
            patch.setattr(journal, "record_of", defective)
            released = holder.release(b"job", granted.token)
            await turns()
        assert released.outcome is Refused.UNAVAILABLE
        assert waiting.outcomes == []

        released = holder.release(b"job", granted.token)
        await turns()
        assert released.outcome is True
        assert recorded_tokens(store, b"job") == [waiting.token]


async def test_requests_for_a_key_under_way_wait_for_their_turn_and_share_the_next_commit() -> None:
    store = memory_store()
    async with life(store) as (service, held):
        held.is_holding = True
        clients = [Client(service) for _ in range(5)]
        calls = [client.acquire(b"pool", limit=3) for client in clients]
        await turns()
        assert len(held.waiting) == 1
        held.let(succeed=True)
        await turns()
        assert len(held.waiting) == 1

        held.let(succeed=True)
        await turns()

        assert [call.outcome for call in calls[3:]] == [Refused.TIMEOUT] * 2
        assert sorted(recorded_tokens(store, b"pool")) == [call.token for call in calls[:3]]


async def test_who_is_gone_before_the_commit_holds_nothing_after_it() -> None:
    store = memory_store()
    async with life(store) as (service, held):
        held.is_holding = True
        gone, waiter = Client(service), Client(service)
        call, waiting = gone.acquire(b"job"), waiter.acquire(b"job", timeout_s=60)
        await turns()
        gone.vanish()
        held.is_holding = False
        held.let(succeed=True)
        await turns()

        assert call.outcomes == []
        assert recorded_tokens(store, b"job") == [waiting.token]


async def test_the_end_of_a_session_that_can_not_be_recorded_is_tried_again() -> None:
    store = memory_store()
    async with life(store) as (service, held):
        gone, waiter = Client(service), Client(service)
        gone.acquire(b"job")
        await turns()
        waiting = waiter.acquire(b"job", timeout_s=60)
        held.is_holding = True
        gone.vanish()
        await turns()
        held.let(succeed=False)
        await turns()
        assert waiting.outcomes == []

        held.is_holding = False
        service.sweep()
        await turns()

        assert recorded_tokens(store, b"job") == [waiting.token]


async def test_a_cancelled_request_gives_back_what_it_gets() -> None:
    store = memory_store()
    async with life(store) as (service, held):
        held.is_holding = True
        client = Client(service)
        told: list[object] = []
        pending = service.acquire(client.session, b"job", 1, 30, 60, told.append)
        assert not isinstance(pending, Refused | int | None)
        service.cancel(pending)  # type: ignore[arg-type]  # It is pending.
        held.is_holding = False
        await turns()
        held.let(succeed=True)
        await turns()

        assert told == []
        assert recorded_tokens(store, b"job") == []


async def test_another_process_that_was_faster_is_noticed_and_its_grant_counts() -> None:
    store = memory_store()
    async with life(store) as (one, _), life(store) as (two, _):
        mine = Client(one).acquire(b"job")
        await turns()

        theirs = Client(two).acquire(b"job")
        await turns()

        assert theirs.outcome is Refused.TIMEOUT
        assert recorded_tokens(store, b"job") == [mine.token]


async def test_a_token_is_greater_than_all_before_it_also_when_the_key_was_forgotten_and_the_clock_went_back() -> (
    None
):
    clock = FakeClock()
    store = memory_store(clock)
    async with life(store) as (service, _):
        granted = Client(service).acquire(b"job")
        await turns()
        Client(service).release(b"job", granted.token)
        await turns()
        clock.advance(11)
        await service.collect()
        await turns()
        assert service.list() == []

    earlier = StoreClock(FakeClock(clock.wall_s() - 86_400))
    async with life(store, earlier) as (service, _):
        again = Client(service).acquire(b"job")
        await turns()
        assert again.token > granted.token


async def test_waiters_are_refused_when_the_service_stops_and_what_is_held_may_be_released() -> None:
    store = memory_store()
    async with life(store) as (service, _):
        holder, waiter = Client(service), Client(service)
        granted = holder.acquire(b"job")
        await turns()
        waiting = waiter.acquire(b"job", timeout_s=60)

        service.begin_stop()

        assert waiting.outcome is Refused.UNAVAILABLE
        assert waiter.acquire(b"job", timeout_s=60).outcome is Refused.UNAVAILABLE
        released = holder.release(b"job", granted.token)
        await turns()
        assert released.outcome is True


async def test_a_waiter_whose_time_is_over_leaves_the_queue() -> None:
    store = memory_store()
    async with life(store) as (service, _):
        holder, waiter = Client(service), Client(service)
        granted = holder.acquire(b"job")
        await turns()
        waiting = waiter.acquire(b"job", timeout_s=0.01)
        await waiting.is_told.wait()

        assert waiting.outcome is Refused.TIMEOUT
        holder.release(b"job", granted.token)
        await turns()
        assert recorded_tokens(store, b"job") == []
