"""What the routes of locks give away and take back, with a clock of the test."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import Answer, Request
from holdfast.common.serving.drain import Drain
from holdfast.leases.layer.locks.records import Session
from holdfast.leases.layer.locks.service import LockOptions, LockService
from holdfast.leases.layer.locks.table import TableLimits
from holdfast.leases.protocol.locks import places
from holdfast.leases.protocol.locks.routes import LockRoutes
from holdfast.leases.protocol.locks.schemas import (
    AcquireLockRequest,
    EnqueueRequest,
    ReleaseLockRequest,
    WaitRequest,
)
from holdfast.leases.protocol.locks.withdrawal import WithdrawLockRequest, granted_lock

TTL_S = 30


class Clock:
    now_s = 100.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def routes(clock: Clock) -> LockRoutes:
    routes = LockRoutes(Drain())
    options = LockOptions(table=TableLimits(4, 1))
    routes.service = LockService(options, lambda: clock.now_s)
    return routes


def request() -> Request:
    return Request("POST", "/v1/locks/acquire", b"", [], b"", None, None, "cid")


async def acquire(routes: LockRoutes, key: str = "k") -> Answer:
    return await routes.acquire(request(), AcquireLockRequest(key=key, ttl_seconds=TTL_S))


async def enqueue(routes: LockRoutes, key: str = "k") -> Answer:
    return await routes.enqueue(request(), EnqueueRequest(key=key, ttl_seconds=TTL_S))


def members(answer: Answer) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer.body)
    return told


def unsent(answer: Answer) -> None:
    """Its client is gone."""
    assert answer.on_unsent is not None
    answer.on_unsent()


def held(routes: LockRoutes, key: bytes = b"k") -> int:
    view = routes.service.describe(key)
    return 0 if view is None else len(view.holders)


def waiting(routes: LockRoutes, key: bytes = b"k") -> int:
    view = routes.service.describe(key)
    return 0 if view is None else len(view.waiters)


async def test_a_grant_that_was_not_sent_is_released(routes: LockRoutes) -> None:
    answer = await acquire(routes)
    assert held(routes) == 1

    unsent(answer)

    assert held(routes) == 0


async def test_a_ticket_that_was_not_sent_gives_its_place_up(routes: LockRoutes) -> None:
    await acquire(routes)
    answer = await enqueue(routes)
    assert waiting(routes) == 1

    unsent(answer)

    assert waiting(routes) == 0


@pytest.mark.parametrize("ask", [acquire, enqueue])
async def test_a_gateway_takes_back_what_its_client_did_not_get(
    routes: LockRoutes, ask: Callable[[LockRoutes], Any]
) -> None:
    grants = granted_lock(())
    grants.feed((await ask(routes)).body)
    undo = grants.request()
    assert undo is not None

    assert await routes.withdraw(WithdrawLockRequest.model_validate_json(undo))

    assert (held(routes), waiting(routes)) == (0, 0)
    grants.handed_over()
    assert grants.request() is None


async def test_a_gateway_takes_back_a_ticket(routes: LockRoutes) -> None:
    await acquire(routes)
    grants = granted_lock(())
    grants.feed((await enqueue(routes)).body)
    undo = grants.request()
    assert undo is not None

    assert await routes.withdraw(WithdrawLockRequest.model_validate_json(undo))

    assert (held(routes), waiting(routes)) == (1, 0)


async def test_the_lease_of_a_ticket_begins_with_the_answer_of_its_wait(
    routes: LockRoutes, clock: Clock
) -> None:
    first = await acquire(routes)
    ticket = members(await enqueue(routes))["ticket"]
    unsent(first)
    clock.now_s += 20

    await routes.wait(request(), WaitRequest(key="k", ticket=ticket))

    view = routes.service.describe(b"k")
    assert view is not None
    assert [holder.ends_in_s for holder in view.holders] == [TTL_S]


async def test_a_lease_that_ended_before_its_ticket_was_waited_for_is_said_to_be_lost(
    routes: LockRoutes, clock: Clock
) -> None:
    first = await acquire(routes)
    ticket = members(await enqueue(routes))["ticket"]
    unsent(first)
    clock.now_s += TTL_S + 1

    with pytest.raises(HoldfastError) as refused:
        await routes.wait(request(), WaitRequest(key="k", ticket=ticket))

    assert (refused.value.code, refused.value.status) == ("lease_expired", 403)
    assert held(routes) == 0


async def test_a_full_table_and_a_full_queue_are_said_so(routes: LockRoutes) -> None:
    for number in range(4):
        await acquire(routes, f"k{number}")
    await enqueue(routes, "k0")

    for key, code in (("k4", "max_locks"), ("k0", "max_waiters")):
        with pytest.raises(HoldfastError) as refused:
            await enqueue(routes, key)
        assert (refused.value.code, refused.value.status) == (code, 429)
        assert refused.value.retry_after_s


async def test_tickets_are_bounded(routes: LockRoutes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "TICKETS_MAX", 1)
    await acquire(routes)
    await enqueue(routes)

    with pytest.raises(HoldfastError) as refused:
        await enqueue(routes, "other")

    assert refused.value.code == "max_waiters"


async def test_nobody_waits_at_a_server_that_stops(routes: LockRoutes) -> None:
    await acquire(routes)
    routes.service.begin_stop()

    with pytest.raises(HoldfastError) as refused:
        await routes.acquire(request(), AcquireLockRequest(key="k", wait_seconds=60))

    assert (refused.value.code, refused.value.status) == ("lock_unavailable", 503)


async def test_a_session_ends_with_its_hold_and_not_before(routes: LockRoutes) -> None:
    service = routes.service
    ended: list[int] = []
    end_session = service.end_session

    def end(session: Session, *, keeps_leases: bool = False) -> None:
        ended.append(session.number)
        end_session(session, keeps_leases=keeps_leases)

    service.end_session = end  # type: ignore[method-assign]  # It is looked at, not replaced.
    token = members(await acquire(routes))["token"]
    with pytest.raises(HoldfastError):
        await acquire(routes)
    assert ended == [2]

    await routes.release(request(), ReleaseLockRequest(key="k", token=token))

    assert ended == [2, 1]


async def test_a_session_whose_lock_ends_by_time_is_found(
    routes: LockRoutes, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_LOOK_LATER_S", -TTL_S)  # Looks at once.
    await acquire(routes)
    holdings = routes._holdings
    await asyncio.sleep(0.01)
    assert len(holdings) == 1

    clock.now_s += TTL_S + 1
    routes.service.sweep()
    async with asyncio.timeout(10):
        while len(holdings):  # noqa: ASYNC110  # The timer tells no caller.
            await asyncio.sleep(0.01)
