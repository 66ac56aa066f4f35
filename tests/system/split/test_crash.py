"""The failure matrix of transactions on one island, row by row: a process dies at a named step, and all heals.

Five real processes over one PostgreSQL. The one that dies is started again; then the sweep finishes what was decided.
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
from tests.system.split.plane import SplitPlane
from tests.system.split.transaction import SplitTransaction

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


@pytest.mark.parametrize("step", ["release.commit", "postgres.answer", "release.answer"])
async def test_a_process_that_dies_around_the_commit_of_a_release_leaves_all_or_nothing(
    plane: SplitPlane, store: Store, step: str
) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()
    await plane.restart(Role.LEASES, f"{step}:crash")

    answer = await transaction.release()
    await plane.died(Role.LEASES)
    await plane.restart(Role.LEASES)

    # 200: the gateway asks again until it is answered.
    assert answer is None or answer.status_code in (200, 502, 503)
    assert (await transaction.healed(store)).is_committed
    assert await transaction.replay() == "commit"
    assert await transaction.is_free()


@pytest.mark.parametrize("step", ["queue.ack.commit", "queue.ack.answer"])
async def test_a_process_that_dies_around_the_commit_of_an_ack_leaves_all_or_nothing(
    plane: SplitPlane, store: Store, step: str
) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()
    await plane.restart(Role.QUEUE, f"{step}:crash")

    answer = await transaction.ack()
    await plane.died(Role.QUEUE)
    await plane.restart(Role.QUEUE)

    assert answer.status_code in (200, 502, 503), answer.text
    assert (await transaction.healed(store)).is_committed
    assert await transaction.is_free()


@pytest.mark.parametrize("step", ["postgres.answer", "txn.recorded"])
async def test_a_coordinator_that_dies_with_a_decision_has_applied_it(
    plane: SplitPlane, store: Store, step: str
) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()
    await plane.restart(Role.TXN, f"{step}:crash")

    await transaction.try_decide("commit")
    await plane.died(Role.TXN)

    assert (await transaction.healed(store)).is_committed  # Before the coordinator is back.
    await plane.restart(Role.TXN)
    assert await transaction.replay() == "commit"
    assert await transaction.is_free()


@pytest.mark.parametrize("role", [Role.STATE, Role.QUEUE, Role.LEASES])
async def test_a_decision_does_not_wait_for_a_service_that_is_down(
    plane: SplitPlane, store: Store, role: Role
) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()
    plane.kill(role)

    answer = await transaction.decide("commit")
    plane.start(role)
    await plane.ready(role)
    await plane.ready(Role.GATEWAY)

    assert (answer.status_code, answer.json()["state"]) == (200, "commit"), answer.text
    assert (await transaction.healed(store)).is_committed
    assert await transaction.replay() == "commit"
    assert await transaction.is_free()


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


@pytest.mark.parametrize("layer", ["StateService", "LeaseService", "QueueService"])
async def test_a_decision_that_leaves_a_layer_out_is_noticed(
    plane: SplitPlane, store: Store, layer: str
) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()
    await plane.restart(Role.LEASES, f"txn.apply.{layer}:skip")

    await transaction.release()
    await plane.restart(Role.LEASES)

    is_over = await transaction.is_over(store)
    assert not is_over or not (await transaction.healed(store)).is_committed


async def test_a_decision_that_is_applied_in_two_commits_is_noticed(plane: SplitPlane, store: Store) -> None:
    transaction = SplitTransaction(plane)
    await transaction.begin()
    await plane.restart(Role.LEASES, "state.apply.stays_staged:skip")

    await transaction.release()
    await plane.restart(Role.LEASES)

    assert not await transaction.is_over(store)
