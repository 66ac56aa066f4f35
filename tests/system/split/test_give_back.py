"""A client of a split plane that hangs up keeps nothing: what it was granted while it went is given back at once.

The gateway is held still while the service answers, so that the hang-up and the answer meet there.
"""

import secrets
from collections.abc import AsyncIterator
from multiprocessing.context import ForkServerContext

import pytest

from holdfast.common.role import Role
from tests.infra.postgres import PostgresServer
from tests.system.split.client import (
    LONG_S,
    acquire,
    ask,
    dequeue,
    enqueue,
    has_waiter,
    held_still,
    owner_of,
    release,
    send,
    stats,
)
from tests.system.split.plane import SplitPlane

ENDS = pytest.mark.parametrize("by_reset", [True, False], ids=["reset", "end"])
LARGE = b"0123456789abcdef" * 200_000


@pytest.fixture(scope="module")
def store_url(postgres_server: PostgresServer) -> str:
    separator = "&" if "?" in postgres_server.url else "?"
    return f"{postgres_server.url}{separator}schema=give_back_{secrets.token_hex(6)}"


@pytest.fixture(scope="module")
async def plane(processes: ForkServerContext, store_url: str) -> AsyncIterator[SplitPlane]:
    async with SplitPlane(processes, store_url).running() as plane:
        yield plane


async def granted_while_its_client_goes(
    plane: SplitPlane, key: str, *, by_reset: bool, **more: object
) -> None:
    """A waiter is granted the key, and hangs up before the gateway has seen the answer."""
    first = await acquire(plane, key, to=Role.LEASES)
    params: dict[str, object] = {"key": key, "owner": "gone", "ttl_seconds": LONG_S, "block_seconds": LONG_S}
    client = send(plane, "/v1/acquire", {**params, **more})
    await plane.until(lambda: has_waiter(plane))
    async with held_still(plane):
        await release(plane, first, to=Role.LEASES)

        async def is_granted() -> bool:
            return await owner_of(plane, key) == "gone"

        await plane.until(is_granted)
        client.hang_up(by_reset=by_reset)


@ENDS
async def test_a_lease_that_was_granted_while_its_client_went_is_free_again(
    plane: SplitPlane, by_reset: bool
) -> None:
    key = secrets.token_hex(6)

    await granted_while_its_client_goes(plane, key, by_reset=by_reset)

    assert (await acquire(plane, key))["fencing_token"] == 3


async def test_a_lease_that_is_given_back_leaves_its_transaction_alone(plane: SplitPlane) -> None:
    key = secrets.token_hex(6)
    holder = await acquire(plane, f"{key}-holder")
    claim = {"X-Lease-ID": holder["lease_id"], "X-Txn-ID": holder["txn_id"], "X-Fencing-Token": "1"}
    staged = await plane.client.post(
        "/v1/update", params={"key": f"{key}-holder"}, content=b'{"n":1}', headers=claim
    )
    assert staged.status_code == 200, staged.text

    await granted_while_its_client_goes(plane, key, by_reset=True, txn_id=holder["txn_id"])
    await acquire(plane, key)

    assert (await release(plane, holder)).json() == {"released": True}
    published = await plane.client.post("/v1/get", params={"key": f"{key}-holder", "public": "1"})
    assert published.json() == {"n": 1}


@ENDS
@pytest.mark.parametrize("path", ["dequeue", "dequeueWithState", "dequeueBatch", "subscribe"])
async def test_a_message_that_was_delivered_while_its_client_went_is_ready_again(
    plane: SplitPlane, path: str, by_reset: bool
) -> None:
    queue = f"q-{secrets.token_hex(6)}"
    asked = {"queue": queue, "owner": "gone", "visibility_timeout_seconds": LONG_S}
    client = send(plane, f"/v1/queue/{path}", asked)

    async def is_awaited() -> bool:
        return bool((await stats(plane, queue))["waiting_consumers"] == 1)

    async def is_taken() -> bool:
        return not (await stats(plane, queue))["available"]

    await plane.until(is_awaited)
    async with held_still(plane):
        message_id = await enqueue(plane, queue)
        await plane.until(is_taken)
        client.hang_up(by_reset=by_reset)

    again = await dequeue(plane, queue, f"/v1/queue/{path if path == 'dequeueWithState' else 'dequeue'}")

    assert again.message["message_id"] == message_id
    assert (again.message["attempts"], again.message.get("failure_attempts", 0)) == (1, 0)


async def test_a_large_message_whose_client_went_is_ready_again(plane: SplitPlane) -> None:
    queue = f"q-{secrets.token_hex(6)}"
    message_id = await enqueue(plane, queue, LARGE)
    client = send(
        plane, "/v1/queue/dequeue", {"queue": queue, "owner": "gone", "visibility_timeout_seconds": LONG_S}
    )
    await client.read_until(message_id.encode())
    client.hang_up(by_reset=True)

    again = await dequeue(plane, queue)

    assert (again.message["message_id"], again.message["attempts"]) == (message_id, 1)
    assert again.payload == LARGE


async def test_a_subscriber_keeps_what_it_took_and_no_more(plane: SplitPlane) -> None:
    queue = f"q-{secrets.token_hex(6)}"
    first = await enqueue(plane, queue, b"first")
    asked = {"queue": queue, "owner": "gone", "visibility_timeout_seconds": LONG_S, "page_size": 8}
    client = send(plane, "/v1/queue/subscribe", asked)
    assert first.encode() in await client.read_until(b"first\r\n--")  # With the delimiter it counts as taken.
    await plane.ready(Role.GATEWAY)  # A turn of its loop later, the gateway knows that it has written this.
    async with held_still(plane):
        second = await enqueue(plane, queue, b"second")

        async def is_taken() -> bool:
            return not (await stats(plane, queue))["available"]

        await plane.until(is_taken)
        client.hang_up(by_reset=True)

    again = await dequeue(plane, queue)
    rest = await ask(plane, "/v1/queue/dequeue", {"queue": queue, "owner": "worker", "wait_seconds": -1})

    assert again.message["message_id"] == second
    assert rest.status_code == 409


async def test_what_was_given_back_is_counted(plane: SplitPlane) -> None:
    key = secrets.token_hex(6)
    await granted_while_its_client_goes(plane, key, by_reset=True)
    await acquire(plane, key)

    metrics = (await plane.client.get("/metrics")).text

    assert 'holdfast_gateway_given_back_total{service="leases",outcome="done"}' in metrics
    assert "holdfast_gateway_unfinished 0" in metrics
