"""Whatever a server answers about queues, a call ends in a result or in a ClientError."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.client import ClientError, ClientOptions, Message, Outgoing
from holdfast.client.queue.batch import ack_many, enqueue_many
from holdfast.client.queue.calls import QueueCalls, Taking
from holdfast.client.queue.dead_letters import change, page
from holdfast.client.queue.delivery import DeliveryClaim, ServerClock
from holdfast.client.queue.delivery_reader import DeliveryReader
from holdfast.client.queue.events import ChangeReader
from holdfast.client.queue.multipart import StreamEnd
from holdfast.client.queue.opening import Opening
from holdfast.client.wire.call import Answer, Call, Members
from holdfast.client.wire.flow import Channel, Flow
from tests.infra.deliveries import BOUNDARY, END, message, parts
from tests.infra.player import Player
from tests.unit.client.session.test_hostile_server import HEADERS, STATUSES, VALUES

NAMES = st.sampled_from(
    [
        "error", "detail", "retry_after_seconds", "current_etag", "namespace", "queue", "message_id", "attempts",
        "max_attempts", "messages", "results", "acked", "requeued", "meta_etag", "lease_expires_at_unix",
        "visibility_timeout_seconds", "attributes", "payload_base64", "next_after", "redriven", "purged", "paused",
        "deliveries_per_second", "available", "head_age_seconds",
    ]
)  # fmt: skip
BODIES = st.binary(max_size=50) | st.dictionaries(NAMES, VALUES, max_size=12).map(
    lambda it: json.dumps(it).encode()
)


def claim(channel: Channel) -> DeliveryClaim:
    return DeliveryClaim(channel, ClientOptions(), Message.read(Members(message())), left_s=1000.0)


def calls(channel: Channel) -> QueueCalls:
    return QueueCalls(channel, ClientOptions(), "n", "q")


OPERATIONS: list[Callable[[Channel], Flow[Any]]] = [
    lambda channel: claim(channel).ack(),
    lambda channel: claim(channel).nack(delay_s=1, intent="failure", reason="x"),
    lambda channel: claim(channel).extend(None),
    lambda channel: calls(channel).enqueue(Outgoing(payload=b"x"), ""),
    lambda channel: calls(channel).dequeue(Taking(owner="o", block_s=0.0)),
    lambda channel: calls(channel).stats(),
    lambda channel: calls(channel).peek(5, payloads=True),
    lambda channel: calls(channel).policy(max_attempts=3),
    lambda channel: calls(channel).pause(is_paused=True),
    lambda channel: enqueue_many(calls(channel), [b"x"], ""),
    lambda channel: ack_many(calls(channel), [claim(channel)]),
    lambda channel: page(calls(channel), "", None),
    lambda channel: change(calls(channel), "redrive", ["a"], None, print),
    lambda channel: Opening(channel, lambda: Call("POST", "/v1/queue/subscribe"), retries=0).attempt(),
]


@given(st.lists(st.tuples(STATUSES, HEADERS, BODIES), min_size=1, max_size=5))
def test_no_answer_breaks_a_queue(answers: list[tuple[int, dict[str, str], bytes]]) -> None:
    for operation in OPERATIONS:
        player = Player([Answer(*answers[number % len(answers)]) for number in range(30)])

        try:
            player.play(operation(player.channel))
        except ClientError as error:
            assert str(error)


@given(HEADERS, st.integers())
def test_no_date_breaks_a_delivery(headers: dict[str, str], expires_at_unix: int) -> None:
    player = Player([])
    clock = ServerClock(Answer(200, headers), player.clock.monotonic_s)
    delivered = Message(
        queue="q", message_id="m", lease_id="l", fencing_token=1, lease_expires_at_unix=expires_at_unix
    )

    assert clock.left_s(delivered) >= 0


@given(st.integers(0, 1500), st.binary(max_size=20), st.integers(1, 400))
def test_no_stream_breaks_a_reader(position: int, bytes_put_in: bytes, piece_bytes: int) -> None:
    whole = parts(b"one") + b"\r\n" + parts(b"two") + END
    hostile = whole[:position] + bytes_put_in + whole[position:]
    reader = DeliveryReader(BOUNDARY.encode())

    try:
        for start in range(0, len(hostile), piece_bytes):
            reader.feed(hostile[start : start + piece_bytes])
            while (event := reader.next_event()) is not None and not isinstance(event, StreamEnd):
                pass
    except ClientError as error:
        assert str(error)


@given(st.lists(st.binary(max_size=60) | st.just(b"event: queue_watch\ndata: {}\n\n"), max_size=5))
def test_no_event_breaks_a_watch(pieces: list[bytes]) -> None:
    reader = ChangeReader()

    try:
        for piece in pieces:
            reader.feed(piece)
    except ClientError as error:
        assert str(error)
