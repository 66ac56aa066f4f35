"""Two planes on one PostgreSQL: conversations whose connections go to different nodes, and nodes that come and go."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.leases.layer.locks.durable.service import DurableLockService
from holdfast.leases.nodes.membership import Membership
from holdfast.storage.errors import StoreUnavailable
from tests.infra.postgres import PostgresServer
from tests.infra.proxy import Proxy
from tests.wire.dflockd.conftest import LockPair, both_share, lock_pair, lock_plane
from tests.wire.dflockd.test_recordings import (
    NO_SWEEP,
    OWN,
    RECORDED,
    SETTINGS,
    SIGNALS,
    TOGETHER,
    Conversation,
)

LIMITS_OF_A_NODE = {"C53", "C57"}
"""What they reach over one node takes more over two: these limits count at each node."""


async def hold(pair: LockPair, name: str) -> None:
    await Conversation(RECORDED[name], LockPair(pair.planes)).hold()


@pytest.mark.parametrize("is_durable", [False, True])
async def test_recorded_conversations_go_the_same_way_over_two_nodes(
    postgres_url: str, is_durable: bool
) -> None:
    async with lock_pair(postgres_url, tcp_durable=is_durable) as pair:
        await asyncio.gather(*(hold(pair, name) for name in TOGETHER))
        for name in SIGNALS:
            await nothing_is_left(pair)
            await hold(pair, name)


async def nothing_is_left(pair: LockPair) -> None:
    """Return when no connection but this one is there at any node, nothing is held and there is no subscription."""
    async with pair.planes[0].clients(1) as (client,):
        while not _is_nothing(json.loads((await client.ask("stats")).removeprefix("ok "))):
            continue


def _is_nothing(stats: dict[str, Any]) -> bool:
    kinds = ("locks", "semaphores", "signal_channels")
    return stats["connections"] == 1 and not any(stats[kind] for kind in kinds)


@pytest.mark.parametrize(
    "name", ["C36", *(pytest.param(name, marks=pytest.mark.long) for name in ("C35", "C39"))]
)
async def test_stats_tell_of_all_nodes(postgres_url: str, name: str) -> None:
    """A conversation on fresh nodes: what was idle before is forgotten at once."""
    async with lock_pair(postgres_url, tcp_gc_idle_s_max=1, tcp_gc_interval_s=0.05) as pair:
        async with pair.planes[0].clients(1) as (client,):
            while '"idle_locks":[],' not in await client.ask("stats"):
                continue
        await nothing_is_left(pair)
        await hold(pair, name)


async def test_values_are_the_same_at_every_node(postgres_url: str) -> None:
    async with lock_pair(postgres_url) as pair, pair.clients(2) as (one, two):
        for number in range(8):
            assert await one.ask("incr", f"count-{number}", "3") == "ok 3"
            assert await two.ask("incr", f"count-{number}", "4") == "ok 7"
            assert await two.ask("rpush", f"list-{number}", "a b") == "ok 1"
            assert await one.ask("lrange", f"list-{number}", "0 -1") == 'ok ["a b"]'
            assert await one.ask("kset", f"text-{number}", "x y 0") == "ok"
            assert await two.ask("kget", f"text-{number}") == "ok x y"


@pytest.mark.long
@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_client_that_ends_its_side_is_answered_wherever_its_keys_are(
    postgres_url: str, is_durable: bool
) -> None:
    """And waits for nothing there."""
    async with lock_pair(postgres_url, tcp_durable=is_durable) as pair:
        plane = pair.planes[0]
        for number in range(6):
            async with plane.clients(4) as (piping, holder, waiting, next_one):
                asked = f"l\nkey-{number}\n10\nn\nkey-{number}\nx\nstats\n_\n\n"
                await piping.send(asked.encode())
                piping.end()
                granted, refused, stats, rest = (await piping.rest()).split(b"\n")
                assert (granted[:3], refused, stats[:4], rest) == (b"ok ", b"error", b"ok {", b"")
                token = await holder.lock(f"key-{number}", "10")
                await waiting.send(f"l\nkey-{number}\n30\n".encode())
                waiting.end()
                assert await waiting.rest() in (b"", b"timeout\n")
                await next_one.send(f"l\nkey-{number}\n30\n".encode())
                assert await holder.ask("r", f"key-{number}", token) == "ok"
                assert (await next_one.line()).startswith(b"ok ")


async def test_a_limit_counts_at_each_node(postgres_url: str) -> None:
    async with lock_pair(postgres_url, tcp_locks_max=20) as pair, pair.clients(1) as (client,):
        taken = [await client.ask("l", f"job-{number}", "0") for number in range(60)]

        assert taken.count("error_max_locks") == sum(not answer.startswith("ok ") for answer in taken)
        assert 20 < sum(answer.startswith("ok ") for answer in taken) <= 40


async def test_a_node_that_stops_in_order_is_replaced_at_once_and_its_waiters_are_told(
    postgres_url: str,
) -> None:
    settings = {"store": postgres_url, "tcp_durable": True, "tcp_node_ttl_s": 120}
    async with lock_plane(**settings) as one:
        async with lock_plane(**settings) as two:
            await both_share(one, two)
            async with one.clients(16) as holders, one.clients(16) as waiters:
                for number, (holder, waiter) in enumerate(zip(holders, waiters, strict=True)):
                    await holder.lock(f"job-{number}", "0 300")
                    await waiter.send(f"l\njob-{number}\n300\n".encode())
                while await two.holders() == 0:
                    continue
                two.server.request_stop()
                told = asyncio.gather(*(waiter.line() for waiter in waiters), return_exceptions=True)
                async with asyncio.timeout(30):
                    for number in range(16):
                        async with one.clients(1) as (client,):
                            while await client.ask("l", f"job-{number}", "0") == "error":
                                continue
                        holders[number].close()
                answers = await told
                assert b"error\n" in answers
                assert all(answer == b"error\n" or answer.startswith(b"ok ") for answer in answers)  # type: ignore[union-attr]


@pytest.mark.parametrize("is_durable", [False, True])
async def test_without_the_database_nothing_is_decided_and_what_is_held_stays(
    postgres_server: PostgresServer, postgres_url: str, is_durable: bool
) -> None:
    parts = urlsplit(postgres_server.url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy(parts.hostname, parts.port)
    async with proxy.running():
        through = postgres_url.replace(parts.netloc, f"{parts.username}@127.0.0.1:{proxy.port}")
        settings = {"store": through, "tcp_node_ttl_s": 1, "tcp_durable": is_durable}
        async with lock_plane(**settings) as plane, plane.clients(2) as (holder, other):
            token = await holder.lock("job", "0 300")
            proxy.partition()
            while (
                await other.ask("get", "free") != "error"
            ):  # It records nothing, so it does not hang with the database.
                continue
            assert await other.ask("l", "free", "0") == "error"
            assert await holder.ask("n", "job", token) == "error"

            proxy.heal()

            while (answer := await holder.ask("n", "job", f"{token} 300")) == "error":
                continue
            assert answer == "ok 300"
            assert await other.ask("l", "job", "0") == "timeout"


async def test_what_is_recorded_of_new_keys_is_read_until_the_database_answers(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = DurableLockService.load
    is_read = asyncio.Event()
    failures = [StoreUnavailable("the database is away")] * 2

    async def load(service: DurableLockService, is_mine: Callable[[bytes], bool]) -> None:
        if failures:
            raise failures.pop()
        await genuine(service, is_mine)
        is_read.set()

    settings: dict[str, Any] = {"store": postgres_url, "tcp_node_ttl_s": 1, "tcp_durable": True}
    async with lock_plane(**settings) as one:
        async with lock_plane(**settings) as two:
            await both_share(one, two)
            monkeypatch.setattr(DurableLockService, "load", load)
        await asyncio.wait_for(is_read.wait(), 30)


@pytest.fixture
def memberships(monkeypatch: pytest.MonkeyPatch) -> list[Membership]:
    """What each node of this process knows of all nodes."""
    found: list[Membership] = []
    genuine = Membership.__init__

    def noted(membership: Membership, *words: Any, **named: Any) -> None:
        genuine(membership, *words, **named)
        found.append(membership)

    monkeypatch.setattr(Membership, "__init__", noted)
    return found


def _decide_together(memberships: list[Membership]) -> bool:
    """Asked of the nodes themselves: with a secret or few locks allowed, no client could find it out."""
    for membership in memberships:
        membership.look()
    return all(
        not membership.is_frozen and sum(one.is_ready for one in membership._serving) == len(memberships)
        for membership in memberships
    )


@pytest.mark.long
@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("name", [name for name in OWN if name not in LIMITS_OF_A_NODE])
async def test_a_recorded_conversation_with_settings_goes_the_same_way_over_two_nodes(
    postgres_url: str, memberships: list[Membership], name: str, is_durable: bool
) -> None:
    own: dict[str, Any] = {**SETTINGS.get(name, {}), **NO_SWEEP.get(name, {})}
    shared = {"store": postgres_url, "tcp_node_ttl_s": 1, "tcp_durable": is_durable, **own}
    async with lock_plane(**shared) as one, lock_plane(**shared) as two:
        while not _decide_together(memberships):  # noqa: ASYNC110 - a node tells no client that it decides
            await asyncio.sleep(0.05)
        await hold(LockPair([one, two]), name)
