"""Queues of both twins against a fake plane: what is sent, what comes back, and who may have it."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.client import (
    AsyncClient,
    Client,
    ClientOptions,
    InvalidArgument,
    LeaseLost,
    Message,
    NotFound,
    Outgoing,
    QueueEmpty,
    RequestRefused,
    TransportFailed,
    UnexpectedAnswer,
)
from holdfast.client.aio.queue import dead_letters as aio_dead_letters
from holdfast.client.aio.queue import delivery as aio_delivery
from holdfast.client.aio.queue import queue as aio_queue
from holdfast.client.aio.queue import subscription as aio_subscription
from holdfast.client.sync.queue import dead_letters as sync_dead_letters
from holdfast.client.sync.queue import delivery as sync_delivery
from holdfast.client.sync.queue import queue as sync_queue
from holdfast.client.sync.queue import subscription as sync_subscription
from tests.infra.deliveries import BOUNDARY, MESSAGE_ID, STATE, delivered, parts
from tests.infra.fake_plane import FakePlane, Reply, Seen, reply

ENQUEUE = "/v1/queue/enqueue"
DEQUEUE = "/v1/queue/dequeue"
ACK = "/v1/queue/ack"
EXTEND = "/v1/queue/extend"
NACK = "/v1/queue/nack"
SUBSCRIBE = "/v1/queue/subscribe"
EMPTY: dict[str, Any] = {"error": "waiting", "detail": "no messages available"}


def enqueued(**changes: Any) -> Reply:
    members: dict[str, Any] = {
        "namespace": "default",
        "queue": "orders",
        "message_id": MESSAGE_ID,
        "attempts": 0,
        "max_attempts": 5,
        "correlation_id": "c-1",
    }
    return reply(200, **(members | changes))


def meta_of(request: Seen) -> dict[str, object]:
    _, _, rest = request.body.partition(b"\r\n\r\n")
    decoded: dict[str, object] = json.loads(rest.partition(b"\n\r\n--")[0])
    return decoded


def public_members(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("sync_kind", "async_kind"),
    [
        (sync_queue.Queue, aio_queue.Queue),
        (sync_delivery.Delivery, aio_delivery.Delivery),
        (sync_delivery.DeliveryState, aio_delivery.DeliveryState),
        (sync_dead_letters.DeadLetters, aio_dead_letters.DeadLetters),
        (sync_subscription.Subscription, aio_subscription.Subscription),
        (sync_subscription.Changes, aio_subscription.Changes),
    ],
)
def test_the_twins_have_the_same_names_and_parameters(sync_kind: type, async_kind: type) -> None:
    assert public_members(sync_kind) == public_members(async_kind)


def test_a_message_goes_out_in_two_parts_with_what_was_asked_for(plane: FakePlane, url: str) -> None:
    plane.then(ENQUEUE, enqueued(payload_bytes=13))

    with Client(url) as client:
        sent = client.queue("orders").enqueue(
            b'{"op":"ship"}',
            content_type="application/json",
            attributes={"tenant": "acme"},
            delay_s=0.5,
            visibility_s=45,
            ttl_s=600,
            max_attempts=3,
            priority=-1,
            correlation_id="req-4711",
        )

    request = plane.at(ENQUEUE)[0]
    assert (sent.message_id, sent.payload_bytes) == (MESSAGE_ID, 13)
    assert request.headers["content-type"].startswith("multipart/related; boundary=")
    assert request.headers["x-correlation-id"] == "req-4711"
    assert b'name="payload"\r\nContent-Type: application/json\r\n\r\n{"op":"ship"}\r\n--' in request.body
    assert meta_of(request) == {
        "namespace": "default",
        "queue": "orders",
        "delay_seconds": 1,
        "visibility_timeout_seconds": 45,
        "ttl_seconds": 600,
        "max_attempts": 3,
        "priority": -1,
        "attributes": {"tenant": "acme"},
        "payload_content_type": "application/json",
    }


def test_a_stream_goes_out_in_chunks(plane: FakePlane, url: str) -> None:
    plane.then(ENQUEUE, enqueued())

    with Client(url, options=ClientOptions(namespace="shop")) as client:
        client.queue("orders").enqueue(iter([b"one ", b"two"]))

    request = plane.at(ENQUEUE)[0]
    assert request.headers["transfer-encoding"] == "chunked"
    assert b"\r\n\r\none two\r\n--" in request.body
    assert meta_of(request)["namespace"] == "shop"


async def test_an_asynchronous_stream_goes_out_in_chunks(plane: FakePlane, url: str) -> None:
    plane.then(ENQUEUE, enqueued())

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    async with AsyncClient(url) as client:
        await client.queue("orders").enqueue(pieces())

    assert b"\r\n\r\none two\r\n--" in plane.at(ENQUEUE)[0].body


def test_a_block_acks_at_its_end(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, delivered())
    plane.then(ACK, reply(200, acked=True))

    with (
        Client(url) as client,
        client.queue("orders").dequeue(block_s=5, visibility_s=20, owner="me") as taken,
    ):
        payload = taken.payload.json()

    assert payload == {"op": "ship"}
    assert (taken.message.attributes, taken.correlation_id) == ({"n": 1, "tenant": "acme"}, "req-4711")
    assert plane.at(DEQUEUE)[0].members() == {
        "namespace": "default",
        "queue": "orders",
        "owner": "me",
        "wait_seconds": 5,
        "page_size": 1,
        "visibility_timeout_seconds": 20,
    }
    assert plane.at(ACK)[0].members()["message_id"] == MESSAGE_ID
    assert plane.at(ACK)[0].headers["x-correlation-id"] == "req-4711"


def test_a_block_that_raises_nacks_with_the_reason(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, delivered())
    plane.then(NACK, reply(200, requeued=True, meta_etag="m2"))

    with (
        Client(url) as client,
        pytest.raises(KeyError),
        client.queue("orders").dequeue(close_delay_s=3),
    ):
        raise KeyError("stock")

    told = plane.at(NACK)[0].members()
    assert (told["last_error"], told["delay_seconds"]) == ({"detail": "KeyError: 'stock'"}, 3)
    assert plane.at(ACK) == []


async def test_an_asynchronous_block_acks_or_nacks(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, delivered(), delivered())
    plane.then(ACK, reply(200, acked=True))
    plane.then(NACK, reply(200, requeued=True, meta_etag="m2"))

    async with AsyncClient(url) as client:
        queue = client.queue("orders")
        async with queue.dequeue() as taken:
            payload = await taken.payload.read()
        with pytest.raises(KeyError):
            async with queue.dequeue():
                raise KeyError("stock")

    assert payload == b'{"op":"ship"}'
    assert (len(plane.at(ACK)), len(plane.at(NACK))) == (1, 1)


def test_a_nack_that_fails_in_a_failing_block_is_noted_on_its_error(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, delivered())
    plane.then(NACK, reply(409, error="cas_mismatch"))

    with Client(url) as client, pytest.raises(KeyError) as raised, client.queue("orders").dequeue():
        raise KeyError("stock")

    assert "will come again" in raised.value.__notes__[0]


def test_an_interrupted_block_defers_the_message(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, delivered())
    plane.then(NACK, reply(200, requeued=True, meta_etag="m2"))

    with Client(url) as client, pytest.raises(KeyboardInterrupt), client.queue("orders").dequeue():
        raise KeyboardInterrupt

    assert plane.at(NACK)[0].members()["intent"] == "defer"


def test_a_block_that_resolves_by_itself_is_left_alone(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, delivered())
    plane.then(NACK, reply(200, requeued=True, meta_etag="m2"))

    with Client(url) as client, client.queue("orders").dequeue() as taken:
        taken.nack(delay_s=60, intent="defer")

    assert taken.is_resolved
    assert plane.at(ACK) == []


def test_an_ack_of_a_lost_message_says_so(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, delivered())
    plane.then(ACK, reply(409, error="queue_message_lease_mismatch"))

    with Client(url) as client:
        taken = client.queue("orders").dequeue()
        with pytest.raises(LeaseLost):
            taken.ack()
        with pytest.raises(LeaseLost):
            taken.ack()

    assert taken.lost.is_set()
    assert len(plane.at(ACK)) == 1


def test_an_empty_queue_raises_when_the_time_is_over(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, reply(409, **EMPTY))

    with Client(url) as client, pytest.raises(QueueEmpty):
        client.queue("orders").dequeue(block_s=0)

    assert plane.at(DEQUEUE)[0].members()["wait_seconds"] == -1


def test_an_empty_queue_gives_an_empty_batch(plane: FakePlane, url: str) -> None:
    plane.then("/v1/queue/dequeueBatch", reply(409, **EMPTY))

    with Client(url) as client:
        assert client.queue("orders").dequeue_batch(10, block_s=0) == []


def test_a_dequeue_waits_for_ever_by_default(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, Reply(0), delivered())  # The first connection breaks, as at a restart.

    with Client(url) as client:
        taken = client.queue("orders").dequeue()

    assert taken.message_id == MESSAGE_ID
    assert [request.members()["wait_seconds"] for request in plane.at(DEQUEUE)] == [0, 0]


@pytest.mark.parametrize(
    "answer",
    [
        Reply(200, b"hello", {"Content-Type": "text/plain"}),
        Reply(200, b"", {"Content-Type": f"multipart/related; boundary={BOUNDARY}"}),
        Reply(
            200, f"--{BOUNDARY}--\r\n".encode(), {"Content-Type": f"multipart/related; boundary={BOUNDARY}"}
        ),
    ],
)
def test_an_answer_without_a_delivery_is_an_error(plane: FakePlane, url: str, answer: Reply) -> None:
    plane.then(DEQUEUE, answer)

    with Client(url) as client, pytest.raises((UnexpectedAnswer, TransportFailed)):
        client.queue("orders").dequeue(block_s=0)


def test_a_payload_that_is_cut_off_gives_the_message_back(plane: FakePlane, url: str) -> None:
    whole = delivered(parts(b"x" * 100))
    plane.then(DEQUEUE, Reply(200, whole.body[:-120], whole.headers))
    plane.then(NACK, reply(200, requeued=True, meta_etag="m2"))

    with Client(url) as client, pytest.raises(TransportFailed):
        client.queue("orders").dequeue()

    assert plane.at(NACK)[0].members()["intent"] == "defer"


def test_a_large_payload_comes_in_pieces(plane: FakePlane, url: str) -> None:
    large = bytes(range(256)) * 8192
    plane.then(DEQUEUE, delivered(parts(large)))
    plane.then(ACK, reply(200, acked=True))

    with Client(url) as client, client.queue("orders").dequeue() as taken:
        pieces = list(taken.payload)

    assert len(pieces) > 1
    assert b"".join(pieces) == large


def test_a_batch_has_all_payloads_and_is_acked_at_once(plane: FakePlane, url: str) -> None:
    other = "01a1e1c5-68db-7adc-972e-daefb000a2ff"
    plane.then("/v1/queue/dequeueBatch", delivered(parts(b"one"), parts(b"two", message_id=other)))
    results = [
        {"message_id": MESSAGE_ID, "acked": True},
        {"message_id": other, "acked": False, "error": "not_found", "detail": "message not found"},
    ]
    plane.then("/v1/queue/ackBatch", reply(200, acked=1, results=results))

    with Client(url) as client:
        queue = client.queue("orders")
        batch = queue.dequeue_batch(10)
        acked = queue.ack_many(batch)

    assert [taken.payload.read() for taken in batch] == [b"one", b"two"]
    assert [result.is_acked for result in acked] == [True, False]
    assert isinstance(acked[1].error, NotFound)
    assert (batch[0].is_resolved, batch[1].lost.is_set()) == (True, True)


def test_messages_are_sent_in_batches_that_a_server_takes(plane: FakePlane, url: str) -> None:
    path = "/v1/queue/enqueueBatch"
    plane.then(
        path,
        reply(200, messages=[{"message_id": f"m{n}"} for n in range(1000)]),
        reply(200, messages=[{"message_id": "last"}]),
    )

    with Client(url) as client:
        sent = client.queue("orders").enqueue_many([b"x"] * 1000 + [Outgoing(payload="y", priority=3)])

    assert (len(sent), sent[-1].message_id) == (1001, "last")
    assert meta_of(plane.at(path)[1])["priority"] == 3


def test_a_stream_can_not_be_part_of_a_batch(url: str) -> None:
    with Client(url) as client, pytest.raises(InvalidArgument):
        client.queue("orders").enqueue_many([Outgoing(payload=iter([b"x"]))])


def test_state_is_read_and_written_under_its_own_lease(plane: FakePlane, url: str) -> None:
    plane.then("/v1/queue/dequeueWithState", delivered(parts(**STATE)))
    plane.then("/v1/get", Reply(204))
    plane.then("/v1/update", reply(200, new_version=1, new_state_etag="e1", bytes=10, metadata={}))
    plane.then("/v1/update", reply(200, new_version=2, new_state_etag="e2", bytes=10, metadata={}))
    plane.then(ACK, reply(200, acked=True))

    with Client(url) as client, client.queue("orders").dequeue_with_state() as taken:
        before = taken.state.load({"step": 0})
        taken.state.save({"step": 1})
        taken.state.save({"step": 2})

    first, second = plane.at("/v1/update")
    assert before == {"step": 0}
    assert first.query["key"] == f"q/orders/state/{MESSAGE_ID}"
    assert first.headers["x-lease-id"] == STATE["state_lease_id"]
    assert (second.headers["x-if-version"], second.headers["x-if-state-etag"]) == ("1", "e1")
    assert plane.at(ACK)[0].members()["state_lease_id"] == STATE["state_lease_id"]


def test_a_delivery_without_state_says_how_to_get_one(plane: FakePlane, url: str) -> None:
    plane.then(DEQUEUE, delivered())

    with Client(url) as client, pytest.raises(InvalidArgument, match="dequeue_with_state"):
        _ = client.queue("orders").dequeue().state


def test_a_delivery_is_resolved_by_another_process(plane: FakePlane, url: str) -> None:
    plane.then(ACK, reply(200, acked=True))
    message = Message(queue="orders", message_id=MESSAGE_ID, lease_id="l", fencing_token=1)

    with Client(url) as client:
        client.queue("orders").attach(message).ack()

    assert plane.at(ACK)[0].members()["lease_id"] == "l"


def test_a_subscription_goes_on_after_a_stream_that_ended_or_broke(plane: FakePlane, url: str) -> None:
    whole = delivered(parts(b"one"), parts(b"two"))
    cut = delivered(parts(b"three"))
    plane.then(SUBSCRIBE, whole, Reply(200, cut.body[: -len(BOUNDARY)], cut.headers), Reply(0))
    plane.then(SUBSCRIBE, delivered(parts(b"four")), reply(409, **EMPTY))

    with Client(url) as client, client.queue("orders").subscribe(block_s=1) as deliveries:
        found = [taken.payload.read() for taken in deliveries]

    assert found == [b"one", b"two", b"three", b"four"]


async def test_an_asynchronous_subscription_goes_on(plane: FakePlane, url: str) -> None:
    cut = delivered(parts(b"one"))
    plane.then(SUBSCRIBE, Reply(200, cut.body[: -len(BOUNDARY)], cut.headers), Reply(0))
    plane.then(SUBSCRIBE, delivered(parts(b"two")), reply(409, **EMPTY))

    async with AsyncClient(url) as client, client.queue("orders").subscribe(block_s=1) as deliveries:
        found = [await taken.payload.read() async for taken in deliveries]

    assert found == [b"one", b"two"]


def test_a_subscription_that_is_refused_raises(plane: FakePlane, url: str) -> None:
    plane.then(SUBSCRIBE, reply(400, error="invalid_queue"))

    with Client(url) as client, pytest.raises(RequestRefused):
        list(client.queue("Bad Name").subscribe())


def test_a_payload_is_read_before_the_next_delivery(plane: FakePlane, url: str) -> None:
    large = b"x" * 2_000_000
    plane.then(SUBSCRIBE, delivered(parts(large), parts(b"two")))

    with Client(url) as client, client.queue("orders").subscribe(block_s=0) as deliveries:
        first, second = deliveries

    assert second.payload.read() == b"two"
    with pytest.raises(InvalidArgument):
        first.payload.read()


@pytest.mark.parametrize(
    "arguments", [{"block_s": -1.0}, {"visibility_s": 0.0}, {"visibility_s": -5.0}, {"block_s": float("inf")}]
)
def test_nonsense_is_refused_before_anything_is_sent(
    plane: FakePlane, url: str, arguments: dict[str, Any]
) -> None:
    with Client(url) as client, pytest.raises(InvalidArgument):
        client.queue("orders").dequeue(**arguments)

    assert plane.seen == []


def test_a_queue_needs_a_name(url: str) -> None:
    with Client(url) as client, pytest.raises(InvalidArgument):
        client.queue(" ")


def test_a_delivery_of_another_process_is_kept(plane: FakePlane, url: str) -> None:
    """How long it lasts is not known: it is extended at once."""
    message = Message(queue="orders", message_id=MESSAGE_ID, lease_id="l", fencing_token=1)

    with Client(url) as client, client.queue("orders").attach(message).kept():
        extend = plane.wait_for(EXTEND)[0]

    assert extend.members()["lease_id"] == "l"


async def test_an_asynchronous_delivery_of_another_process_is_kept(plane: FakePlane, url: str) -> None:
    message = Message(queue="orders", message_id=MESSAGE_ID, lease_id="l", fencing_token=1)

    async with AsyncClient(url) as client:
        async with client.queue("orders").attach(message).kept():
            extend = (await asyncio.to_thread(plane.wait_for, EXTEND))[0]

    assert extend.members()["lease_id"] == "l"
