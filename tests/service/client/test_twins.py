"""What the two clients once did in different ways, and now do alike."""

import asyncio
import random
import threading
import time
from typing import Any

import pytest

from holdfast.client import (
    AsyncClient,
    AsyncDelivery,
    Client,
    ClientClosed,
    ClientOptions,
    Consumer,
    ConsumerFailed,
    Delivery,
    RestartPolicy,
    Session,
)
from holdfast.client.sync.concurrency import Background
from tests.infra.deliveries import delivered, message
from tests.infra.fake_plane import FakePlane, Reply, Seen, reply

WAIT_S = 10.0
ACQUIRE = "/v1/acquire"
DEQUEUE = "/v1/queue/dequeue"
EXTEND = "/v1/queue/extend"
NACK = "/v1/queue/nack"
SUBSCRIBE = "/v1/queue/subscribe"


def delay(plane: FakePlane, path: str, until: threading.Event, seconds: float = WAIT_S) -> None:
    """Answers for this path come when the event is set, or when the time is over."""
    answer: Any = plane.answer

    def slow(request: Seen) -> Reply:
        result: Reply = answer(request)
        if request.path == path:
            until.wait(seconds)
        return result

    plane.answer = slow  # type: ignore[method-assign]  # A server that takes its time.


def test_closing_a_client_ends_its_pause_between_two_attempts(plane: FakePlane, url: str) -> None:
    problems: list[Exception] = []
    client = Client(url)

    def acquire() -> Session | None:
        try:
            return client.acquire("orders", block_s=None)
        except ClientClosed as problem:
            problems.append(problem)
            return None

    with Client(url) as holder, holder.acquire("orders"):
        waiting = threading.Thread(target=acquire, daemon=True)
        waiting.start()
        plane.wait_for(ACQUIRE, 2)
        for _ in range(3):  # By then the answer to the acquire has come as well.
            client.load("other")
        client.close()
        waiting.join(WAIT_S)  # The server said 30 seconds.

    assert [type(problem) for problem in problems] == [ClientClosed]


async def test_closing_an_asynchronous_client_ends_its_pause_between_two_attempts(
    plane: FakePlane, url: str
) -> None:
    client = AsyncClient(url)
    async with AsyncClient(url) as holder, holder.acquire("orders"):
        waiting = asyncio.ensure_future(client.acquire("orders", block_s=None))
        await asyncio.to_thread(plane.wait_for, ACQUIRE, 2)
        for _ in range(3):  # By then the answer to the acquire has come as well.
            await client.load("other")
        await client.close()

        with pytest.raises(ClientClosed):
            async with asyncio.timeout(WAIT_S):  # The server said 30 seconds.
                await waiting


def test_a_dequeue_that_waits_takes_no_connection_from_what_is_read_as_a_stream(
    plane: FakePlane, url: str
) -> None:
    plane.then(DEQUEUE, delivered())
    go_on = threading.Event()
    delay(plane, DEQUEUE, go_on)

    with Client(url, options=ClientOptions(connections_max=1, timeout_s=1)) as client:
        waiting = threading.Thread(target=client.queue("orders").dequeue, daemon=True)
        waiting.start()
        plane.wait_for(DEQUEUE)
        with client.stream("orders") as document:
            is_there = document.exists
        go_on.set()
        waiting.join(WAIT_S)

    assert not is_there


async def test_an_asynchronous_dequeue_that_waits_takes_no_connection_from_what_is_read_as_a_stream(
    plane: FakePlane, url: str
) -> None:
    plane.then(DEQUEUE, delivered())
    go_on = threading.Event()
    delay(plane, DEQUEUE, go_on)

    async with AsyncClient(url, options=ClientOptions(connections_max=1, timeout_s=1)) as client:
        waiting = asyncio.ensure_future(client.queue("orders").dequeue())
        await asyncio.to_thread(plane.wait_for, DEQUEUE)
        async with client.stream("orders") as document:
            is_there = document.exists
        go_on.set()
        await waiting

    assert not is_there


def test_after_a_kept_block_no_extend_is_under_way(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, delivered())
    extended = message(meta_etag="m2", lease_expires_at_unix=4_000_000_000)
    plane.then(EXTEND, reply(200, **extended))
    is_left = threading.Event()
    delay(plane, EXTEND, is_left, seconds=0.5)

    with Client(url) as client:
        taken = client.queue("orders").dequeue()
        taken.claim.visibility_s = 0.1
        with taken.kept():
            plane.wait_for(EXTEND)
        etag = taken.meta_etag
        is_left.set()

    assert etag == "m2"


class BrokenPolicy(RestartPolicy):
    """Fails when it is asked."""

    def delay_s(self, failures: int, chance: random.Random) -> float:
        raise ZeroDivisionError("never ready for this")


def test_a_consumer_that_fails_in_an_unforeseen_way_says_which_one_it_is(plane: FakePlane, url: str) -> None:
    plane.then(SUBSCRIBE, reply(500, error="internal"))
    consumer = Consumer[Delivery](queue="orders", handler=print, restart=BrokenPolicy())

    with Client(url) as client, pytest.raises(ConsumerFailed) as raised:
        client.start_consumer(consumer)

    assert (raised.value.queue, type(raised.value.__cause__)) == ("orders", ZeroDivisionError)


async def test_an_asynchronous_consumer_that_fails_in_an_unforeseen_way_says_which_one_it_is(
    plane: FakePlane, url: str
) -> None:
    plane.then(SUBSCRIBE, reply(500, error="internal"))
    consumer = Consumer[AsyncDelivery](queue="orders", handler=print, restart=BrokenPolicy())

    async with AsyncClient(url) as client:
        with pytest.raises(ConsumerFailed) as raised:
            await client.start_consumer(consumer)

    assert (raised.value.queue, type(raised.value.__cause__)) == ("orders", ZeroDivisionError)


def test_a_handler_that_wants_the_process_to_end_ends_all_consumers(plane: FakePlane, url: str) -> None:
    plane.then(SUBSCRIBE, delivered())
    plane.then(NACK, reply(200, requeued=True))

    def leave(taken: Delivery) -> None:
        raise SystemExit(3)

    with Client(url) as client, pytest.raises(SystemExit):
        client.start_consumer(Consumer(queue="orders", handler=leave, auto_ack=True))

    assert plane.at(NACK)[0].members()["intent"] == "defer"


def test_the_time_to_close_is_for_all_that_is_given_back_together() -> None:
    background = Background()
    go_on = threading.Event()

    def work() -> None:
        go_on.wait(WAIT_S)

    for number in range(5):
        background.start(work, name=f"test.{number}")

    began_s = time.monotonic()
    background.wait(0.3)
    took_s = time.monotonic() - began_s
    go_on.set()
    background.wait(WAIT_S)

    assert 0.3 <= took_s < 0.9
