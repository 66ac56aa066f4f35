"""Queues on the wire: one message's life, and every row of the contract's errors."""

import asyncio
import json
import re
import time
from typing import Any

import pytest

from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import (
    MULTIPART,
    Delivered,
    dequeue,
    enqueue,
    message_body,
    take,
    until_redeliverable,
)
from tests.wire.lockd.test_leases import OTHER_XID, XID, refusal

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
ENQUEUES = ["/v1/queue/enqueue", "/v1/queue/enqueueBatch"]
RESOLUTIONS = ["/v1/queue/ack", "/v1/queue/nack", "/v1/queue/extend"]
CONSUMERS = [
    "/v1/queue/dequeue",
    "/v1/queue/dequeueWithState",
    "/v1/queue/subscribe",
    "/v1/queue/subscribeWithState",
    "/v1/queue/dequeueBatch",
]
UNKNOWN = "01a1e1b7-726b-7a9f-8c65-fb7a38489e73"


def is_soon(seconds_from_now: int, unix: int) -> bool:
    return abs(unix - time.time() - seconds_from_now) <= 5


async def test_an_enqueue_tells_what_it_stored(wire: Wire) -> None:
    told = await enqueue(
        wire,
        "Orders",
        b"hello",
        {"X-Correlation-Id": "req-1"},
        delay_seconds=7,
        visibility_timeout_seconds=45,
        max_attempts=3,
    )

    assert list(told) == [
        *("namespace", "queue", "message_id", "attempts", "max_attempts", "not_visible_until_unix"),
        *("visibility_timeout_seconds", "payload_bytes", "correlation_id"),
    ]
    assert UUID7.fullmatch(told["message_id"])
    assert (told["namespace"], told["queue"], told["correlation_id"]) == ("default", "orders", "req-1")
    assert (told["attempts"], told["max_attempts"], told["payload_bytes"]) == (0, 3, 5)
    assert told["visibility_timeout_seconds"] == 45
    assert is_soon(7, told["not_visible_until_unix"])


async def test_an_enqueue_is_answered_with_its_correlation_id_in_the_header_too(wire: Wire) -> None:
    answer = await wire.post("/v1/queue/enqueue", message_body(b"", queue="q"), MULTIPART)

    assert UUID7.fullmatch(answer.json()["correlation_id"])
    assert answer.headers["x-correlation-id"] == answer.json()["correlation_id"]


async def test_numbers_of_meta_below_one_mean_the_default(wire: Wire) -> None:
    for name in ("delay_seconds", "visibility_timeout_seconds", "ttl_seconds", "max_attempts"):
        for value in (-1, 0, None, -(1 << 63)):
            told = await enqueue(wire, "orders", b"", None, **{name: value})
            taken = await dequeue(wire, "orders")

            assert (told["max_attempts"], told["visibility_timeout_seconds"]) == (5, 30), name
            assert is_soon(0, told["not_visible_until_unix"]), name
            assert taken.message["message_id"] == told["message_id"], name


async def test_the_largest_numbers_are_taken(wire: Wire) -> None:
    largest = (1 << 63) - 1

    await enqueue(wire, "late", delay_seconds=largest)
    told = await enqueue(
        wire, "orders", ttl_seconds=largest, visibility_timeout_seconds=largest, max_attempts=largest
    )

    assert (await take(wire, "late")).status_code == 409
    taken = await dequeue(wire, "orders", visibility_timeout_seconds=largest)
    assert taken.message["message_id"] == told["message_id"]
    assert taken.message["visibility_timeout_seconds"] == 1800


async def test_attributes_come_back_with_their_members_in_order(wire: Wire) -> None:
    cases: list[tuple[dict[str, Any] | None, str]] = [
        ({"b": 1, "a": {"d": [1, 2.5, None, True], "c": "é"}}, '{"a":{"c":"é","d":[1,2.5,null,true]},"b":1}'),
        ({"n": 123456789012345678901234567890}, '{"n":123456789012345678901234567890}'),
        ({"": ""}, '{"":""}'),
        ({}, ""),
        (None, ""),
    ]
    for sent, returned in cases:
        await enqueue(wire, "orders", attributes=sent)

        answer = await take(wire, "orders")

        assert re.findall(r'"attributes":(.*?),"payload_content_type"', answer.text) == [returned] * bool(
            returned
        )


async def test_a_delivery_has_everything_a_consumer_needs(wire: Wire) -> None:
    sent = await enqueue(
        wire, "orders", b"hello", {"X-Correlation-Id": 'a "b"\\'}, payload_content_type="text/x; a=b"
    )

    answer = await take(wire, "orders", visibility_timeout_seconds=20)

    boundary = re.fullmatch(r"multipart/related; boundary=([0-9a-f]{60})", answer.headers["content-type"])
    assert boundary is not None
    assert answer.headers["x-correlation-id"] == 'a "b"\\'
    meta = json.loads(answer.text.split("\r\n\r\n")[1].partition("\n")[0])["message"]
    assert list(meta) == [
        *("namespace", "queue", "message_id", "attempts", "max_attempts", "not_visible_until_unix"),
        *(
            "visibility_timeout_seconds",
            "payload_content_type",
            "payload_bytes",
            "correlation_id",
            "lease_id",
        ),
        *("lease_expires_at_unix", "fencing_token", "txn_id", "meta_etag"),
    ]
    assert (meta["message_id"], meta["correlation_id"]) == (sent["message_id"], 'a "b"\\')
    assert (meta["attempts"], meta["fencing_token"], meta["visibility_timeout_seconds"]) == (1, 1, 20)
    assert meta["lease_expires_at_unix"] == meta["not_visible_until_unix"]
    assert is_soon(20, meta["lease_expires_at_unix"])
    assert XID.fullmatch(meta["lease_id"])
    assert XID.fullmatch(meta["txn_id"])
    assert meta["meta_etag"]
    assert 'name="payload"\r\nContent-Length: 5\r\nContent-Type: text/x; a=b\r\n\r\nhello\r\n' in answer.text


async def test_a_dequeue_is_read_tolerantly(wire: Wire) -> None:
    bodies = [
        {"queue": "ORDERS", "owner": "w", "wait_seconds": -1},
        {"queue": " orders ", "owner": " w ", "wait_seconds": -7, "page_size": 64, "start_after": "x"},
        {"queue": "orders", "owner": "w", "wait_seconds": 5, "unknown": [1], "namespace": None},
        {"queue": "orders", "owner": "w", "wait_seconds": 5, "visibility_timeout_seconds": -4},
    ]
    for body in bodies:
        await enqueue(wire, "orders", b"1")
        await enqueue(wire, "orders", b"2")

        answer = await wire.post("/v1/queue/dequeue", body)

        assert answer.status_code == 200, answer.text
        assert answer.text.count("form-data") == 2, body


async def test_parameters_may_stand_in_the_query(wire: Wire) -> None:
    await wire.post("/v1/queue/enqueue", message_body(b""), MULTIPART, queue="orders")

    taken = await wire.post("/v1/queue/dequeue", queue="Orders", owner="w", wait_seconds="-1")
    empty = await wire.post("/v1/queue/dequeue", queue="orders", owner="w", wait_seconds="-1")
    odd = await wire.post("/v1/queue/dequeue", queue="orders", owner="w", wait_seconds="x")

    assert taken.status_code == 200, taken.text
    assert refusal(empty) == (409, "waiting")
    assert refusal(odd) == (400, "invalid_body")


@pytest.mark.parametrize(("wait_seconds", "retry_after"), [(-1, None), (1, "1")])
async def test_an_empty_queue_tells_when_to_come_back(
    wire: Wire, wait_seconds: int, retry_after: str | None
) -> None:
    answers = await asyncio.gather(
        *[take(wire, "orders", path, wait_seconds=wait_seconds) for path in CONSUMERS]
    )

    for answer in answers:
        assert refusal(answer) == (409, "waiting")
        assert answer.json()["detail"] == "no messages available"
        assert answer.headers.get("retry-after") == retry_after
        assert answer.json().get("retry_after_seconds") == (None if retry_after is None else 1)


async def test_a_blocked_consumer_is_woken_by_an_enqueue(wire: Wire) -> None:
    waiting = asyncio.create_task(dequeue(wire, "orders", wait_seconds=20))
    await wire.read("anything")

    sent = await enqueue(wire, "orders", b"hello")

    assert (await waiting).message["message_id"] == sent["message_id"]


async def test_a_blocked_consumer_is_woken_when_a_delay_ends(wire: Wire) -> None:
    sent = await enqueue(wire, "orders", delay_seconds=1)

    taken = await dequeue(wire, "orders", wait_seconds=20)

    assert taken.message["message_id"] == sent["message_id"]
    assert time.time() >= sent["not_visible_until_unix"]


async def test_an_acked_message_is_gone(wire: Wire) -> None:
    await enqueue(wire, "orders", headers={"X-Correlation-Id": "req-1"})
    taken = await dequeue(wire, "orders")

    acked = await wire.post("/v1/queue/ack", taken.resolve(), {"X-Correlation-Id": "other"})
    again = await wire.post("/v1/queue/ack", taken.resolve())

    assert (acked.status_code, acked.json()) == (200, {"acked": True, "correlation_id": "req-1"})
    assert acked.headers["x-correlation-id"] == "req-1"
    assert refusal(again) == (404, "not_found")
    assert refusal(await take(wire, "orders")) == (409, "waiting")


async def test_an_ack_needs_only_the_lease(wire: Wire) -> None:
    await enqueue(wire, "orders")
    taken = await dequeue(wire, "orders")
    least = {name: taken.message[name] for name in ("queue", "message_id", "lease_id")}

    assert (await wire.post("/v1/queue/ack", least)).status_code == 200


async def test_a_nacked_message_comes_back_with_what_it_was(wire: Wire) -> None:
    await enqueue(wire, "orders", b"hello", {"X-Correlation-Id": "req-1"}, attributes={"a": 1})
    taken = await dequeue(wire, "orders")

    nacked = await wire.post("/v1/queue/nack", taken.resolve(last_error={"detail": "later"}))
    again = await dequeue(wire, "orders")

    assert list(nacked.json()) == ["requeued", "meta_etag", "correlation_id"]
    assert (nacked.json()["requeued"], nacked.json()["correlation_id"]) == (True, "req-1")
    assert nacked.headers["x-correlation-id"] == "req-1"
    assert nacked.json()["meta_etag"] != taken.message["meta_etag"]
    assert (again.message["attempts"], again.message["fencing_token"]) == (2, 2)
    assert again.message["failure_attempts"] == 1
    assert (again.payload, again.message["attributes"], again.message["correlation_id"]) == (
        b"hello",
        {"a": 1},
        "req-1",
    )


async def test_a_nack_that_defers_counts_no_failure(wire: Wire) -> None:
    await enqueue(wire, "orders")
    taken = await dequeue(wire, "orders")

    nacked = await wire.post("/v1/queue/nack", taken.resolve(intent=" DEFER "))
    again = await dequeue(wire, "orders")

    assert nacked.status_code == 200
    assert "failure_attempts" not in again.message


async def test_a_nack_with_a_delay_hides_the_message(wire: Wire) -> None:
    await enqueue(wire, "orders")
    taken = await dequeue(wire, "orders")

    await wire.post("/v1/queue/nack", taken.resolve(delay_seconds=1))

    assert refusal(await take(wire, "orders")) == (409, "waiting")
    assert (await dequeue(wire, "orders", wait_seconds=20)).message["attempts"] == 2


async def test_an_extended_lease_ends_so_many_seconds_from_now(wire: Wire) -> None:
    await enqueue(wire, "orders", headers={"X-Correlation-Id": "req-1"})
    taken = await dequeue(wire, "orders")

    answer = await wire.post("/v1/queue/extend", taken.resolve(extend_by_seconds=90))
    acked = await wire.post("/v1/queue/ack", taken.resolve())

    told = answer.json()
    assert list(told) == [
        *("lease_expires_at_unix", "visibility_timeout_seconds", "meta_etag", "correlation_id"),
    ]
    assert is_soon(90, told["lease_expires_at_unix"])
    assert (told["visibility_timeout_seconds"], told["correlation_id"]) == (90, "req-1")
    assert answer.headers["x-correlation-id"] == "req-1"
    assert told["meta_etag"] != taken.message["meta_etag"]
    assert acked.status_code == 200  # With the etag from before the extend.


async def test_an_extend_without_a_time_means_the_visibility_it_has(wire: Wire) -> None:
    for extend_by_seconds in (0, -5, None):
        await enqueue(wire, "orders")
        taken = await dequeue(wire, "orders", visibility_timeout_seconds=50)

        answer = await wire.post("/v1/queue/extend", taken.resolve(extend_by_seconds=extend_by_seconds))

        assert answer.json()["visibility_timeout_seconds"] == 50
        assert is_soon(50, answer.json()["lease_expires_at_unix"])


# -- what is refused


async def leased(wire: Wire) -> Delivered:
    await enqueue(wire, "orders")
    return await dequeue(wire, "orders")


NOT_THE_CALLERS: list[tuple[dict[str, object], int, str]] = [
    ({"message_id": UNKNOWN}, 404, "not_found"),
    ({"message_id": "x"}, 404, "not_found"),
    ({"lease_id": OTHER_XID}, 409, "queue_message_lease_mismatch"),
    ({"fencing_token": 7}, 409, "queue_message_lease_mismatch"),
    ({"txn_id": OTHER_XID}, 409, "queue_message_lease_mismatch"),
    ({"queue": "other"}, 404, "not_found"),
    ({"namespace": "other"}, 404, "not_found"),
    ({"queue": "Bad Name"}, 400, "invalid_queue_key"),
    ({"queue": ".."}, 400, "invalid_queue_key"),
    ({"queue": "a/b"}, 400, "invalid_queue_key"),
    ({"namespace": ".txns"}, 400, "invalid_namespace"),
    ({"queue": None}, 400, "missing_fields"),
    ({"message_id": " "}, 400, "missing_fields"),
    ({"lease_id": ""}, 400, "missing_fields"),
    ({"fencing_token": "1"}, 400, "invalid_body"),
    ({"fencing_token": 1 << 63}, 400, "invalid_body"),
]


async def test_a_delivery_that_is_not_the_callers_is_refused(wire: Wire) -> None:
    taken = await leased(wire)

    for path in RESOLUTIONS:
        for change, status, code in NOT_THE_CALLERS:
            answer = await wire.post(path, {**taken.resolve(), **change})

            assert refusal(answer) == (status, code), (path, change)
    assert (await wire.post("/v1/queue/ack", taken.resolve())).status_code == 200


async def test_bodies_that_resolve_may_not_be_empty(wire: Wire) -> None:
    for path in RESOLUTIONS:
        assert refusal(await wire.post(path)) == (400, "invalid_body")
        assert refusal(await wire.post(path, b"[]")) == (400, "invalid_body")
        assert refusal(await wire.post(path, b"{}")) == (400, "missing_fields")


async def test_nack_and_extend_need_the_current_etag(wire: Wire) -> None:
    taken = await leased(wire)
    await wire.post("/v1/queue/extend", taken.resolve(extend_by_seconds=30))

    for path in ("/v1/queue/nack", "/v1/queue/extend"):
        assert refusal(await wire.post(path, taken.resolve())) == (409, "cas_mismatch")
        assert refusal(await wire.post(path, taken.resolve(meta_etag=""))) == (400, "missing_fields")


async def test_who_holds_a_message_is_told_its_etag_with_the_refusal_of_an_old_one(wire: Wire) -> None:
    taken = await leased(wire)
    await wire.post("/v1/queue/extend", taken.resolve(extend_by_seconds=30))

    refused = await wire.post("/v1/queue/extend", taken.resolve(extend_by_seconds=30))
    current = refused.json()["current_etag"]
    again = await wire.post("/v1/queue/extend", taken.resolve(extend_by_seconds=30, meta_etag=current))

    assert refusal(refused) == (409, "cas_mismatch")
    assert again.status_code == 200


async def test_a_message_that_nobody_holds_is_not_resolved(wire: Wire) -> None:
    taken = await leased(wire)
    nacked = await wire.post("/v1/queue/nack", taken.resolve())

    for path in RESOLUTIONS:
        answer = await wire.post(path, taken.resolve(meta_etag=nacked.json()["meta_etag"]))

        assert refusal(answer) == (409, "queue_message_lease_mismatch")
    assert (await dequeue(wire, "orders")).message["attempts"] == 2


async def test_a_lease_that_is_over_is_refused_and_its_message_stays(wire: Wire) -> None:
    await enqueue(wire, "orders")
    taken = await dequeue(wire, "orders", visibility_timeout_seconds=1)
    await until_redeliverable(wire, "orders")

    expired = [await wire.post(path, taken.resolve()) for path in RESOLUTIONS]
    # The clock of another node may be a moment behind, so it waits.
    again = await dequeue(wire, "orders", wait_seconds=5)
    stale = [await wire.post(path, taken.resolve()) for path in RESOLUTIONS]

    assert [refusal(answer) for answer in expired] == [(403, "lease_expired")] * 3
    assert (again.message["attempts"], again.message["fencing_token"]) == (2, 2)
    assert [refusal(answer) for answer in stale] == [(409, "queue_message_lease_mismatch")] * 3


async def test_a_nack_has_one_of_two_intents(wire: Wire) -> None:
    taken = await leased(wire)
    changes: list[tuple[dict[str, object], str]] = [
        ({"intent": "later"}, "invalid_nack_intent"),
        ({"intent": "defer", "last_error": {"detail": "x"}}, "invalid_nack_last_error"),
        ({"last_error": "x" * 70_000}, "invalid_body"),
        ({"delay_seconds": 1.5}, "invalid_body"),
    ]

    for change, code in changes:
        assert refusal(await wire.post("/v1/queue/nack", taken.resolve(**change))) == (400, code)
    assert (await wire.post("/v1/queue/ack", taken.resolve())).status_code == 200


WRONGLY_ASKED = [
    (b"", "missing_queue"),
    (b"{}", "missing_queue"),
    (b'{"owner":"w"}', "missing_queue"),
    (b'{"queue":" ","owner":"w"}', "missing_queue"),
    (b'{"queue":"q"}', "missing_owner"),
    (b'{"queue":"q","owner":"  "}', "missing_owner"),
    (b'{"queue":"q","owner":"w","namespace":".txns"}', "invalid_namespace"),
    (b'{"queue":"a b","owner":"w"}', "invalid_queue"),
    (b'{"queue":"..","owner":"w"}', "invalid_queue"),
    (b'{"queue":"' + b"q" * 129 + b'","owner":"w"}', "invalid_queue"),
    (b'{"queue":"q","owner":"' + b"w" * 2000 + b'"}', "invalid_body"),
    (b'{"queue":"q","owner":"w","wait_seconds":"1"}', "invalid_body"),
    (b'{"queue":"q","owner":"w","wait_seconds":9223372036854775808}', "invalid_body"),
    (b'{"queue":"q","owner":"w"', "invalid_body"),
    (b"[]", "invalid_body"),
    (b'{"queue":1,"owner":"w"}', "invalid_body"),
]


async def test_a_consumer_that_asks_wrongly_is_told_what_is_wrong(wire: Wire) -> None:
    for path in CONSUMERS:
        for body, code in WRONGLY_ASKED:
            answer = await wire.post(path, body, {"Content-Type": "application/json"})

            assert refusal(answer) == (400, code), (path, body)


async def test_a_transaction_id_that_is_none_is_refused(wire: Wire) -> None:
    await enqueue(wire, "orders")

    for path in CONSUMERS:
        assert refusal(await take(wire, "orders", path, txn_id="notanxid")) == (400, "invalid_txn")
    assert (await dequeue(wire, "orders")).message["attempts"] == 1


async def test_an_empty_transaction_id_is_none_when_a_message_is_sent(wire: Wire) -> None:
    for path in ENQUEUES:
        for empty in (None, "", " "):
            body = message_body(b"", queue="orders", txn_id=empty)
            answer = await wire.post(path, body, {**MULTIPART, "X-Txn-ID": ""}, txn_id=empty or "")

            assert answer.status_code == 200, answer.text


async def test_a_look_at_no_queue_is_refused(wire: Wire) -> None:
    bodies = [
        (b"", "missing_queue"),
        (b"{}", "missing_queue"),
        (b'{"queue":"a b"}', "invalid_queue"),
        (b'{"queue":"a","namespace":"a b"}', "invalid_namespace"),
        (b"{", "invalid_body"),
    ]
    for path in ("stats", "watch", "peek", "policy", "pause", "resume", "dlq/list"):
        for body, code in bodies:
            assert refusal(await wire.post(f"/v1/queue/{path}", body)) == (400, code), path


async def test_errors_have_the_id_of_the_request(wire: Wire) -> None:
    answer = await wire.post("/v1/queue/dequeue", {}, {"X-Correlation-Id": "req-9"})

    assert answer.headers["x-correlation-id"] == "req-9"


async def test_other_methods_are_refused(wire: Wire) -> None:
    for path in ("enqueue", "dequeue", "ack"):
        answer = await wire.get(f"/v1/queue/{path}", queue="orders", owner="w")

        assert refusal(answer) == (405, "method_not_allowed")
