"""TCP and HTTP reach the same table: what one holds the other waits for, and signals cross over."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.wire.dflockd.conftest import LockPlane, lock_plane
from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.lock_wire import (
    ACQUIRE,
    asking,
    delivered,
    listening,
    release,
    shown,
    take,
    until_waiting,
)
from tests.wire.lockd.queue_wire import raw
from tests.wire.lockd.test_leases import refusal


@pytest.fixture(params=[False, True], ids=["memory", "durable"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[tuple[LockPlane, Wire]]:
    async with lock_plane(tcp_durable=request.param) as plane:
        address = plane.server.addresses[0]
        assert isinstance(address, tuple)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{address[1]}", timeout=20) as client:
            yield plane, Wire(client)


async def test_a_lock_of_tcp_is_held_for_http_and_the_other_way_round(both: tuple[LockPlane, Wire]) -> None:
    plane, wire = both
    async with plane.clients(1) as (client,):
        token = await client.lock("shared")
        refused = await wire.post(ACQUIRE, {"key": "shared", "limit": 1})
        waiting = asyncio.ensure_future(take(wire, "shared", wait_seconds=20))
        await until_waiting(wire, "shared", 1)
        await client.ask("r", "shared", token)
        grant = await waiting

        assert refusal(refused) == (409, "lock_held")
        assert await client.ask("l", "shared", "0") == "timeout"
        assert await client.ask("sl", "shared", "0 2") == "error_limit_mismatch"
        assert await client.ask("n", "shared", f"{grant['token']} 50") == "ok 50"
        assert await client.ask("r", "shared", grant["token"]) == "ok"


async def test_the_end_of_a_connection_grants_the_waiter_of_http(both: tuple[LockPlane, Wire]) -> None:
    plane, wire = both
    async with plane.clients(1) as (client,):
        await client.lock("dropped")
        waiting = asyncio.ensure_future(take(wire, "dropped", wait_seconds=20))
        await until_waiting(wire, "dropped", 1)

        client.abort()

        await release(wire, await waiting)


async def test_a_key_that_is_no_text_is_shown_and_freed(both: tuple[LockPlane, Wire]) -> None:
    plane, wire = both
    async with plane.clients(1) as (client,):
        await client.send(b"l\nraw-\xff\n0\n")
        assert (await client.line()).startswith(b"ok ")

        lock = await shown_raw(wire, "raw-%FF")
        forced = await wire.post("/v1/locks/release", {"key_base64": lock["key_base64"], "force": True})

        assert lock["key"] == "raw-�"
        assert forced.json() == {"released": 1}
        assert (await shown_raw(wire, "raw-%FF"))["held"] == 0


async def shown_raw(wire: Wire, key: str) -> dict[str, Any]:
    members: dict[str, Any] = (await wire.request("GET", f"/v1/locks/describe?key={key}")).json()
    return members


async def test_a_holder_of_tcp_is_listed_with_its_address(both: tuple[LockPlane, Wire]) -> None:
    plane, wire = both
    async with plane.clients(1) as (client,):
        await client.lock("listed", "0 60")

        (holder,) = (await shown(wire, "listed"))["holders"]

        assert holder["owner"] == ""
        assert holder["address"].startswith("127.0.0.1:")
        assert holder["ttl_seconds"] == 60


async def test_signals_cross_over(both: tuple[LockPlane, Wire]) -> None:
    plane, wire = both
    async with plane.clients(2) as (listener, sender), listening(wire, "pattern=jobs.*") as heard:
        assert await listener.ask("listen", "jobs.new") == "ok"

        assert await delivered(wire, "jobs.new", "from http") == 2
        assert await sender.ask("signal", "jobs.new", "from tcp") == "ok 2"

        assert [await listener.line() for _ in range(2)] == [
            b"sig jobs.new from http\n",
            b"sig jobs.new from tcp\n",
        ]
        assert [(await heard.next())["payload"] for _ in range(2)] == ["from http", "from tcp"]


async def test_a_payload_that_is_no_text_comes_in_base64(both: tuple[LockPlane, Wire]) -> None:
    plane, wire = both
    async with plane.clients(1) as (sender,), listening(wire, "pattern=raw") as heard:
        await sender.send(b"signal\nraw\n\xff\n")
        assert await sender.line() == b"ok 1\n"

        assert await heard.next() == {"channel": "raw", "payload": "�", "payload_base64": "/w=="}


async def test_a_server_that_stops_ends_waits_and_streams_in_good_order(both: tuple[LockPlane, Wire]) -> None:
    plane, wire = both
    await take(wire, "stopping")
    async with (
        raw(wire, asking(ACQUIRE, key="stopping", wait_seconds=600)) as waiting,
        listening(wire, "pattern=stopping") as heard,
    ):
        await until_waiting(wire, "stopping", 1)

        plane.server.request_stop()

        head = await waiting.head()
        told = json.loads(await waiting.body(head))
        assert head.startswith(b"HTTP/1.1 503 ")
        assert told["error"] == "shutdown_draining"
        assert await heard.has_ended()


async def test_a_ticket_whose_client_hangs_up_gives_its_place_and_slot_back(
    both: tuple[LockPlane, Wire],
) -> None:
    _, wire = both
    grant = await take(wire, "ticket")
    ticket = (await wire.post("/v1/locks/enqueue", {"key": "ticket"})).json()["ticket"]
    async with raw(wire, asking("/v1/locks/wait", key="ticket", ticket=ticket, wait_seconds=600)):
        await until_waiting(wire, "ticket", 1)
    await until_waiting(wire, "ticket", 0)

    await release(wire, grant)
    await release(wire, await take(wire, "ticket"))
