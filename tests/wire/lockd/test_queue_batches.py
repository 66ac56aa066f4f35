"""Many messages in one call: all or none on their way in, as many as are ready on their way out, each for itself at its end."""

import json

from holdfast.queue.layer.delivery.claims import CLAIM_BYTES_MAX
from holdfast.queue.layer.message.types import BATCH_MAX
from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import (
    MULTIPART,
    closed,
    deliveries,
    dequeue,
    enqueue,
    part,
    take,
    until_available,
)
from tests.wire.lockd.test_leases import OTHER_XID, refusal
from tests.wire.lockd.test_queue import UNKNOWN

BATCH = "/v1/queue/enqueueBatch"
LARGE = b"0123456789abcdef" * 20_000


def meta(**members: object) -> bytes:
    return part("meta", json.dumps(members).encode(), "application/json")


async def put(wire: Wire, *payloads: bytes, queue: str = "orders") -> list[str]:
    parts = [piece for payload in payloads for piece in (meta(queue=queue), part("payload", payload))]
    answer = await wire.post(BATCH, closed(*parts), MULTIPART)
    assert answer.status_code == 200, answer.text
    return [message["message_id"] for message in answer.json()["messages"]]


async def test_a_batch_goes_in_and_comes_out_in_order(wire: Wire) -> None:
    payloads = [b"%d" % number for number in range(100)]

    sent = await put(wire, *payloads)
    answer = await take(wire, "orders", "/v1/queue/dequeueBatch", page_size=64)
    rest = await take(wire, "orders", "/v1/queue/dequeueBatch", page_size=1000)

    taken = deliveries(answer.headers["content-type"], answer.content)
    taken += deliveries(rest.headers["content-type"], rest.content)
    assert answer.text.count('filename="meta-63.json"') == 1
    assert answer.text.count("form-data") == 128
    assert [delivered.message["message_id"] for delivered in taken] == sent == sorted(sent)
    assert [delivered.payload for delivered in taken] == payloads


async def test_a_batch_of_large_messages_is_cut_where_it_would_fill_memory(wire: Wire) -> None:
    kept_inline = b"x" * 60_000
    sent = [message_id for _ in range(3) for message_id in await put(wire, *[kept_inline] * 100)]

    answer = await take(wire, "orders", "/v1/queue/dequeueBatch", page_size=1000)
    rest = await take(wire, "orders", "/v1/queue/dequeueBatch", page_size=1000)

    taken = deliveries(answer.headers["content-type"], answer.content)
    more = deliveries(rest.headers["content-type"], rest.content)
    assert len(answer.content) < 2 * CLAIM_BYTES_MAX
    assert [delivered.message["message_id"] for delivered in taken + more] == sent
    assert {delivered.message["attempts"] for delivered in taken + more} == {1}


async def test_each_message_of_a_batch_is_answered_as_if_it_came_alone(wire: Wire) -> None:
    parts = [
        meta(queue="orders", max_attempts=3, attributes={"a": 1}, priority=-1),
        part("payload", b"one"),
        meta(queue="other"),
        meta(queue="orders", delay_seconds=60),
        part("payload", LARGE),
    ]

    answer = await wire.post(BATCH, closed(*parts), {**MULTIPART, "X-Correlation-Id": "req-1"})

    told = answer.json()
    assert list(told) == ["messages", "correlation_id"]
    assert told["correlation_id"] == "req-1"
    first, second, third = told["messages"]
    assert (first["queue"], first["max_attempts"], first["priority"]) == ("orders", 3, -1)
    assert (second["queue"], second["payload_bytes"]) == ("other", 0)
    assert (third["queue"], third["payload_bytes"]) == ("orders", len(LARGE))
    assert {message["correlation_id"] for message in told["messages"]} == {"req-1"}
    assert (await dequeue(wire, "orders")).payload == b"one"
    assert refusal(await take(wire, "orders")) == (409, "waiting")


async def test_a_batch_with_large_payloads_streams_out_as_it_streamed_in(wire: Wire) -> None:
    await put(wire, b"small", LARGE, b"", LARGE[::-1])

    answer = await take(wire, "orders", "/v1/queue/dequeueBatch", page_size=10)

    taken = deliveries(answer.headers["content-type"], answer.content)
    assert [delivered.payload for delivered in taken] == [b"small", LARGE, b"", LARGE[::-1]]


async def test_a_batch_waits_for_its_first_message_only(wire: Wire) -> None:
    await enqueue(wire, "orders", b"one", delay_seconds=1)

    answer = await take(wire, "orders", "/v1/queue/dequeueBatch", page_size=10, wait_seconds=20)

    assert len(deliveries(answer.headers["content-type"], answer.content)) == 1


GOOD = (meta(queue="orders"), part("payload", b"x"))
REFUSED = {
    "nothing": (closed(), 400, "invalid_body"),
    "payload first": (closed(part("payload", b"x"), meta(queue="orders")), 400, "multipart_error"),
    "two payloads": (closed(*GOOD, part("payload", b"y")), 400, "multipart_error"),
    "cut off": (closed(*GOOD, *GOOD)[:-30], 400, "multipart_error"),
    "one is wrong": (closed(*GOOD, meta(queue="a b")), 400, "invalid_queue"),
    "one has no queue": (closed(*GOOD, meta()), 400, "missing_queue"),
    "too many": (closed(*[GOOD[0]] * (BATCH_MAX + 1)), 413, "batch_too_large"),
    "too large": (closed(*[GOOD[0], part("payload", b"x" * 65_536)] * 140), 413, "batch_too_large"),
}


async def test_a_batch_is_stored_whole_or_not_at_all(wire: Wire) -> None:
    for name, (body, status, code) in REFUSED.items():
        assert refusal(await wire.post(BATCH, body, MULTIPART)) == (status, code), name

    assert refusal(await take(wire, "orders")) == (409, "waiting")


async def test_a_batch_may_have_a_thousand_messages(wire: Wire) -> None:
    answer = await wire.post(BATCH, closed(*[meta(queue="orders")] * BATCH_MAX), MULTIPART)

    assert len(answer.json()["messages"]) == BATCH_MAX


async def test_acks_of_a_batch_stand_for_themselves(wire: Wire) -> None:
    await put(wire, b"one", b"two", b"three")
    answer = await take(wire, "orders", "/v1/queue/dequeueBatch", page_size=10)
    one, two, three = deliveries(answer.headers["content-type"], answer.content)
    messages = [
        one.resolve(),
        two.resolve(lease_id=OTHER_XID),
        {"message_id": UNKNOWN, "lease_id": "x"},
        {"message_id": "x", "lease_id": "x"},
        three.resolve(meta_etag=""),
    ]

    acked = await wire.post("/v1/queue/ackBatch", {"queue": "orders", "messages": messages})
    again = await wire.post("/v1/queue/ackBatch", {"queue": "orders", "messages": messages})

    told = acked.json()
    assert acked.status_code == 200
    assert told["acked"] == 2
    assert [result.get("error") for result in told["results"]] == [
        *(None, "queue_message_lease_mismatch", "not_found", "not_found", None),
    ]
    assert [result["acked"] for result in told["results"]] == [True, False, False, False, True]
    assert told["results"][0] == {"message_id": one.message["message_id"], "acked": True}
    assert again.json()["acked"] == 0
    assert (await wire.post("/v1/queue/ack", two.resolve())).status_code == 200


NAMELESS: list[tuple[dict[str, object], int, str]] = [
    ({"queue": "orders"}, 400, "missing_fields"),
    ({"queue": "orders", "messages": []}, 400, "missing_fields"),
    ({"messages": [{"message_id": "x", "lease_id": "y"}]}, 400, "missing_fields"),
    ({"queue": "orders", "messages": [{"message_id": "x"}]}, 400, "missing_fields"),
    ({"queue": "a b", "messages": [{"message_id": "x", "lease_id": "y"}]}, 400, "invalid_queue_key"),
    ({"queue": "orders", "messages": [1]}, 400, "invalid_body"),
    (
        {"queue": "orders", "messages": [{"message_id": "x", "lease_id": "y"}] * (BATCH_MAX + 1)},
        413,
        "batch_too_large",
    ),
]


async def test_the_first_ack_of_a_transaction_resolves_its_whole_batch(wire: Wire) -> None:
    await put(wire, b"1", b"2", b"3")
    answer = await take(wire, "orders", "/v1/queue/dequeueBatch", page_size=3, txn_id=OTHER_XID)
    messages = [
        delivered.resolve(txn_id=None)
        for delivered in deliveries(answer.headers["content-type"], answer.content)
    ]

    acked = await wire.post("/v1/queue/ackBatch", {"queue": "orders", "messages": messages})

    assert [result["acked"] for result in acked.json()["results"]] == [True, True, True]


async def test_a_batch_of_acks_that_names_nothing_is_refused(wire: Wire) -> None:
    for body, status, code in NAMELESS:
        assert refusal(await wire.post("/v1/queue/ackBatch", body)) == (status, code)


async def test_a_watch_sees_a_batch(wire: Wire) -> None:
    await put(wire, b"one", b"two")

    await until_available(wire, "orders")
