"""Money moved between accounts of a split plane keeps its sum, whatever is killed or restarted meanwhile."""

import asyncio
import itertools
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing.context import ForkServerContext

import pytest

from holdfast.common.role import Role
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from tests.infra.postgres import PostgresServer
from tests.system.split.bank import Bank
from tests.system.split.plane import SplitPlane

MORTALS = (Role.LEASES, Role.STATE, Role.TXN, Role.QUEUE, Role.GATEWAY)
MOVES_BETWEEN_RESTARTS = 10


@asynccontextmanager
async def open_bank(
    processes: ForkServerContext, server: PostgresServer, chance: random.Random
) -> AsyncIterator[Bank]:
    separator = "&" if "?" in server.url else "?"
    store_url = f"{server.url}{separator}schema=bank_{secrets.token_hex(6)}"
    async with (
        SplitPlane(processes, store_url).running() as plane,
        open_store(store_url, StoreOptions()) as store,
    ):
        bank = Bank(plane, store, chance)
        await bank.open()
        yield bank


@pytest.mark.timeout(600)
@pytest.mark.long
@pytest.mark.parametrize(("kills", "kill_every_s"), [(3, 1.5), (12, 5.0)])
async def test_the_sum_of_all_accounts_is_constant_while_processes_are_killed(
    processes: ForkServerContext, postgres_server: PostgresServer, kills: int, kill_every_s: float
) -> None:
    chance = random.Random(kills)  # When a process dies is a matter of the machine's time anyway.

    async with open_bank(processes, postgres_server, chance) as bank:
        for role in itertools.islice(itertools.cycle(MORTALS), kills):
            await bank.day(
                partial(kill_once, bank.plane, role, kill_every_s * chance.uniform(0.2, 0.8), kill_every_s)
            )

        assert await bank.are_keys_free()
        assert bank.committed > kills


@pytest.mark.timeout(600)
@pytest.mark.long
@pytest.mark.parametrize("restarts", [3, 20])
async def test_a_restarted_database_loses_no_acknowledged_move_and_services_recover_by_themselves(
    processes: ForkServerContext, own_postgres_server: PostgresServer, restarts: int
) -> None:
    async with open_bank(processes, own_postgres_server, random.Random(restarts)) as bank:
        for number in range(restarts):
            await bank.day(partial(restart_database, bank, own_postgres_server, is_crash=number % 2 == 1))

        assert await bank.are_keys_free()


async def kill_once(plane: SplitPlane, role: Role, at_s: float, until_s: float) -> None:
    await asyncio.sleep(at_s)
    plane.kill(role)
    plane.start(role)
    await plane.ready(role)
    await asyncio.sleep(until_s - at_s)


async def restart_database(bank: Bank, server: PostgresServer, *, is_crash: bool) -> None:
    """Returns when moves are committed again: only the database was started anew."""
    await bank.grown_by(MOVES_BETWEEN_RESTARTS)
    if is_crash:
        await asyncio.to_thread(server.kill9)
    await asyncio.to_thread(server.restart)
    await bank.grown_by(MOVES_BETWEEN_RESTARTS)
