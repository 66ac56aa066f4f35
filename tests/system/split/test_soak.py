"""Transactions over two keys and a message while the processes of the plane are killed at random: all or nothing."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from multiprocessing.context import ForkServerContext
from typing import NamedTuple

import httpx
import pytest

from holdfast.common.role import SERVICES, Role
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from tests.infra.postgres import PostgresServer
from tests.system.split.plane import HEAL_S, SplitPlane
from tests.system.split.transaction import Seen, SplitTransaction

TTL_S = 15
WORKERS = 6
KILL_EVERY_S = 2.0


class Attempt(NamedTuple):
    """One transaction, and what its owner knows of it: whether all of it was staged, and how it was answered."""

    transaction: SplitTransaction
    has_begun: bool
    is_told_commit: bool
    is_told_rollback: bool


@pytest.fixture
async def store_url(postgres_server: PostgresServer) -> str:
    separator = "&" if "?" in postgres_server.url else "?"
    return f"{postgres_server.url}{separator}schema=soak_{secrets.token_hex(6)}"


@pytest.fixture
async def plane(processes: ForkServerContext, store_url: str) -> AsyncIterator[SplitPlane]:
    async with SplitPlane(processes, store_url).running() as plane:
        yield plane


@pytest.fixture
async def store(plane: SplitPlane, store_url: str) -> AsyncIterator[Store]:
    async with open_store(store_url, StoreOptions()) as store:
        yield store


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.long)])
async def test_transactions_are_all_or_nothing_whoever_is_killed(
    plane: SplitPlane, store: Store, count: int
) -> None:
    chance = random.Random(count)  # When a process dies is a matter of the machine's time anyway.
    left = iter(range(count))

    async def work() -> list[Attempt]:
        return [one for _ in left for one in await attempts_until_begun(plane, chance)]

    killer = asyncio.create_task(kill_at_random(plane, chance))
    attempts = [one for done in await asyncio.gather(*(work() for _ in range(WORKERS))) for one in done]
    killer.cancel()
    with suppress(asyncio.CancelledError):
        await killer
    for role in SERVICES:  # All at once: one that was killed last keeps the others from being ready.
        plane.kill(role)
        plane.start(role)
    for role in SERVICES:  # The gateway may still tell of what it found before the kills.
        await plane.ready(role)
    await plane.ready(Role.GATEWAY)

    await until_nothing_is_left(plane, store, attempts)
    for one in attempts:
        check(one, await one.transaction.healed(store))
    assert sum(one.has_begun for one in attempts) == count
    assert any(one.is_told_commit for one in attempts)


async def attempts_until_begun(plane: SplitPlane, chance: random.Random) -> list[Attempt]:
    attempts = [await attempt(plane, chance)]
    while not attempts[-1].has_begun:
        await asyncio.sleep(chance.uniform(0, 1))
        attempts.append(await attempt(plane, chance))
    return attempts


async def attempt(plane: SplitPlane, chance: random.Random) -> Attempt:
    transaction = SplitTransaction(plane, ttl_s=TTL_S)
    wants_commit = chance.random() < 0.7
    try:
        await transaction.begin()
    except (AssertionError, httpx.TransportError):
        return Attempt(transaction, has_begun=False, is_told_commit=False, is_told_rollback=False)
    answer = await transaction.release(rollback=not wants_commit)
    is_told = answer is not None and answer.status_code == 200
    return Attempt(
        transaction,
        has_begun=True,
        is_told_commit=is_told and wants_commit,
        is_told_rollback=is_told and not wants_commit,
    )


async def kill_at_random(plane: SplitPlane, chance: random.Random) -> None:
    while True:
        await asyncio.sleep(KILL_EVERY_S * chance.uniform(0.5, 1.5))
        role = chance.choice(SERVICES)
        plane.kill(role)
        await asyncio.sleep(chance.uniform(0, 0.3))
        plane.start(role)
        await plane.ready(role)


async def until_nothing_is_left(plane: SplitPlane, store: Store, attempts: list[Attempt]) -> None:
    """What was decided is applied within the time to heal; what no client ended ends by its own time before that."""
    await asyncio.sleep(0 if all(one.has_begun for one in attempts) else TTL_S)
    for one in attempts:
        await plane.until(lambda one=one: one.transaction.is_over(store), HEAL_S)  # type: ignore[misc]  # mypy infers no default


def check(attempt: Attempt, seen: Seen) -> None:
    if not attempt.has_begun:
        assert seen.writes == (0,) * len(seen.writes), seen
        return
    assert seen.is_committed or seen.is_rolled_back, seen
    if attempt.is_told_commit:
        assert seen.is_committed
    if attempt.is_told_rollback:
        assert seen.is_rolled_back
