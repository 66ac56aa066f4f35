"""Locks and semaphores over HTTP: first come first served, ended by release or time, gone with a client that waits."""

import asyncio
from typing import Any

import pytest

from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.lock_wire import ACQUIRE, asking, release, shown, take, until_waiting
from tests.wire.lockd.queue_wire import raw
from tests.wire.lockd.test_leases import refusal


async def test_a_free_lock_is_granted_and_told_with_its_token(wire: Wire) -> None:
    grant = await take(wire, "jobs/nightly", ttl_seconds=20, owner="worker-1")

    assert grant["key"] == "jobs/nightly"
    assert (grant["limit"], grant["ttl_seconds"], grant["owner"]) == (1, 20, "worker-1")
    assert len(grant["token"]) == 32
    assert grant["fencing_token"] == int(grant["token"][:16], 16)


async def test_a_held_lock_is_refused_to_one_that_does_not_wait(wire: Wire) -> None:
    await take(wire, "held")

    answer = await wire.post(ACQUIRE, {"key": "held"})

    assert refusal(answer) == (409, "lock_held")
    assert answer.headers["retry-after"] == "1"


async def test_a_wait_ends_with_its_time(wire: Wire) -> None:
    await take(wire, "slow")

    answer = await wire.post(ACQUIRE, {"key": "slow", "wait_seconds": 1})

    assert refusal(answer) == (409, "lock_timeout")
    assert (await shown(wire, "slow"))["waiting"] == 0


async def test_waiters_are_granted_in_their_order(wire: Wire) -> None:
    first = await take(wire, "line")
    waiting = []
    for number in range(3):
        waiting.append(asyncio.ensure_future(take(wire, "line", wait_seconds=20, owner=f"w{number}")))
        await until_waiting(wire, "line", number + 1)

    order = []
    grant = first
    for one in waiting:
        await release(wire, grant)
        grant = await one
        order.append(grant["owner"])
        assert sum(other.done() for other in waiting) == len(order)

    assert order == ["w0", "w1", "w2"]


async def test_a_semaphore_has_as_many_holders_as_slots_and_its_limit_is_fixed(wire: Wire) -> None:
    grants = [await take(wire, "pool", limit=2) for _ in range(2)]

    assert refusal(await wire.post(ACQUIRE, {"key": "pool", "limit": 2})) == (409, "lock_held")
    assert refusal(await wire.post(ACQUIRE, {"key": "pool", "limit": 3})) == (409, "limit_mismatch")
    assert refusal(await wire.post(ACQUIRE, {"key": "pool"})) == (409, "limit_mismatch")
    assert grants[0]["fencing_token"] < grants[1]["fencing_token"]


async def test_a_renewed_lock_lasts_so_long_from_now(wire: Wire) -> None:
    grant = await take(wire, "kept", ttl_seconds=5)

    answer = await wire.post("/v1/locks/renew", {"key": "kept", "token": grant["token"], "ttl_seconds": 300})

    assert answer.json() == {"ttl_seconds": 300}
    (holder,) = (await shown(wire, "kept"))["holders"]
    assert 200 < holder["lease_expires_in_seconds"] <= 300


@pytest.mark.parametrize("path", ["/v1/locks/renew", "/v1/locks/release"])
async def test_a_token_that_holds_nothing_is_refused(wire: Wire, path: str) -> None:
    grant = await take(wire, "free")
    await release(wire, grant)

    for token in (grant["token"], "no such token", ""):
        assert refusal(await wire.post(path, {"key": "free", "token": token})) == (403, "lock_not_held")
    assert refusal(await wire.post(path, {"key": "unheard-of", "token": "x"})) == (403, "lock_not_held")


async def test_a_lock_that_is_not_renewed_ends_with_its_lease(wire: Wire) -> None:
    lost = await take(wire, "short", ttl_seconds=1)

    grant = await take(wire, "short", wait_seconds=20)

    assert grant["fencing_token"] > lost["fencing_token"]


async def test_the_two_phases_keep_the_place_of_the_first(wire: Wire) -> None:
    holder = await take(wire, "two")
    queued = (await wire.post("/v1/locks/enqueue", {"key": "two", "ttl_seconds": 20})).json()
    later = asyncio.ensure_future(take(wire, "two", wait_seconds=20))
    await until_waiting(wire, "two", 2)

    await release(wire, holder)
    granted = await wire.post("/v1/locks/wait", {"key": "two", "ticket": queued["ticket"]})

    assert queued["state"] == "queued"
    assert granted.status_code == 200, granted.text
    assert not later.done()
    await release(wire, granted.json())
    await release(wire, await later)


async def test_a_ticket_is_used_once(wire: Wire) -> None:
    await take(wire, "once")
    ticket = (await wire.post("/v1/locks/enqueue", {"key": "once"})).json()["ticket"]

    first = await wire.post("/v1/locks/wait", {"key": "once", "ticket": ticket})
    second = await wire.post("/v1/locks/wait", {"key": "once", "ticket": ticket})

    assert refusal(first) == (409, "lock_timeout")
    assert refusal(second) == (404, "not_enqueued")
    assert (await shown(wire, "once"))["waiting"] == 0


async def test_a_free_key_is_granted_by_the_first_phase(wire: Wire) -> None:
    granted = (await wire.post("/v1/locks/enqueue", {"key": "at-once", "limit": 2})).json()

    assert granted["state"] == "granted"
    assert "ticket" not in granted
    await release(wire, granted)


async def test_a_ticket_that_nobody_waits_for_loses_its_place(wire: Wire) -> None:
    holder = await take(wire, "forgotten")
    ticket = (await wire.post("/v1/locks/enqueue", {"key": "forgotten", "ttl_seconds": 1})).json()["ticket"]
    await until_waiting(wire, "forgotten", 0)

    answer = await wire.post("/v1/locks/wait", {"key": "forgotten", "ticket": ticket, "wait_seconds": 1})

    assert refusal(answer) == (404, "not_enqueued")
    await release(wire, holder)


async def test_a_client_that_hangs_up_while_it_waits_leaves_the_queue(wire: Wire) -> None:
    holder = await take(wire, "hang-up")
    async with raw(wire, asking(ACQUIRE, key="hang-up", wait_seconds=600)):
        await until_waiting(wire, "hang-up", 1)
    await until_waiting(wire, "hang-up", 0)

    await release(wire, holder)
    await take(wire, "hang-up")


async def test_a_client_that_hangs_up_in_the_second_phase_leaves_the_queue(wire: Wire) -> None:
    await take(wire, "hang-up-2")
    ticket = (await wire.post("/v1/locks/enqueue", {"key": "hang-up-2"})).json()["ticket"]
    asked = asking("/v1/locks/wait", key="hang-up-2", ticket=ticket, wait_seconds=600)
    async with raw(wire, asked):
        await until_waiting(wire, "hang-up-2", 1)

    await until_waiting(wire, "hang-up-2", 0)


async def test_force_frees_every_slot_that_was_seen_and_no_later_one(wire: Wire) -> None:
    old = [await take(wire, "stuck", limit=2, ttl_seconds=600) for _ in range(2)]
    waiting = asyncio.ensure_future(take(wire, "stuck", limit=2, wait_seconds=20))
    await until_waiting(wire, "stuck", 1)
    last = max(grant["fencing_token"] for grant in old)

    forced = await wire.post("/v1/locks/release", {"key": "stuck", "force": True, "fencing_token": last})
    new = await waiting
    again = await wire.post("/v1/locks/release", {"key": "stuck", "force": True, "fencing_token": last})

    assert (forced.json(), again.json()) == ({"released": 2}, {"released": 0})
    assert [holder["fencing_token"] for holder in (await shown(wire, "stuck"))["holders"]] == [
        new["fencing_token"]
    ]
    for grant in old:
        answer = await wire.post("/v1/locks/renew", {"key": "stuck", "token": grant["token"]})
        assert refusal(answer) == (403, "lock_not_held")


async def test_the_list_has_holders_and_waiters_without_their_tokens(wire: Wire) -> None:
    grant = await take(wire, "list/a", owner="first", ttl_seconds=60)
    waiting = asyncio.ensure_future(take(wire, "list/a", owner="second", wait_seconds=20))
    await until_waiting(wire, "list/a", 1)

    answer = await wire.get("/v1/locks", prefix="list/")

    (lock,) = answer.json()["locks"]
    (holder,), (waiter,) = lock["holders"], lock["waiters"]
    assert grant["token"] not in answer.text
    assert (lock["key"], lock["limit"], lock["held"], lock["waiting"]) == ("list/a", 1, 1, 1)
    assert (holder["owner"], holder["fencing_token"]) == ("first", grant["fencing_token"])
    assert holder["address"].startswith("127.0.0.1:")
    assert 0 <= holder["age_seconds"] < 60
    assert 0 < holder["lease_expires_in_seconds"] <= 60
    assert waiter["owner"] == "second"
    await release(wire, grant)
    await release(wire, await waiting)


async def test_the_list_goes_on_behind_its_cursor(wire: Wire) -> None:
    for number in range(5):
        await take(wire, f"page/{number}")

    found: list[str] = []
    query: dict[str, Any] = {"prefix": "page/", "limit": 2}
    while True:
        page = (await wire.get("/v1/locks", **query)).json()
        found += [lock["key"] for lock in page["locks"]]
        if "cursor" not in page:
            break
        assert len(page["locks"]) == 2
        query["cursor"] = page["cursor"]

    assert found == [f"page/{number}" for number in range(5)]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (ACQUIRE, {}, "missing_key"),
        (ACQUIRE, {"key": ""}, "missing_key"),
        (ACQUIRE, {"key": "a b"}, "invalid_lock_key"),
        (ACQUIRE, {"key": "a\n"}, "invalid_lock_key"),
        (ACQUIRE, {"key": "k" * 257}, "invalid_lock_key"),
        (ACQUIRE, {"key": "é" * 129}, "invalid_lock_key"),
        (ACQUIRE, {"key": "k", "limit": 0}, "invalid_body"),
        (ACQUIRE, {"key": "k", "ttl_seconds": 0}, "invalid_body"),
        (ACQUIRE, {"key": "k", "wait_seconds": -1}, "invalid_body"),
        (ACQUIRE, {"key": "k", "owner": "o" * 257}, "invalid_body"),
        (ACQUIRE, {"key": "k", "unknown": 1}, "invalid_body"),
        ("/v1/locks/release", {"key_base64": "%", "force": True}, "invalid_lock_key"),
        ("/v1/locks/release", {"force": True}, "missing_key"),
    ],
)
async def test_what_a_lock_cannot_be_is_refused(
    wire: Wire, path: str, body: dict[str, Any], code: str
) -> None:
    assert refusal(await wire.post(path, body)) == (400, code)


@pytest.mark.parametrize(
    ("query", "refused"),
    [
        ({"limit": "0"}, (400, "invalid_page")),
        ({"limit": "x"}, (400, "invalid_page")),
        ({"cursor": "no hex"}, (400, "invalid_page")),
    ],
)
async def test_a_page_that_is_none_is_refused(
    wire: Wire, query: dict[str, Any], refused: tuple[int, str]
) -> None:
    assert refusal(await wire.get("/v1/locks", **query)) == refused


async def test_a_key_that_nobody_used_is_not_found(wire: Wire) -> None:
    assert refusal(await wire.get("/v1/locks/describe", key="nobody")) == (404, "lock_not_found")
    assert refusal(await wire.get("/v1/locks/describe")) == (400, "missing_key")


async def test_holders_waiters_and_channels_are_counted(wire: Wire) -> None:
    await take(wire, "counted")
    waiting = asyncio.ensure_future(take(wire, "counted", wait_seconds=20))
    await until_waiting(wire, "counted", 1)

    metrics = await wire.metrics()

    assert "holdfast_lock_holders 1" in metrics
    assert "holdfast_lock_waiters 1" in metrics
    assert "holdfast_signal_channels 0" in metrics
    waiting.cancel()


async def test_the_address_is_that_of_the_connection_to_the_process_that_has_the_lock(wire: Wire) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
    try:
        writer.write(asking(ACQUIRE, key="where"))
        await reader.readuntil(b"\r\n\r\n")
        host, port = writer.get_extra_info("sockname")[:2]
        (holder,) = (await shown(wire, "where"))["holders"]
    finally:
        writer.close()

    assert holder["address"].startswith("127.0.0.1:")
    assert (holder["address"] == f"{host}:{port}") is not wire.is_behind_a_gateway
