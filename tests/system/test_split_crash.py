"""The failure matrix of transactions on one island, row by row: a process dies at a named step, and all heals.

Five real processes over one PostgreSQL. Whoever dies is started again; then the sweep finishes what was decided.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from multiprocessing.context import ForkServerContext

import pytest

from holdfast.common.role import Role
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from tests.infra.postgres import PostgresServer
from tests.system.split_plane import SplitPlane
from tests.system.split_transaction import SplitTransaction

SHORT_TTL_S = 2


@pytest.fixture(scope="module")
def store_url(postgres_server: PostgresServer) -> str:
    separator = "&" if "?" in postgres_server.url else "?"
    return f"{postgres_server.url}{separator}schema=split_{secrets.token_hex(6)}"


@pytest.fixture(scope="module")
async def plane(processes: ForkServerContext, store_url: str) -> AsyncIterator[SplitPlane]:
    async with SplitPlane(processes, store_url).running() as plane:
        yield plane


@pytest.fixture(scope="module")
async def store(plane: SplitPlane, store_url: str) -> AsyncIterator[Store]:
    async with open_store(store_url, StoreOptions()) as store:
        yield store


async def test_a_release_commits_everything_in_five_processes(plane: SplitPlane, store: Store) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()

    answer = await transaction.release()

    assert answer is not None
    assert answer.json() == {"released": True}
    assert (await transaction.healed(store)).is_committed
    assert await transaction.replay() == "commit"
    assert await transaction.is_free()


async def test_a_rollback_drops_everything_in_five_processes(plane: SplitPlane, store: Store) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()

    await transaction.release(rollback=True)

    assert (await transaction.healed(store)).is_rolled_back
    assert await transaction.replay() == "rollback"
    assert await transaction.is_free()


async def test_an_ack_commits_everything_and_may_be_repeated(plane: SplitPlane, store: Store) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()

    first, second = await transaction.ack(), await transaction.ack()

    assert (first.status_code, second.status_code) == (200, 200), first.text + second.text
    assert (await transaction.healed(store)).is_committed


async def test_a_release_commits_everything_that_joined_a_delivery(plane: SplitPlane, store: Store) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin_by_message()

    answer = await transaction.release()

    assert answer is not None
    assert answer.json() == {"released": True}
    assert (await transaction.healed(store)).is_committed


async def test_an_ack_commits_everything_that_joined_a_delivery(plane: SplitPlane, store: Store) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin_by_message()

    first, second = await transaction.ack(), await transaction.ack()

    assert (first.status_code, second.status_code) == (200, 200), first.text + second.text
    assert (await transaction.healed(store)).is_committed


async def test_a_nack_rolls_back_everything_that_joined_a_delivery(plane: SplitPlane, store: Store) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin_by_message()

    answer = await transaction.nack()

    assert answer.status_code == 200, answer.text
    assert await transaction.is_over(store)  # Not only when the time of its keys is over.
    assert (await transaction.healed(store)).is_rolled_back
    assert await transaction.is_free()


async def test_a_keepalive_keeps_the_message_that_another_process_delivered(
    plane: SplitPlane, store: Store
) -> None:
    transaction = SplitTransaction(plane, ttl_s=SHORT_TTL_S)
    await transaction.begin()

    answer = await transaction.keepalive(30)
    await asyncio.sleep(SHORT_TTL_S)  # The time itself is what is tested.

    assert answer.status_code == 200, answer.text
    assert (await transaction.ack()).status_code == 200
    assert (await transaction.healed(store)).is_committed


async def test_a_holder_that_dies_rolls_back_everything_that_joined_a_delivery(
    plane: SplitPlane, store: Store
) -> None:
    transaction = SplitTransaction(plane, ttl_s=SHORT_TTL_S)
    await transaction.begin_by_message()

    assert (await transaction.healed(store)).is_rolled_back


async def test_a_holder_that_dies_rolls_everything_back(plane: SplitPlane, store: Store) -> None:
    transaction = SplitTransaction(plane, ttl_s=SHORT_TTL_S)
    await transaction.begin()

    assert (await transaction.healed(store)).is_rolled_back
    assert await transaction.replay() == "rollback"


async def test_a_coordinator_that_dies_before_the_decision_changes_nothing(
    plane: SplitPlane, store: Store
) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()
    assert (await transaction.decide("pending")).status_code == 200
    await plane.restart(Role.TXN)

    assert await transaction.replay() == "pending"
    await transaction.release()

    assert (await transaction.healed(store)).is_committed


@pytest.mark.parametrize(
    "step", ["txn.recorded", "txn.apply.begin", "txn.apply.half", "txn.brought", "txn.finished"]
)
async def test_a_coordinator_that_dies_with_a_decision_finishes_it(
    plane: SplitPlane, store: Store, step: str
) -> None:
    await plane.restart(Role.TXN, f"{step}:crash")
    transaction = SplitTransaction(plane)
    await transaction.begin()

    answer = await transaction.release()
    await plane.died(Role.TXN)
    await plane.restart(Role.TXN)

    # 200 when the lease had ended already: the gateway asks again until it is answered.
    assert answer is None or answer.status_code in (200, 502, 503)
    assert (await transaction.healed(store)).is_committed
    assert await transaction.replay() == "commit"
    assert await transaction.is_free()


async def test_a_decision_wins_over_leases_that_ran_out_meanwhile(plane: SplitPlane, store: Store) -> None:
    await plane.restart(Role.TXN, "txn.apply.half:crash")
    transaction = SplitTransaction(plane, ttl_s=SHORT_TTL_S)
    await transaction.begin()
    await transaction.release()
    await plane.died(Role.TXN)
    await asyncio.sleep(SHORT_TTL_S)  # The time itself is what is tested.
    await plane.restart(Role.TXN)

    assert (await transaction.healed(store)).is_committed
    assert await transaction.replay() == "commit"


@pytest.mark.parametrize("role", [Role.STATE, Role.QUEUE, Role.LEASES])
async def test_a_service_that_is_down_is_told_when_it_is_back(
    plane: SplitPlane, store: Store, role: Role
) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()
    plane.kill(role)

    answer = await transaction.decide("commit")
    plane.start(role)
    await plane.ready(role)
    await plane.ready(Role.GATEWAY)

    assert (answer.status_code, answer.json()["error"]) == (502, "txn_fanout_failed")
    assert (await transaction.healed(store)).is_committed
    assert await transaction.replay() == "commit"


async def test_of_two_deciders_one_wins(plane: SplitPlane, store: Store) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()

    answers = await asyncio.gather(*(transaction.decide(state) for state in ("commit", "rollback") * 4))

    states = {answer.json()["state"] for answer in answers}
    seen = await transaction.healed(store)
    assert len(states) == 1
    assert states == {await transaction.replay()}
    assert seen.is_committed if states == {"commit"} else seen.is_rolled_back


# -- the checks can fail


async def test_a_decision_that_is_not_recorded_first_is_noticed(plane: SplitPlane, store: Store) -> None:
    await plane.restart(Role.TXN, "txn.record:skip")
    transaction = SplitTransaction(plane, ttl_s=12)
    await transaction.begin()
    plane.kill(Role.QUEUE)
    await transaction.decide("commit")
    plane.start(Role.QUEUE)
    await plane.ready(Role.QUEUE)
    await plane.restart(Role.TXN)

    seen = await transaction.healed(store)

    assert not seen.is_committed
    assert not seen.is_rolled_back


async def test_a_decision_that_is_applied_twice_is_noticed(plane: SplitPlane, store: Store) -> None:
    await plane.restart(Role.STATE, "state.apply.stays_staged:skip*1")
    transaction = SplitTransaction(plane)
    await transaction.begin()
    await transaction.release()
    await plane.restart(Role.STATE)

    seen = await transaction.healed(store)

    assert max(seen.writes) > 1
    assert not seen.is_committed
