"""Releases, acks and nacks of a split plane that meet a dying process: they are finished although no client repeats them."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from multiprocessing.context import ForkServerContext

import httpx
import pytest

from holdfast.common.role import Role
from holdfast.queue.layer.message.records import MESSAGES
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from tests.infra.postgres import PostgresServer
from tests.system.split.client import (
    LONG_S,
    acquire,
    ask,
    dequeue,
    enqueue,
    held_still,
    release,
    release_of,
    send,
)
from tests.system.split.plane import READY_S, SplitPlane
from tests.system.split.transaction import SplitTransaction
from tests.wire.lockd.queue_wire import Delivered


@pytest.fixture(scope="module")
def store_url(postgres_server: PostgresServer) -> str:
    separator = "&" if "?" in postgres_server.url else "?"
    return f"{postgres_server.url}{separator}schema=repeat_{secrets.token_hex(6)}"


@pytest.fixture(scope="module")
async def plane(processes: ForkServerContext, store_url: str) -> AsyncIterator[SplitPlane]:
    async with SplitPlane(processes, store_url).running() as plane:
        yield plane


@pytest.fixture(scope="module")
async def pair(processes: ForkServerContext, store_url: str) -> AsyncIterator[SplitPlane]:
    """Leases and queues have two replicas each."""
    twins = (Role.LEASES, Role.QUEUE)
    async with SplitPlane(processes, f"{store_url}_pair", twins=twins).running() as pair:
        yield pair


@pytest.fixture(scope="module")
async def store(plane: SplitPlane, store_url: str) -> AsyncIterator[Store]:
    async with open_store(store_url, StoreOptions()) as store:
        yield store


async def restarted(plane: SplitPlane, role: Role) -> None:
    """It dies of what the test does, and comes back."""
    await plane.died(role)
    await plane.restart(role)


def names_until_death(plane: SplitPlane, role: Role) -> Iterator[str]:
    """New names, and with them new homes, until the armed replica was given a call and died of it.

    The gateway leaves a replica that came back alone until its next probe, so no count of calls is enough.
    """
    deadline_s = time.monotonic() + READY_S
    while plane.is_alive(role):
        assert time.monotonic() < deadline_s, f"{role} was given no call"
        yield secrets.token_hex(6)


async def resolve(plane: SplitPlane, verb: str, delivered: Delivered) -> httpx.Response:
    return await ask(plane, f"/v1/queue/{verb}", delivered.resolve())


# -- a process dies and comes back; its client does not repeat anything


@pytest.mark.parametrize("step", ["release.commit", "release.answer"])
async def test_a_release_outlives_the_process_of_its_leases(plane: SplitPlane, step: str) -> None:
    await plane.restart(Role.LEASES, f"{step}:crash")
    key = secrets.token_hex(6)
    lease = await acquire(plane, key)

    async with asyncio.TaskGroup() as tasks:
        answered = tasks.create_task(release(plane, lease))
        tasks.create_task(restarted(plane, Role.LEASES))

    assert answered.result().status_code in (200, 502, 503)
    assert (await acquire(plane, key))["fencing_token"] == 2


async def test_a_release_that_its_client_repeats_is_answered(plane: SplitPlane) -> None:
    await plane.restart(Role.LEASES, "release.commit:crash")
    key = secrets.token_hex(6)
    lease = await acquire(plane, key)

    first = await release(plane, lease)  # The process is not started while it is answered.
    await restarted(plane, Role.LEASES)
    second = await release(plane, lease)

    assert (first.status_code, first.headers["retry-after"]) in ((502, "1"), (503, "1"))
    assert (second.status_code, second.json()) == (200, {"released": True})
    assert (await acquire(plane, key))["fencing_token"] == 2


@pytest.mark.parametrize("role", [Role.TXN, Role.STATE, Role.QUEUE])
async def test_a_release_needs_no_process_but_its_own(plane: SplitPlane, store: Store, role: Role) -> None:
    transaction = SplitTransaction(plane, ttl_s=LONG_S)
    await transaction.begin()
    plane.kill(role)

    answer = await transaction.release()
    plane.start(role)

    assert answer is not None
    assert answer.status_code == 200
    await plane.ready(role)
    await plane.ready(Role.GATEWAY)
    assert (await transaction.healed(store)).is_committed
    assert await transaction.is_free()


@pytest.mark.parametrize(
    "step", ["queue.ack.commit", pytest.param("queue.ack.answer", marks=pytest.mark.long)]
)
async def test_an_ack_outlives_the_process_of_its_queue(plane: SplitPlane, store: Store, step: str) -> None:
    queue = f"q-{secrets.token_hex(6)}"
    await plane.restart(Role.QUEUE, f"{step}:crash")
    await enqueue(plane, queue)
    delivered = await dequeue(plane, queue)

    async with asyncio.TaskGroup() as tasks:
        answered = tasks.create_task(resolve(plane, "ack", delivered))
        tasks.create_task(restarted(plane, Role.QUEUE))

    async def is_gone() -> bool:
        return not await MESSAGES.fetch_range(store, "default", queue, limit=1)

    assert answered.result().status_code in (200, 502, 503)
    await plane.until(is_gone)


@pytest.mark.parametrize(
    "step", ["queue.nack.commit", pytest.param("queue.nack.answer", marks=pytest.mark.long)]
)
async def test_a_nack_outlives_the_process_of_its_queue(plane: SplitPlane, step: str) -> None:
    queue = f"q-{secrets.token_hex(6)}"
    await plane.restart(Role.QUEUE, f"{step}:crash")
    message_id = await enqueue(plane, queue)
    delivered = await dequeue(plane, queue)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(resolve(plane, "nack", delivered))
        tasks.create_task(restarted(plane, Role.QUEUE))

    again = await dequeue(plane, queue)
    assert (again.message["message_id"], again.message["failure_attempts"]) == (message_id, 1)


async def test_a_release_whose_client_hangs_up_is_finished(plane: SplitPlane) -> None:
    key = secrets.token_hex(6)
    lease = await acquire(plane, key)
    async with held_still(plane, Role.LEASES):
        client = send(plane, "/v1/release", *release_of(lease))
        client.hang_up(by_reset=True)
        # The gateway has seen both when it answers a call that came later.
        assert (await plane.client.get("/healthz")).status_code == 200

    assert (await acquire(plane, key))["fencing_token"] == 2


# -- one of two replicas dies; the other one takes its calls


async def test_a_release_goes_to_the_other_replica(pair: SplitPlane) -> None:
    await pair.restart(Role.LEASES, "release.commit:crash")
    keys: list[str] = []

    for key in names_until_death(pair, Role.LEASES):
        keys.append(key)
        answer = await release(pair, await acquire(pair, key))
        assert (answer.status_code, answer.json()) == (200, {"released": True})

    await pair.restart(Role.LEASES)
    for key in keys:
        assert (await acquire(pair, key))["fencing_token"] == 2


@pytest.mark.parametrize(
    "step", ["queue.ack.answer", pytest.param("queue.ack.commit", marks=pytest.mark.long)]
)
async def test_an_ack_that_is_repeated_at_the_other_replica_is_answered_as_one(
    pair: SplitPlane, step: str
) -> None:
    await pair.restart(Role.QUEUE, f"{step}:crash")

    for queue in names_until_death(pair, Role.QUEUE):
        await enqueue(pair, queue, to=Role.GATEWAY)
        answer = await resolve(pair, "ack", await dequeue(pair, queue))
        assert answer.status_code == 200, answer.text
        assert answer.json()["acked"] is True

    await pair.restart(Role.QUEUE)


async def test_a_message_that_was_acked_by_somebody_else_is_not_found(pair: SplitPlane) -> None:
    queue = f"q-{secrets.token_hex(6)}"
    await enqueue(pair, queue)
    delivered = await dequeue(pair, queue)
    await resolve(pair, "ack", delivered)

    again = await resolve(pair, "ack", delivered)

    assert (again.status_code, again.json()["error"]) == (404, "not_found")
