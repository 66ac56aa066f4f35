"""Queues of both twins against a real plane."""

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import (
    AsyncClient,
    AsyncDelivery,
    Client,
    Consumer,
    ConsumerEvent,
    ConsumerFailed,
    Delivery,
    LeaseLost,
    NotFound,
    Outgoing,
    QueueEmpty,
    RequestRefused,
    RestartPolicy,
    Stop,
    TxnConflict,
)
from holdfast.client.testing import Chaos, ChaosProxy, TestServer

WAIT_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer("--qrf-disabled") as running:
        yield running


@pytest.fixture
def client(server: TestServer) -> Iterator[Client]:
    with Client(server.url) as opened:
        yield opened


def test_a_message_is_sent_taken_and_gone(client: Client) -> None:
    queue = client.queue("life")
    sent = queue.enqueue(
        b'{"n":1}', content_type="application/json", attributes={"a": [1]}, correlation_id="c-1"
    )

    with queue.dequeue(block_s=5) as taken:
        found = (taken.message_id, taken.payload.json(), taken.message.attributes, taken.correlation_id)

    assert found == (sent.message_id, {"n": 1}, {"a": [1]}, "c-1")
    assert taken.message.content_type == "application/json"
    with pytest.raises(QueueEmpty):
        queue.dequeue(block_s=0)
    with pytest.raises(LeaseLost):
        taken.ack()


def test_a_second_ack_from_elsewhere_is_not_found(client: Client) -> None:
    queue = client.queue("twice")
    queue.enqueue(b"x")
    taken = queue.dequeue(block_s=5)
    taken.ack()

    with pytest.raises(NotFound):
        queue.attach(taken.message).ack()


def test_a_failed_block_gives_the_message_back_with_its_reason(client: Client) -> None:
    queue = client.queue("fails")
    sent = queue.enqueue(b"x", max_attempts=2)

    for _ in range(2):
        with pytest.raises(ZeroDivisionError), queue.dequeue(block_s=5):
            _ = 1 // 0
    dead = list(queue.dead_letters.list())

    assert [(letter.message_id, letter.failure_attempts) for letter in dead] == [(sent.message_id, 2)]


def test_a_long_block_keeps_its_message(client: Client) -> None:
    queue = client.queue("long")
    queue.enqueue(b"x")

    with queue.dequeue(block_s=5, visibility_s=1) as taken:
        first_etag = taken.meta_etag
        # Another consumer waits for longer than the visibility time and gets nothing.
        with pytest.raises(QueueEmpty):
            queue.dequeue(block_s=3)

    assert taken.meta_etag != first_etag
    assert not taken.lost.is_set()


def test_a_message_that_is_not_kept_is_lost(client: Client) -> None:
    queue = client.queue("lost")
    queue.enqueue(b"x")
    first = queue.dequeue(block_s=5, visibility_s=1)

    second = queue.dequeue(block_s=5)

    with pytest.raises(LeaseLost):
        first.ack()
    assert first.lost.is_set()
    assert (second.message.attempts, second.message.fencing_token) == (2, 2)
    second.ack()


def test_payloads_of_any_size_come_back_byte_for_byte(client: Client, tmp_path: Path) -> None:
    queue = client.queue("sizes")
    large = tmp_path / "large"
    large.write_bytes(hashlib.shake_256(b"seed").digest(9_000_001))
    queue.enqueue(b"")
    queue.enqueue(large)
    queue.enqueue(iter([b"a" * 70_000, b"\r\n--", b"b"]))

    with queue.dequeue(block_s=5) as empty:
        nothing = empty.payload.read()
    with queue.dequeue(block_s=5) as taken:
        taken.payload.save_to(tmp_path / "copy")
    with queue.dequeue(block_s=5) as streamed:
        pieces = streamed.payload.read()

    assert nothing == b""
    assert (tmp_path / "copy").read_bytes() == large.read_bytes()
    assert pieces == b"a" * 70_000 + b"\r\n--b"


def test_a_batch_goes_in_and_out_in_order(client: Client) -> None:
    queue = client.queue("batches")
    queue.enqueue_many([b"0", "1", Outgoing(payload=b"2", priority=-1), Outgoing(payload=b"3", delay_s=60)])

    batch = queue.dequeue_batch(100, block_s=5)
    acked = queue.ack_many(batch)

    assert [taken.payload.read() for taken in batch] == [b"2", b"0", b"1"]
    assert all(result.is_acked for result in acked)
    assert queue.dequeue_batch(100, block_s=0) == []


def test_state_survives_a_nack_and_goes_with_the_ack(client: Client) -> None:
    queue = client.queue("flows")
    queue.enqueue(b"start")

    seen: list[object] = []
    with pytest.raises(ValueError, match="half way"), queue.dequeue_with_state(block_s=5) as taken:
        seen.append(taken.state.load())
        taken.state.save({"step": 1})
        raise ValueError("half way")
    with queue.dequeue_with_state(block_s=5) as taken:
        seen.append(taken.state.load())
        taken.state.save({"step": 2})

    assert seen == [None, {"step": 1}]
    assert client.get(taken.message.state_key) is None


def test_a_transaction_takes_its_message_along(client: Client) -> None:
    queue = client.queue("txn")
    queue.enqueue(b"x")

    with pytest.raises(ValueError, match="half way"), client.acquire("txn-key") as session:
        queue.dequeue(block_s=5, txn_id=session.lease.txn_id)
        session.save({"n": 1})
        raise ValueError("half way")
    with client.acquire("txn-key") as session:
        again = queue.dequeue(block_s=5, txn_id=session.lease.txn_id)
        session.save({"n": 2})

    assert (again.message.attempts, again.message.failure_attempts) == (2, 0)
    assert client.load("txn-key") == {"n": 2}
    assert queue.dequeue_batch(5, block_s=0) == []


def test_an_ack_commits_the_transaction_of_its_message(client: Client) -> None:
    queue = client.queue("txn-ack")
    queue.enqueue(b"x")

    with client.acquire("txn-ack-key") as session:
        with queue.dequeue(block_s=5, txn_id=session.lease.txn_id):
            session.save({"n": 1})
        committed = client.load("txn-ack-key")

    assert committed == {"n": 1}


def test_a_session_sends_its_messages_with_its_commit(client: Client) -> None:
    queue = client.queue("sent")

    with pytest.raises(ValueError, match="half way"), client.acquire("sent-key") as session:
        session.enqueue("sent", b"dropped")
        session.save({"n": 1})
        raise ValueError("half way")
    with client.acquire("sent-key") as session:
        sent = session.enqueue("sent", b"x", attributes={"tenant": "acme"}, priority=2)
        session.save({"n": 2})
        seen_before = queue.dequeue_batch(5, block_s=0)
        txn_id = session.lease.txn_id

    assert seen_before == []
    assert sent.txn_id == txn_id
    assert client.load("sent-key") == {"n": 2}
    with queue.dequeue(block_s=5) as taken:
        assert (taken.message.message_id, taken.payload.read()) == (sent.message_id, b"x")
        assert taken.message.attributes == {"tenant": "acme"}
    assert queue.dequeue_batch(5, block_s=0) == []
    with pytest.raises(TxnConflict):
        queue.enqueue(b"late", txn_id=txn_id)


def test_the_ack_of_a_delivery_sends_what_follows_from_it(client: Client) -> None:
    client.queue("sent-in").enqueue(b"first")

    with client.queue("sent-in").dequeue(block_s=5) as taken:
        sent = client.queue("sent-out").enqueue_many([b"a", b"b"], txn_id=taken.message.txn_id)
        seen_before = client.queue("sent-out").dequeue_batch(5, block_s=0)

    assert seen_before == []
    following = client.queue("sent-out").dequeue_batch(5, block_s=5)
    assert [one.message.message_id for one in following] == [one.message_id for one in sent]


def test_the_asynchronous_session_sends_its_messages_with_its_commit(server: TestServer) -> None:
    async def send() -> list[bytes]:
        async with AsyncClient(server.url) as client:
            queue = client.queue("sent-async")
            async with await client.acquire("sent-async-key") as session:
                await session.enqueue("sent-async", "text")
                assert await queue.dequeue_batch(1, block_s=0) == []
            return [await one.payload.read() for one in await queue.dequeue_batch(5, block_s=5)]

    assert asyncio.run(send()) == [b"text"]


def test_a_subscription_pushes_what_comes_and_ends_when_it_is_closed(client: Client) -> None:
    queue = client.queue("stream")
    found: list[bytes] = []

    with queue.subscribe(prefetch=2) as deliveries:
        producer = threading.Thread(target=lambda: [queue.enqueue(str(n)) for n in range(5)])
        producer.start()
        for taken in deliveries:
            with taken:
                found.append(taken.payload.read())
            if len(found) == 5:
                deliveries.close()
        producer.join(WAIT_S)

    assert found == [b"0", b"1", b"2", b"3", b"4"]


def test_a_subscription_that_waits_is_closed_by_another_thread(client: Client) -> None:
    deliveries = client.queue("silent").subscribe()
    reader = threading.Thread(target=lambda: list(deliveries))
    reader.start()
    while client.queue("silent").stats().waiting_consumers == 0:
        assert reader.is_alive()

    deliveries.close()
    reader.join(WAIT_S)

    assert not reader.is_alive()


@pytest.mark.parametrize("prefetch", [1, 2, 10])
def test_nowait_drains_what_is_there(client: Client, prefetch: int) -> None:
    queue = client.queue(f"drain-{prefetch}")
    queue.enqueue_many([b"a", b"b", b"c"])

    found: list[bytes] = []
    for taken in queue.subscribe(prefetch=prefetch, block_s=0):
        with taken:
            found.append(taken.payload.read())

    assert found == [b"a", b"b", b"c"]


def test_nowait_brings_no_more_than_may_be_in_hand_to_who_resolves_nothing(client: Client) -> None:
    queue = client.queue("kept-in-hand")
    queue.enqueue_many([b"a", b"b", b"c"])

    taken = list(queue.subscribe(prefetch=2, block_s=0))

    assert [delivery.payload.read() for delivery in taken] == [b"a", b"b"]


def test_consumers_restart_after_a_failure_and_stop_gracefully(client: Client) -> None:
    client.queue("work").enqueue_many([b"a", b"b", b"c"])
    stop = Stop()
    handled: list[bytes] = []
    events: list[ConsumerEvent] = []

    def handle(taken: Delivery) -> None:
        handled.append(taken.payload.read())
        if handled == [b"a", b"b"]:
            raise RuntimeError("boom")
        if sorted(handled) == [b"a", b"b", b"b", b"c"]:
            stop.set()

    client.start_consumer(
        Consumer(queue="work", handler=handle, auto_ack=True, on_stop=events.append),
        stop=stop,
    )

    assert sorted(handled) == [b"a", b"b", b"b", b"c"]
    assert [type(event.error) for event in events] == [RuntimeError, type(None)]
    assert client.queue("work").dequeue_batch(5, block_s=0) == []


def test_a_consumer_without_auto_ack_resolves_by_itself(client: Client) -> None:
    queue = client.queue("manual")
    queue.enqueue(b"x")
    stop = Stop()

    def handle(taken: Delivery) -> None:
        taken.ack()
        stop.set()

    client.start_consumer(Consumer(queue="manual", handler=handle), stop=stop)

    assert queue.stats().in_flight == 0


def test_a_consumer_that_can_not_go_on_ends_all(client: Client) -> None:
    ended: list[str] = []
    good = Consumer[Delivery](queue="good", handler=print, on_stop=lambda event: ended.append(event.name))
    bad = Consumer[Delivery](queue="Bad Name!", handler=print)

    with pytest.raises(ConsumerFailed) as raised:
        client.start_consumer(good, bad)

    assert raised.value.queue == "Bad Name!"
    assert isinstance(raised.value.__cause__, RequestRefused)
    assert ended == ["good"]


def test_an_error_handler_may_end_all(client: Client) -> None:
    client.queue("strict").enqueue(b"x")

    def handle(taken: Delivery) -> None:
        raise RuntimeError("boom")

    def give_up(event: ConsumerEvent) -> None:
        raise SystemError("enough")

    with pytest.raises(ConsumerFailed, match="enough"):
        client.start_consumer(Consumer(queue="strict", handler=handle, error_handler=give_up))


def test_failures_in_a_row_have_a_limit(client: Client) -> None:
    client.queue("limit").enqueue(b"x", max_attempts=100)

    def handle(taken: Delivery) -> None:
        raise RuntimeError("boom")

    policy = RestartPolicy(max_failures=2, base_delay_s=0)
    with pytest.raises(ConsumerFailed, match="boom"):
        client.start_consumer(
            Consumer(queue="limit", handler=handle, auto_ack=True, visibility_s=1, restart=policy)
        )


def test_dead_letters_are_redriven_and_purged(client: Client) -> None:
    queue = client.queue("dead")
    for sent in queue.enqueue_many([Outgoing(payload=str(n), max_attempts=1) for n in range(3)]):
        taken = queue.dequeue(block_s=5)
        taken.nack(reason="no")
        assert taken.message_id == sent.message_id
    ids = [letter.message_id for letter in queue.dead_letters.list()]

    counts: list[int] = []
    redriven = queue.dead_letters.redrive(ids[:1], on_progress=counts.append)
    purged = queue.dead_letters.purge()

    assert (len(ids), redriven, counts, purged) == (3, 1, [1], 2)
    assert [message.message_id for message in queue.peek(10)] == ids[:1]


def test_a_look_takes_nothing(client: Client) -> None:
    queue = client.queue("look")
    sent = queue.enqueue(b"\xff\x00", attributes={"a": 1})

    stats = queue.stats()
    (message,) = queue.peek(5, payloads=True)

    assert (stats.is_available, stats.head_message_id) == (True, sent.message_id)
    assert (message.payload, message.attributes, message.attempts) == (b"\xff\x00", {"a": 1}, 0)
    assert queue.peek(5)[0].payload is None


def test_a_watch_tells_the_present_and_each_change(client: Client) -> None:
    queue = client.queue("watched")
    heads: list[str] = []
    sent: list[str] = []

    with queue.watch() as changes:
        for change in changes:
            heads.append(change.head_message_id)
            if sent:
                break
            sent.append(queue.enqueue(b"x").message_id)

    assert heads == ["", *sent]


def test_a_policy_holds_for_messages_that_say_nothing(client: Client) -> None:
    queue = client.queue("rules")
    policy = queue.set_policy(max_attempts=7, ttl_s=600)
    sent = queue.enqueue(b"x")

    paused = queue.pause()
    with pytest.raises(QueueEmpty):
        queue.dequeue(block_s=0)
    resumed = queue.resume()

    assert (policy.max_attempts, policy.ttl_s, sent.max_attempts) == (7, 600, 7)
    assert (paused.is_paused, resumed.is_paused) == (True, False)
    assert queue.policy().max_attempts == 7
    queue.dequeue(block_s=5).ack()


async def test_the_asynchronous_twin_does_the_same(server: TestServer) -> None:
    async with AsyncClient(server.url) as client:
        queue = client.queue("aio")
        await queue.enqueue_many([b"a", b"b", b"c", b"d"])
        async with queue.dequeue(block_s=5) as taken:
            first = await taken.payload.read()
        (second,) = await queue.dequeue_batch(1, block_s=5)
        await queue.ack_many([second])
        third = await queue.dequeue(block_s=5)
        await third.nack(intent="defer")
        found: list[bytes] = []
        async for taken in queue.subscribe(block_s=0):
            async with taken:
                found.append(await taken.payload.read())
        stats = await queue.stats()
        letters = [letter async for letter in queue.dead_letters.list()]

    assert (first, await second.payload.read(), found, letters) == (b"a", b"b", [b"d", b"c"], [])
    assert (stats.in_flight, stats.is_available) == (0, False)


async def test_asynchronous_consumers_restart_and_stop(server: TestServer) -> None:
    stop = Stop()
    handled: list[bytes] = []

    async def handle(taken: AsyncDelivery) -> None:
        handled.append(await taken.payload.read())
        if handled == [b"a", b"b"]:
            raise RuntimeError("boom")
        if sorted(handled) == [b"a", b"b", b"b", b"c"]:
            stop.set()

    async with AsyncClient(server.url) as client:
        await client.queue("aio-work").enqueue_many([b"a", b"b", b"c"])
        consumer = Consumer(queue="aio-work", handler=handle, auto_ack=True)
        async with asyncio.timeout(WAIT_S):
            await client.start_consumer(consumer, stop=stop)
        left = await client.queue("aio-work").dequeue_batch(5, block_s=0)

    assert sorted(handled) == [b"a", b"b", b"b", b"c"]
    assert left == []


async def test_a_lost_message_cancels_its_asynchronous_handler(server: TestServer) -> None:
    stop = Stop()
    outcomes: list[str] = []

    async with AsyncClient(server.url) as client:
        queue = client.queue("aio-lost")
        await queue.enqueue(b"x")

        async def handle(taken: AsyncDelivery) -> None:
            # Resolved behind its back: the next extend finds nothing.
            await queue.attach(taken.message).ack()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                outcomes.append("cancelled")
                stop.set()
                raise

        async with asyncio.timeout(WAIT_S):
            await client.start_consumer(Consumer(queue="aio-lost", handler=handle, visibility_s=1), stop=stop)

    assert outcomes == ["cancelled"]


async def test_cancelled_consumers_cancel_their_handlers(server: TestServer) -> None:
    is_inside = asyncio.Event()

    async def handle(taken: AsyncDelivery) -> None:
        is_inside.set()
        await asyncio.Event().wait()

    async with AsyncClient(server.url) as client:
        queue = client.queue("aio-cancel")
        await queue.enqueue(b"x")
        consumer = Consumer(queue="aio-cancel", handler=handle, auto_ack=True)
        running = asyncio.create_task(client.start_consumer(consumer))
        await asyncio.wait_for(is_inside.wait(), WAIT_S)
        running.cancel()
        await asyncio.wait({running}, timeout=WAIT_S)
        again = await queue.dequeue(block_s=5)

    assert running.cancelled()
    assert (again.message.attempts, again.message.failure_attempts) == (2, 0)


def test_a_subscription_outlives_the_restart_of_its_server() -> None:
    with TestServer("--qrf-disabled", store="disk") as server, Client(server.url) as client:
        queue = client.queue("restart")
        queue.enqueue(b"before")
        found: list[bytes] = []
        with queue.subscribe() as deliveries:
            for taken in deliveries:
                with taken:
                    found.append(taken.payload.read())
                if len(found) == 2:
                    break
                server.restart()
                queue.enqueue(b"after")

    assert found == [b"before", b"after"]


def test_no_message_is_lost_on_a_bad_network(server: TestServer) -> None:
    names = {f"{number}".encode() for number in range(40)}
    stop = Stop()
    handled: list[bytes] = []

    def handle(taken: Delivery) -> None:
        handled.append(taken.payload.read())
        if names <= set(handled):
            stop.set()

    with Client(server.url) as client:
        client.queue("chaos").enqueue_many(sorted(names))
    chaos = Chaos(seed=4, reset_probability=0.02, delay_max_s=0.005)
    with ChaosProxy(server.url, chaos) as proxy, Client(proxy.url) as client:
        policy = RestartPolicy(base_delay_s=0.01, max_delay_s=0.05)
        consumer = Consumer(
            queue="chaos", handler=handle, auto_ack=True, prefetch=4, visibility_s=2, restart=policy
        )
        client.start_consumer(consumer, stop=stop)

    assert set(handled) == names
    assert proxy.connections > 1
