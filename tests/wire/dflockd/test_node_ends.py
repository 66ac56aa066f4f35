"""Clients that end while another node decides what they wait for: the nodes forget them, and nothing is granted to them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from holdfast.leases.layer.locks.records import Holder, Lock, Session
from holdfast.leases.layer.locks.table import LockTable
from holdfast.leases.nodes.host import Host
from holdfast.leases.nodes.link import NodeLink
from tests.wire.dflockd.conftest import ANSWER_S_MAX, Client, LockPair, lock_pair
from tests.wire.dflockd.test_vanishing import swarm

KEYS = 8


class Between:
    """What the nodes of this process have under way for each other."""

    def __init__(self) -> None:
        self.links: list[NodeLink] = []
        self.hosts: list[Host] = []

    @property
    def calls(self) -> int:
        return sum(len(link._calls) for link in self.links)

    @property
    def pending(self) -> int:
        return sum(len(host._pending) for host in self.hosts)

    async def are_idle(self, client: Client) -> None:
        """Return when nothing is under way."""
        async with asyncio.timeout(ANSWER_S_MAX):
            while self.calls or self.pending:
                assert await client.ask("ping") == "ok"


@contextmanager
def between(monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    found = Between()

    def noted(kind: type[Any], into: list[Any]) -> None:
        begin = kind.__init__

        def note(self: Any, *arguments: Any, **options: Any) -> None:
            begin(self, *arguments, **options)
            into.append(self)

        monkeypatch.setattr(kind, "__init__", note)

    noted(NodeLink, found.links)
    noted(Host, found.hosts)
    yield found


async def hold_all(pair: LockPair, holder: Client) -> dict[str, str]:
    return {f"job-{number}": await holder.lock(f"job-{number}", "0 300") for number in range(KEYS)}


@pytest.mark.parametrize("is_durable", [False, True])
async def test_waiters_that_end_by_a_reset_leave_nothing_under_way_between_nodes(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, is_durable: bool
) -> None:
    with between(monkeypatch) as nodes:
        async with lock_pair(postgres_url, tcp_durable=is_durable) as pair, pair.clients(1) as (holder,):
            tokens = await hold_all(pair, holder)
            for plane in pair.planes:
                waiters = [await plane.connect() for _ in tokens]
                for waiter, key in zip(waiters, tokens, strict=True):
                    await waiter.send(f"l\n{key}\n300\n".encode())
                async with asyncio.timeout(ANSWER_S_MAX):
                    while (await pair.counts(holder))[1] != KEYS:
                        continue
                assert nodes.pending > 0, "some of the keys are at home at the other node"

                for waiter in waiters:
                    waiter.reset()

                await nodes.are_idle(holder)
                assert (await pair.counts(holder))[1] == 0
            for key, token in tokens.items():
                assert await holder.ask("r", key, token) == "ok"


@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_waiter_that_ends_its_side_is_not_granted_what_is_released_right_then(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, is_durable: bool
) -> None:
    granted: list[bytes] = []
    grant = LockTable._grant

    def noted(table: LockTable, lock: Lock, session: Session, ttl_s: int, now_s: float) -> Holder:
        granted.append(lock.name)
        return grant(table, lock, session, ttl_s, now_s)

    async with (
        lock_pair(postgres_url, tcp_durable=is_durable) as pair,
        pair.planes[0].clients(2) as (holder, next_one),
    ):
        tokens = await hold_all(pair, holder)
        monkeypatch.setattr(LockTable, "_grant", noted)
        for key, token in tokens.items():
            async with pair.planes[0].clients(1) as (dead,):
                for waiters, client in enumerate((dead, next_one), start=1):
                    await client.send(f"l\n{key}\n300\n".encode())
                    async with asyncio.timeout(ANSWER_S_MAX):
                        while (await pair.counts(holder))[1] != waiters:
                            continue
                dead.end()

                assert await holder.ask("r", key, token) == "ok"

                assert (await next_one.line()).startswith(b"ok ")
        assert granted == [key.encode() for key in tokens], "to the living alone"


@pytest.mark.parametrize("is_durable", [False, True])
async def test_the_living_are_served_over_two_nodes_as_the_model_says(
    postgres_url: str, is_durable: bool
) -> None:
    """Clients vanish by FIN, by RST and in the middle of a line, at either node."""
    await swarm(28, 200, partial(lock_pair, postgres_url, tcp_durable=is_durable))
