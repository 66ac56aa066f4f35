"""Locks and signals over HTTP at two nodes on one PostgreSQL: what is asked at one is known at the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from tests.infra.proxy import Proxy
from tests.wire.dflockd.conftest import LockPlane, both_share, lock_pair, lock_plane
from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.lock_wire import (
    ACQUIRE,
    POLL_S,
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

LOOK_LATER_S = 2.0
"""More than a node takes to look what became of what it granted, after the end of the lease."""


def keys_of(test: str) -> list[str]:
    """At home at either node, all but certainly."""
    return [f"{test}-{number}" for number in range(6)]


async def wire_of(stack: AsyncExitStack, plane: LockPlane) -> Wire:
    address = plane.server.addresses[0]
    assert isinstance(address, tuple)
    client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{address[1]}", timeout=20)
    return Wire(await stack.enter_async_context(client))


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["memory", "durable"]
)
async def nodes(request: pytest.FixtureRequest, module_postgres_url: str) -> AsyncIterator[tuple[Wire, Wire]]:
    url = module_postgres_url
    async with lock_pair(url, tcp_durable=request.param) as pair, AsyncExitStack() as stack:
        one, two = [await wire_of(stack, plane) for plane in pair.planes]
        yield one, two


async def test_what_is_held_at_one_node_is_held_at_the_other(nodes: tuple[Wire, Wire]) -> None:
    one, two = nodes
    for key in keys_of("held"):
        grant = await take(one, key, owner="worker-1")
        assert refusal(await two.post(ACQUIRE, {"key": key})) == (409, "lock_held")
        (holder,) = (await shown(two, key))["holders"]
        assert (holder["owner"], holder["fencing_token"]) == ("worker-1", grant["fencing_token"])
        waiting = asyncio.ensure_future(take(two, key, wait_seconds=20))
        await until_waiting(one, key, 1)
        renewed = await two.post("/v1/locks/renew", {"key": key, "token": grant["token"]})
        assert renewed.status_code == 200, renewed.text
        await release(two, grant)
        await release(one, await waiting)


async def test_all_keys_are_listed_at_either_node(nodes: tuple[Wire, Wire]) -> None:
    keys = keys_of("listed")
    for key in keys:
        await take(nodes[0], key)

    lists = [(await node.get("/v1/locks", prefix="listed-")).json()["locks"] for node in nodes]

    assert [[lock["key"] for lock in found] for found in lists] == [keys, keys]


async def test_the_second_phase_may_be_at_the_other_node(nodes: tuple[Wire, Wire]) -> None:
    one, two = nodes
    for key in keys_of("phases"):
        grant = await take(one, key)
        queued = await one.post("/v1/locks/enqueue", {"key": key, "owner": "worker-2", "ttl_seconds": 50})
        asked = {"key": key, "ticket": queued.json()["ticket"], "wait_seconds": 20}
        waiting = asyncio.ensure_future(two.post("/v1/locks/wait", asked))
        await release(one, grant)

        granted = await waiting

        assert granted.status_code == 200, granted.text
        told = granted.json()
        assert (told["owner"], told["ttl_seconds"], told["limit"]) == ("worker-2", 50, 1)
        assert refusal(await two.post("/v1/locks/wait", asked)) == (404, "not_enqueued")
        await release(two, told)


async def test_a_client_that_hangs_up_leaves_the_queue_at_the_other_node(nodes: tuple[Wire, Wire]) -> None:
    one, two = nodes
    for key in keys_of("hang-up"):
        grant = await take(one, key)
        async with raw(two, asking(ACQUIRE, key=key, wait_seconds=600)):
            await until_waiting(one, key, 1)
        await until_waiting(one, key, 0)
        queued = await one.post("/v1/locks/enqueue", {"key": key})
        asked = asking("/v1/locks/wait", key=key, ticket=queued.json()["ticket"], wait_seconds=600)
        async with raw(two, asked):
            await until_waiting(one, key, 1)
        await until_waiting(one, key, 0)
        await release(one, grant)


async def test_force_frees_what_is_held_at_the_other_node(nodes: tuple[Wire, Wire]) -> None:
    one, two = nodes
    for key in keys_of("forced"):
        await take(one, key)

        forced = await two.post("/v1/locks/release", {"key": key, "force": True})

        assert forced.json() == {"released": 1}
        assert (await shown(one, key))["held"] == 0


async def test_signals_reach_listeners_of_both_nodes(nodes: tuple[Wire, Wire]) -> None:
    one, two = nodes
    async with listening(one, "pattern=jobs.*") as here, listening(two, "pattern=jobs.*") as there:
        while await delivered(one, "jobs.other", "x") != 2:  # noqa: ASYNC110  # No client is told that both are known.
            await asyncio.sleep(POLL_S)
        await delivered(two, "jobs.new", "last")

        for heard in (here, there):
            while (await heard.next())["channel"] != "jobs.new":
                pass


async def test_a_lock_in_memory_ends_with_the_node_that_took_it(postgres_url: str) -> None:
    shared = {"store": postgres_url, "tcp_node_ttl_s": 1, "drain_grace_s": 0}
    async with lock_plane(**shared) as stays, AsyncExitStack() as stack:
        async with lock_plane(**shared) as goes:
            await both_share(stays, goes)
            there = await wire_of(stack, goes)
            for key in keys_of("taken"):
                await take(there, key, ttl_seconds=600)

        here = await wire_of(stack, stays)
        for key in keys_of("taken"):
            while (await here.post(ACQUIRE, {"key": key, "wait_seconds": 5})).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A way to the database that can break, and the URL of the store by that."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy(parts.hostname, parts.port)
    async with proxy.running():
        yield proxy, url.replace(parts.netloc, f"{parts.username}@127.0.0.1:{proxy.port}")


async def test_a_stream_of_signals_ends_if_nobody_can_be_told_of_its_listener(postgres_url: str) -> None:
    async with proxied(postgres_url) as (proxy, url), AsyncExitStack() as stack:
        node = await wire_of(stack, await stack.enter_async_context(lock_plane(store=url, tcp_node_ttl_s=1)))
        proxy.partition()
        while (await node.post("/v1/signals", {"channel": "jobs", "payload": "x"})).status_code != 503:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

        async with raw(node, b"GET /v1/signals?pattern=jobs HTTP/1.1\r\nHost: p\r\n\r\n") as answer:
            await answer.head()
            ended = await answer.chunk()
        proxy.heal()

        assert ended == b""


@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_renewed_lock_stays_held_though_its_node_cannot_ask_for_it_when_its_first_lease_is_over(
    postgres_url: str, is_durable: bool
) -> None:
    """Meanwhile its first lease is over, and no event tells of a key whose home is another node."""
    async with proxied(postgres_url) as (proxy, url), AsyncExitStack() as stack:
        pair = await stack.enter_async_context(lock_pair(url, tcp_durable=is_durable))
        one, two = [await wire_of(stack, plane) for plane in pair.planes]
        for key in keys_of("renewed"):
            grant = await take(one, key, ttl_seconds=2)
            renewed = await one.post(
                "/v1/locks/renew", {"key": key, "token": grant["token"], "ttl_seconds": 600}
            )
            assert renewed.status_code == 200, renewed.text
        proxy.partition()
        await asyncio.sleep(2 + LOOK_LATER_S)  # The look itself shows nowhere.

        proxy.heal()

        for node in (one, two):
            for key in keys_of("renewed"):
                while (told := refusal(await node.post(ACQUIRE, {"key": key})))[0] == 503:  # noqa: ASYNC110  # As above.
                    await asyncio.sleep(POLL_S)
                assert told == (409, "lock_held")
