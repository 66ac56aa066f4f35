"""Locks of two processes on one PostgreSQL when one of them is killed: nothing is held twice, and what was lost is told."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing.context import ForkServerContext

import pytest

from tests.infra.program import free_ports
from tests.system.locks.node import LockNode, lock_node
from tests.wire.dflockd.conftest import Client

KEYS = [f"job-{number}" for number in range(16)]
TTL_S = 1
LEASE_S = 300


@asynccontextmanager
async def two_nodes(
    processes: ForkServerContext, store: str, *, is_durable: bool
) -> AsyncIterator[tuple[LockNode, LockNode]]:
    ports = free_ports(4)
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(
                lock_node(
                    processes,
                    store=store,
                    listen=f"127.0.0.1:{ports[2 * number]}",
                    tcp_listen=f"127.0.0.1:{ports[2 * number + 1]}",
                    tcp_durable=is_durable,
                    tcp_node_ttl_s=TTL_S,
                )
            )
            for number in range(2)
        ]
        # The second one decides after this: a node is home of nothing before the others must know of it.
        await asyncio.sleep(2 * TTL_S + 1)
        yield nodes[0], nodes[1]


async def decided(client: Client, command: str, key: str, argument: str) -> str:
    """The answer of a node that decides, as soon as there is one."""
    while (answer := await client.ask(command, key, argument)) == "error":
        continue
    return answer


class Change:
    """Holders of all keys, and newcomers that take what they can get while the nodes change."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.ended: set[str] = set()
        self._holders: dict[str, Client] = {}
        self._newcomers: dict[str, Client] = {}
        self._ends: dict[str, asyncio.Task[None]] = {}

    async def begin(self, holders_at: LockNode, newcomers_at: LockNode) -> None:
        for key in KEYS:
            holder = self._holders[key] = await holders_at.connect()
            self.tokens[key] = await holder.lock(key, f"0 {LEASE_S}")
            self._newcomers[key] = await newcomers_at.connect()
            self._ends[key] = asyncio.create_task(self._end(key))

    async def _end(self, key: str) -> None:
        assert await self._holders[key].line(60) == b""
        self.ended.add(key)

    async def take(self, key: str) -> bool:
        """Whether the key could be taken; only after its holder knows that it is lost."""
        answer = await decided(self._newcomers[key], "l", key, f"0 {LEASE_S}")
        if answer == "timeout":
            return False
        assert answer.startswith("ok ")
        assert key in self.ended, "it is held twice"
        return True

    async def take_all(self) -> set[str]:
        taken = await asyncio.gather(*(self.take(key) for key in KEYS))
        return {key for key, is_taken in zip(KEYS, taken, strict=True) if is_taken}

    async def still_held(self, key: str) -> bool:
        """Whether the holder whose connection is there holds it."""
        self._ends[key].cancel()
        await asyncio.gather(self._ends[key], return_exceptions=True)
        return await self._holders[key].ask("n", key, self.tokens[key]) == "ok 33"

    async def all_ended(self) -> None:
        await asyncio.gather(*self._ends.values())


async def test_in_memory_who_loses_a_lock_with_its_home_is_told_before_another_one_gets_it(
    processes: ForkServerContext, postgres_url: str
) -> None:
    async with two_nodes(processes, postgres_url, is_durable=False) as (one, two):
        change = Change()
        await change.begin(one, one)

        two.kill()
        taken = await change.take_all()

        assert 0 < len(taken) < len(KEYS)
        assert taken == change.ended
        for key in set(KEYS) - taken:
            assert await change.still_held(key)


@pytest.mark.long
async def test_in_memory_a_node_that_comes_takes_over_only_what_its_holders_know_to_be_lost(
    processes: ForkServerContext, postgres_url: str
) -> None:
    ports = free_ports(2)
    flags = {
        "listen": f"127.0.0.1:{ports[0]}",
        "tcp_listen": f"127.0.0.1:{ports[1]}",
        "tcp_node_ttl_s": TTL_S,
    }
    async with two_nodes(processes, postgres_url, is_durable=False) as (one, two):
        change = Change()
        await change.begin(one, two)
        async with lock_node(processes, store=postgres_url, **flags):
            taken: set[str] = set()
            while not taken:
                taken = await change.take_all()
            for key in set(KEYS) - change.ended:
                assert await change.still_held(key)


async def test_in_memory_a_node_that_stood_still_gives_up_what_others_took_over(
    processes: ForkServerContext, postgres_url: str
) -> None:
    async with two_nodes(processes, postgres_url, is_durable=False) as (one, two):
        held = {key: await two.connect() for key in KEYS}
        for key, client in held.items():
            await client.lock(key, f"0 {LEASE_S}")
        newcomers = {key: await one.connect() for key in KEYS}
        two.signal(signal.SIGSTOP)
        tokens = {}
        for key, client in newcomers.items():
            while not (answer := await client.ask("l", key, f"0 {LEASE_S}")).startswith("ok "):
                continue
            tokens[key] = answer.split(" ")[1]

        two.signal(signal.SIGCONT)

        for client in held.values():
            assert await client.line(60) == b""
        for key, client in newcomers.items():
            assert await decided(client, "n", key, tokens[key]) == "ok 33"


async def test_durable_locks_go_on_by_their_tokens_when_their_home_is_killed(
    processes: ForkServerContext, postgres_url: str
) -> None:
    async with two_nodes(processes, postgres_url, is_durable=True) as (one, two):
        holders = {key: await one.connect() for key in KEYS}
        tokens = {key: await client.lock(key, f"0 {LEASE_S}") for key, client in holders.items()}
        newcomer = await one.connect()

        two.kill()

        for key in KEYS:
            assert await decided(newcomer, "l", key, "0") == "timeout"
            assert await decided(holders[key], "n", key, f"{tokens[key]} {LEASE_S}") == f"ok {LEASE_S}"
        for key in KEYS:
            holders[key].close()
            status, token, _ = (await decided(newcomer, "l", key, f"30 {LEASE_S}")).split(" ")
            assert status == "ok"
            assert token > tokens[key]


async def test_durable_locks_of_a_client_whose_node_is_killed_are_held_until_their_leases_end(
    processes: ForkServerContext, postgres_url: str
) -> None:
    async with two_nodes(processes, postgres_url, is_durable=True) as (one, two):
        holder, other = await two.connect(), await one.connect()
        tokens = {key: await holder.lock(key, f"0 {LEASE_S}") for key in KEYS}
        await holder.lock("brief", "0 5")

        two.kill()

        for key, token in tokens.items():
            assert await decided(other, "l", key, "0") == "timeout"
            assert await decided(other, "n", key, f"{token} 300") == "ok 300"
        assert (await decided(other, "l", "brief", "60")).startswith("ok ")


async def test_holders_of_durable_locks_go_on_by_their_tokens_when_a_node_comes(
    processes: ForkServerContext, postgres_url: str
) -> None:
    ports = free_ports(2)
    flags = {
        "listen": f"127.0.0.1:{ports[0]}",
        "tcp_listen": f"127.0.0.1:{ports[1]}",
        "tcp_node_ttl_s": TTL_S,
        "tcp_durable": True,
    }
    async with two_nodes(processes, postgres_url, is_durable=True) as (one, two):
        holder, other = await one.connect(), await two.connect()
        tokens = {key: await holder.lock(key, f"0 {LEASE_S}") for key in KEYS}
        async with lock_node(processes, store=postgres_url, **flags) as third:
            newcomer = await third.connect()
            await asyncio.sleep(TTL_S)  # By then every node knows of it.

            for key, token in tokens.items():
                assert await decided(newcomer, "l", key, "0") == "timeout"
                assert await decided(other, "l", key, "0") == "timeout"
                assert await decided(holder, "n", key, f"{token} 300") == "ok 300"


@pytest.mark.parametrize("is_durable", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_signals_reach_listeners_of_every_node_also_when_the_node_of_the_hub_was_killed(
    processes: ForkServerContext, postgres_url: str, is_durable: bool
) -> None:
    async with two_nodes(processes, postgres_url, is_durable=is_durable) as (one, two):
        here, there, sender = await one.connect(), await two.connect(), await one.connect()
        assert await here.ask("listen", "jobs.*") == "ok"
        assert await there.ask("listen", "jobs.>") == "ok"
        assert await sender.ask("signal", "jobs.a", "first") == "ok 2"
        assert await here.line() == await there.line() == b"sig jobs.a first\n"

        two.kill()

        while await sender.ask("signal", "jobs.a", "second") != "ok 1":
            continue
        assert (await here.line()).startswith(b"sig jobs.a second")
