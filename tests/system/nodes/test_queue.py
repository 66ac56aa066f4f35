"""Queues from two entrances: who waits, streams or watches at one of them is told of what is done at the other.

Visibilities are a minute where something else than time has to bring a message, so whoever gets it was told.
"""

import asyncio
import secrets
import signal
from typing import Any, Final

import pytest

from holdfast.common.ids import new_xid
from tests.system.nodes.nodes import Nodes, Pair, compact, until
from tests.wire.lockd.queue_wire import Delivered, dequeue, enqueue
from tests.wire.lockd.test_queue_streams import events, subscribed

TOLD_S = 20
DEQUEUE = "/v1/queue/dequeue"
VISIBILITY_S = 120
TAKEN: Final[dict[str, Any]] = {"visibility_timeout_seconds": VISIBILITY_S}


@pytest.fixture
def queue() -> str:
    return f"orders-{secrets.token_hex(4)}"


async def stats(pair: Pair, place: int, queue: str) -> dict[str, Any]:
    told: dict[str, Any] = (await pair[place].post("/v1/queue/stats", {"queue": queue})).json()
    return told


async def waiting_consumer(pair: Pair, queue: str, path: str = DEQUEUE) -> "asyncio.Task[Delivered]":
    task = asyncio.create_task(dequeue(pair.b, queue, path, wait_seconds=50))

    async def is_waiting() -> bool:
        return bool((await stats(pair, 1, queue))["waiting_consumers"] >= 1)

    await until(is_waiting)
    return task


async def test_an_enqueue_wakes_a_consumer_at_the_other_entrance(pair: Pair, queue: str) -> None:
    waiting = await waiting_consumer(pair, queue)

    sent = await enqueue(pair.a, queue, b"payload")

    taken = await asyncio.wait_for(waiting, TOLD_S)
    assert (taken.message["message_id"], taken.payload) == (sent["message_id"], b"payload")
    assert (await pair.a.post("/v1/queue/ack", taken.resolve())).status_code == 200


async def test_the_commit_of_a_transaction_wakes_a_consumer_at_the_other_entrance(
    pair: Pair, queue: str
) -> None:
    lease = await pair.a.acquire(f"key-{queue}", txn_id=new_xid())
    waiting = await waiting_consumer(pair, queue)
    sent = await enqueue(pair.b, queue, b"payload", txn_id=lease.txn_id)
    assert not (await stats(pair, 1, queue))["available"]

    assert (await pair.a.release(lease)).status_code == 200

    taken = await asyncio.wait_for(waiting, TOLD_S)
    assert (taken.message["message_id"], taken.payload) == (sent["message_id"], b"payload")


async def test_who_does_not_wait_finds_what_was_acknowledged_at_the_other_entrance(
    pair: Pair, queue: str
) -> None:
    for _ in range(20):
        sent = await enqueue(pair.a, queue)
        taken = await dequeue(pair.b, queue, **TAKEN)
        assert taken.message["message_id"] == sent["message_id"]

        assert (await pair.b.post("/v1/queue/nack", taken.resolve())).status_code == 200
        again = await dequeue(pair.a, queue, **TAKEN)
        assert again.message["message_id"] == sent["message_id"]
        assert (await pair.a.post("/v1/queue/ack", again.resolve())).status_code == 200


async def test_a_message_that_becomes_due_wakes_a_consumer_at_the_other_entrance(
    pair: Pair, queue: str
) -> None:
    waiting = await waiting_consumer(pair, queue)

    sent = await enqueue(pair.a, queue, delay_seconds=1)

    taken = await asyncio.wait_for(waiting, TOLD_S)
    assert taken.message["message_id"] == sent["message_id"]


async def test_a_nack_wakes_a_consumer_at_the_other_entrance(pair: Pair, queue: str) -> None:
    sent = await enqueue(pair.a, queue)
    taken = await dequeue(pair.a, queue, **TAKEN)
    waiting = await waiting_consumer(pair, queue)

    assert (await pair.a.post("/v1/queue/nack", taken.resolve())).status_code == 200

    again = await asyncio.wait_for(waiting, TOLD_S)
    assert (again.message["message_id"], again.message["attempts"]) == (sent["message_id"], 2)


async def test_a_visibility_that_ends_wakes_a_consumer_at_the_other_entrance(pair: Pair, queue: str) -> None:
    await enqueue(pair.a, queue)
    await dequeue(pair.a, queue, visibility_timeout_seconds=1)
    waiting = await waiting_consumer(pair, queue)

    assert (await asyncio.wait_for(waiting, TOLD_S)).message["attempts"] == 2


async def test_a_shorter_extension_brings_the_message_back_earlier(pair: Pair, queue: str) -> None:
    await enqueue(pair.a, queue)
    taken = await dequeue(pair.a, queue, **TAKEN)
    waiting = await waiting_consumer(pair, queue)

    extended = await pair.a.post("/v1/queue/extend", taken.resolve(extend_by_seconds=1))
    assert extended.status_code == 200, extended.text

    assert (await asyncio.wait_for(waiting, TOLD_S)).message["attempts"] == 2


async def test_an_ack_at_the_other_entrance_ends_the_delivery(pair: Pair, queue: str) -> None:
    await enqueue(pair.a, queue)
    taken = await dequeue(pair.a, queue, **TAKEN)

    assert (await pair.b.post("/v1/queue/ack", taken.resolve())).status_code == 200

    async def is_gone_everywhere() -> bool:
        told = [await stats(pair, place, queue) for place in (0, 1)]
        return all(one["in_flight"] == one["pending_candidates"] == 0 for one in told)

    await until(is_gone_everywhere, TOLD_S)


async def test_a_subscriber_is_told_of_messages_and_of_acks_at_the_other_entrance(
    pair: Pair, queue: str
) -> None:
    async with asyncio.timeout(TOLD_S * 3):
        async with subscribed(pair.b, queue=queue, page_size=1, **TAKEN) as stream:
            await enqueue(pair.a, queue, b"one")
            await stream.open()
            one = await stream.next()
            await enqueue(pair.a, queue, b"two")
            await pair.a.post("/v1/queue/ack", one.resolve())  # Makes room for the next one.
            two = await stream.next()

    assert (one.payload, two.payload) == (b"one", b"two")


async def test_a_watch_tells_of_what_happens_at_the_other_entrance(pair: Pair, queue: str) -> None:
    seen = events(pair.b, {"queue": queue})

    async with asyncio.timeout(TOLD_S * 3):
        assert (await anext(seen))["available"] is False
        sent = await enqueue(pair.a, queue)
        there = await anext(seen)
        taken = await dequeue(pair.a, queue, **TAKEN)
        gone = await anext(seen)
        await pair.a.post("/v1/queue/nack", taken.resolve())
        back = await anext(seen)
    await seen.aclose()

    assert [event["available"] for event in (there, gone, back)] == [True, False, True]
    assert there["head_message_id"] == back["head_message_id"] == sent["message_id"]


async def test_a_pause_at_one_entrance_holds_at_the_other_until_it_ends(pair: Pair, queue: str) -> None:
    waiting = await waiting_consumer(pair, queue)
    await pair.a.post("/v1/queue/pause", {"queue": queue})

    async def is_paused() -> bool:
        return bool((await stats(pair, 1, queue)).get("paused"))

    await until(is_paused, TOLD_S)
    await enqueue(pair.a, queue)
    await pair.a.post("/v1/queue/resume", {"queue": queue})

    assert (await asyncio.wait_for(waiting, TOLD_S)).message["attempts"] == 1


async def test_every_message_goes_to_one_consumer_of_either_entrance(pair: Pair, queue: str) -> None:
    sent = {(await enqueue(pair[number % 2], queue))["message_id"] for number in range(16)}
    taken: list[str] = []

    async def consume(number: int) -> None:
        for _ in range(4):
            delivered = await dequeue(pair[number % 2], queue, wait_seconds=50, **TAKEN)
            taken.append(delivered.message["message_id"])
            await pair[(number + 1) % 2].post("/v1/queue/ack", delivered.resolve())

    await asyncio.wait_for(asyncio.gather(*(consume(number) for number in range(4))), TOLD_S * 3)

    assert sorted(taken) == sorted(sent)


async def test_a_rollback_at_the_other_entrance_gives_the_message_of_its_transaction_back(
    pair: Pair, queue: str
) -> None:
    await enqueue(pair.a, queue)
    lease = await pair.a.acquire(f"key-{queue}", ttl_seconds=VISIBILITY_S)
    await dequeue(pair.a, queue, txn_id=lease.txn_id, **TAKEN)
    waiting = await waiting_consumer(pair, queue)

    await pair.a.release(lease, rollback=True)

    assert (await asyncio.wait_for(waiting, TOLD_S)).message["attempts"] == 2


async def test_the_state_of_a_message_is_free_for_the_next_consumer_at_the_other_entrance(
    pair: Pair, queue: str
) -> None:
    path = "/v1/queue/dequeueWithState"
    await enqueue(pair.a, queue)
    taken = await dequeue(pair.a, queue, path, **TAKEN)
    waiting = await waiting_consumer(pair, queue, path=path)

    nacked = await pair.a.post("/v1/queue/nack", taken.resolve_state())
    assert nacked.status_code == 200, nacked.text

    again = await asyncio.wait_for(waiting, TOLD_S)
    assert again.message["state_fencing_token"] > taken.message["state_fencing_token"]


async def test_a_service_that_was_stopped_while_history_was_compacted_wakes_its_consumers(
    all_shapes: Nodes, queue: str
) -> None:
    pair = all_shapes.pair("left-right")
    seen = events(pair.b, {"queue": queue})
    assert (await anext(seen))["available"] is False
    waiting = await waiting_consumer(pair, f"{queue}-waited")

    all_shapes.signal("queue2", signal.SIGSTOP)
    try:
        sent = await enqueue(pair.a, f"{queue}-waited")
        watched = await enqueue(pair.a, queue)
        await compact(all_shapes.store_url)
    finally:
        all_shapes.signal("queue2", signal.SIGCONT)

    async with asyncio.timeout(TOLD_S):
        assert (await waiting).message["message_id"] == sent["message_id"]
        assert (await anext(seen))["head_message_id"] == watched["message_id"]
    await seen.aclose()
