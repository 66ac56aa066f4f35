"""Waiting for a lease at one entrance while another one ends it: every shape of the plane, over one PostgreSQL.

TTLs are a minute or more where something else than time has to wake the waiter, so a waiter that gets the lease was woken.
"""

import asyncio
import secrets
import signal

import pytest

from tests.system.nodes.nodes import Nodes, Pair, compact, until
from tests.wire.lockd.conftest import Lease

WOKEN_S = 20  # Far below TTL_S, and far above what a busy machine takes.
TTL_S = 120
BATCH_PATH = "/v1/keepalive/batch"


@pytest.fixture
def key() -> str:
    return f"orders-{secrets.token_hex(4)}"


def renewal(lease: Lease, ttl_s: int) -> dict[str, object]:
    proof = {"lease_id": lease.lease_id, "txn_id": lease.txn_id, "fencing_token": lease.token}
    return {"key": lease.key, "ttl_seconds": ttl_s, **proof}


def waiter(pair: Pair, key: str, **asked: object) -> "asyncio.Task[Lease]":
    body = {"block_seconds": 50, "owner": "waiter", **asked}
    return asyncio.create_task(pair.b.acquire(key, **body))


async def test_a_release_wakes_a_waiter_at_the_other_entrance(pair: Pair, key: str) -> None:
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    waiting = waiter(pair, key)
    await pair.b.until_waiting()

    await pair.a.release(held)

    granted = await asyncio.wait_for(waiting, WOKEN_S)
    assert granted.token > held.token
    await pair.a.release(granted)


async def test_a_rollback_wakes_a_waiter_and_leaves_no_document(pair: Pair, key: str) -> None:
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    await pair.a.update(held, b'{"state":"staged"}')
    waiting = waiter(pair, key)
    await pair.b.until_waiting()

    await pair.a.release(held, rollback=True)

    granted = await asyncio.wait_for(waiting, WOKEN_S)
    assert (await pair.b.read(key)).status_code == 204
    await pair.b.release(granted)


async def test_what_a_commit_published_is_seen_by_the_waiter_that_it_woke(pair: Pair, key: str) -> None:
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    await pair.a.update(held, b'{"state":"open"}')
    waiting = waiter(pair, key)
    await pair.b.until_waiting()

    await pair.a.release(held)

    granted = await asyncio.wait_for(waiting, WOKEN_S)
    assert (await pair.b.read(key)).json() == {"state": "open"}
    await pair.b.release(granted)


async def test_an_expiry_wakes_a_waiter_at_the_other_entrance(pair: Pair, key: str) -> None:
    held = await pair.a.acquire(key, ttl_seconds=1)

    granted = await asyncio.wait_for(waiter(pair, key), WOKEN_S)

    assert granted.token > held.token
    await pair.b.release(granted)


async def test_a_batch_of_keepalives_at_the_other_entrance_keeps_leases(pair: Pair, key: str) -> None:
    held = [await pair.a.acquire(f"{key}/{number}", ttl_seconds=3) for number in range(4)]
    held.append(await pair.a.acquire(f"{key}/same-transaction", ttl_seconds=3, txn_id=held[0].txn_id))

    renewed = await pair.b.post(BATCH_PATH, {"renewals": [renewal(lease, TTL_S) for lease in held]})
    refused = [
        pair.a.post("/v1/acquire", {"key": lease.key, "owner": "waiter", "block_seconds": 4})
        for lease in held
    ]

    assert renewed.json()["renewed"] == 5, renewed.text
    assert [answer.status_code for answer in await asyncio.gather(*refused)] == [409] * 5
    for lease in held:
        await pair.b.release(lease)


async def test_a_shorter_keepalive_lets_the_waiter_in_earlier(pair: Pair, key: str) -> None:
    """The end that the waiter was told of when it came is no longer true."""
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    waiting = waiter(pair, key)
    await pair.b.until_waiting()

    body = {"key": key, "lease_id": held.lease_id, "txn_id": held.txn_id, "ttl_seconds": 1}
    kept = await pair.a.post("/v1/keepalive", body, {"X-Fencing-Token": str(held.token)})
    assert kept.status_code == 200, kept.text

    granted = await asyncio.wait_for(waiting, WOKEN_S)
    assert granted.token > held.token
    await pair.b.release(granted)


async def test_a_release_whose_caller_hung_up_wakes_the_waiter(pair: Pair, key: str) -> None:
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    waiting = waiter(pair, key)
    await pair.b.until_waiting()
    body = (f'{{"key":"{key}","lease_id":"{held.lease_id}","txn_id":"{held.txn_id}"}}').encode()
    head = (
        f"POST /v1/release HTTP/1.1\r\nHost: plane\r\nContent-Type: application/json\r\n"
        f"X-Fencing-Token: {held.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()

    await pair.a.talk(head + body, is_cut_off=True)
    # The call was cancelled before its commit, or not; the holder tries again as its client would.
    await pair.a.release(held)

    granted = await asyncio.wait_for(waiting, WOKEN_S)
    await pair.b.release(granted)


async def test_a_lease_may_be_released_at_either_entrance(pair: Pair, key: str) -> None:
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    waiting = waiter(pair, key)
    await pair.b.until_waiting()

    await pair.b.release(held)

    granted = await asyncio.wait_for(waiting, WOKEN_S)
    await pair.a.release(granted)


async def test_waiters_of_one_entrance_are_served_in_the_order_they_came(pair: Pair, key: str) -> None:
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    served: list[int] = []

    async def wait_in_line(place: int) -> None:
        granted = await pair.b.acquire(key, block_seconds=50, ttl_seconds=TTL_S, owner=f"waiter-{place}")
        served.append(place)
        await pair.a.release(granted)

    tasks = []
    for place in range(4):
        tasks.append(asyncio.create_task(wait_in_line(place)))
        await pair.b.until_waiting(place + 1)
    await pair.a.release(held)
    await asyncio.wait_for(asyncio.gather(*tasks), WOKEN_S)

    assert served == [0, 1, 2, 3]


async def test_waiters_at_both_entrances_all_get_the_key_once(pair: Pair, key: str) -> None:
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    tokens: list[int] = []

    async def take_turn(number: int) -> None:
        granted = await pair[number % 2].acquire(key, block_seconds=50, ttl_seconds=TTL_S)
        tokens.append(granted.token)
        await pair[number % 2].release(granted)

    tasks = [asyncio.create_task(take_turn(number)) for number in range(8)]
    await pair.b.until_waiting(4)
    await pair.a.release(held)
    await asyncio.wait_for(asyncio.gather(*tasks), WOKEN_S)

    assert len(set(tokens)) == 8


async def test_a_create_only_acquire_is_refused_at_the_other_entrance_at_once(pair: Pair, key: str) -> None:
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    waiting = waiter(pair, key)
    await pair.b.until_waiting()

    asked = {"key": key, "owner": "new", "ttl_seconds": 5, "block_seconds": 50, "if_not_exists": True}
    refused = await asyncio.wait_for(pair.b.post("/v1/acquire", asked), WOKEN_S)

    assert (refused.status_code, refused.json()["error"]) == (409, "already_exists")
    await pair.a.release(held)
    await pair.b.release(await asyncio.wait_for(waiting, WOKEN_S))


async def test_a_decision_on_a_transaction_frees_its_keys_at_the_other_entrance(pair: Pair, key: str) -> None:
    first = await pair.a.acquire(key, ttl_seconds=TTL_S)
    second = await pair.a.acquire(f"{key}-joined", ttl_seconds=TTL_S, txn_id=first.txn_id)
    waiting = [waiter(pair, key), waiter(pair, f"{key}-joined")]
    await pair.b.until_waiting(2)

    await pair.a.release(second)

    for granted in await asyncio.wait_for(asyncio.gather(*waiting), WOKEN_S):
        await pair.b.release(granted)


async def test_what_was_released_at_the_other_entrance_is_no_longer_counted(pair: Pair, key: str) -> None:
    before = await pair.a.level("holdfast_lease_active")
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    assert await pair.a.level("holdfast_lease_active") >= 1

    await pair.b.release(held)

    async def is_forgotten() -> bool:
        return await pair.a.level("holdfast_lease_active") <= before

    await until(is_forgotten, WOKEN_S)


async def test_a_service_that_was_stopped_while_history_was_compacted_wakes_its_waiters(
    all_shapes: Nodes, key: str
) -> None:
    pair = all_shapes.pair("left-right")
    held = await pair.a.acquire(key, ttl_seconds=TTL_S)
    waiting = waiter(pair, key)
    await pair.b.until_waiting()

    all_shapes.signal("leases2", signal.SIGSTOP)
    try:
        await pair.a.release(held)
        await compact(all_shapes.store_url)
    finally:
        all_shapes.signal("leases2", signal.SIGCONT)

    await pair.b.release(await asyncio.wait_for(waiting, WOKEN_S))


async def test_the_engine_of_a_namespace_and_its_index_are_the_same_at_both_entrances(
    pair: Pair, key: str
) -> None:
    """Turned off, changed and on again here; queries there follow, with an index that either of them built."""
    engines = [{"preferred_engine": "scan", "fallback_engine": "none"}, {"preferred_engine": "index"}]
    found: list[list[str]] = []
    for number, engine in enumerate(engines):
        stored = await pair.a.post("/v1/namespace", {"namespace": key, "query": engine})
        assert stored.status_code == 200, stored.text
        held = await pair.a.acquire(f"k{number}", namespace=key)
        await pair.a.post("/v1/update", {"kind": "order"}, held.headers, key=held.key, namespace=key)
        await pair.a.release(held, namespace=key)

        told = (await pair.b.get("/v1/namespace", namespace=key)).json()["query"]
        assert told["preferred_engine"] == engine["preferred_engine"]
        answer = await pair.b.post(
            "/v1/query", {"namespace": key, "selector": {"eq": {"field": "/kind", "value": "order"}}}
        )
        assert answer.status_code == 200, answer.text
        found.append(sorted(answer.json()["keys"]))

    assert found == [["k0"], ["k0", "k1"]]
