"""Deliveries as bytes: exactly as they were recorded with the original."""

import json

from holdfast.queue.layer.message.types import Body, Delivery, Message, QueueAddress, StateLease
from holdfast.queue.protocol.lockd.fields import enqueued_json
from holdfast.queue.protocol.lockd.framing import framed, headers_of, meta_json, new_boundary

BOUNDARY = b"05beadc466ebb8760bcc055bc1906942e3bfbee1998b2d39a9c0c7c43ec1"
MESSAGE = Message(
    QueueAddress("default", "orders"),
    "01a1e1c5-68db-7adc-972e-daefb000a2ee",
    attempts=1,
    failure_attempts=0,
    max_attempts=3,
    priority=0,
    enqueued_at_s=1794789173,
    not_visible_until_s=1794789193,
    visibility_s=20,
    expires_at_s=0,
    payload_bytes=13,
    content_type="application/json",
    attributes=b'{"n":1,"tenant":"acme"}',
    correlation_id="req-4711",
    last_error=b"",
)
DELIVERY = Delivery(
    MESSAGE,
    Body(b'{"op":"ship"}', None, 13),
    "dbt4ud9ksducbc8b3la0",
    1794789193,
    1,
    "dbt4ud9ksducbc8b3lag",
    "01a1e1c5-68e1-7690-ab09-6788fbe21641",
)
RECORDED = (
    b"--05beadc466ebb8760bcc055bc1906942e3bfbee1998b2d39a9c0c7c43ec1\r\n"
    b'Content-Disposition: form-data; name="meta"\r\n'
    b"Content-Type: application/json\r\n"
    b"\r\n"
    b'{"message":{"namespace":"default","queue":"orders","message_id":"01a1e1c5-68db-7adc-972e-daefb000a2ee",'
    b'"attempts":1,"max_attempts":3,"not_visible_until_unix":1794789193,"visibility_timeout_seconds":20,'
    b'"attributes":{"n":1,"tenant":"acme"},"payload_content_type":"application/json","payload_bytes":13,'
    b'"correlation_id":"req-4711","lease_id":"dbt4ud9ksducbc8b3la0","lease_expires_at_unix":1794789193,'
    b'"fencing_token":1,"txn_id":"dbt4ud9ksducbc8b3lag","meta_etag":"01a1e1c5-68e1-7690-ab09-6788fbe21641"}}\n'
    b"\r\n"
    b"--05beadc466ebb8760bcc055bc1906942e3bfbee1998b2d39a9c0c7c43ec1\r\n"
    b'Content-Disposition: form-data; name="payload"\r\n'
    b"Content-Length: 13\r\n"
    b"Content-Type: application/json\r\n"
    b"\r\n"
    b'{"op":"ship"}\r\n'
    b"--05beadc466ebb8760bcc055bc1906942e3bfbee1998b2d39a9c0c7c43ec1--\r\n"
)


def test_a_delivery_is_framed_as_recorded() -> None:
    assert framed(BOUNDARY, [DELIVERY]) == RECORDED
    assert len(RECORDED) == 891


def test_its_headers_are_the_boundary_and_the_correlation_id_of_the_message() -> None:
    assert headers_of(BOUNDARY, DELIVERY) == [
        (b"content-type", b"multipart/related; boundary=" + BOUNDARY),
        (b"x-correlation-id", b"req-4711"),
    ]


def test_a_boundary_is_sixty_hex_digits_and_never_the_same() -> None:
    boundaries = {new_boundary() for _ in range(100)}

    assert len(boundaries) == 100
    assert all(len(bytes.fromhex(boundary.decode())) == 30 for boundary in boundaries)


def test_an_empty_payload_has_its_part_and_no_attributes_have_no_member() -> None:
    message = MESSAGE._replace(attributes=b"", payload_bytes=0)

    text = framed(BOUNDARY, [DELIVERY._replace(message=message, body=Body(b"", None, 0))])

    assert b"Content-Length: 0\r\nContent-Type: application/json\r\n\r\n\r\n--" in text
    assert b"attributes" not in text


def test_a_stateful_delivery_tells_its_second_lease() -> None:
    state = StateLease("01a1e1c5-78c0", "dbt4ue9ksducbc8b3lg0", 1794789207, 1, "dbt4ue9ksducbc8b3lfg")

    members = json.loads(meta_json(DELIVERY._replace(state=state)))["message"]

    assert list(members)[-6:] == [
        *("meta_etag", "state_etag", "state_lease_id", "state_lease_expires_at_unix"),
        *("state_fencing_token", "state_txn_id"),
    ]


def test_texts_of_callers_are_escaped() -> None:
    message = MESSAGE._replace(
        correlation_id='a"b\\c', content_type='text/x; a="é"', priority=-3, failure_attempts=2
    )

    members = json.loads(meta_json(DELIVERY._replace(message=message)))["message"]
    enqueued = json.loads(enqueued_json(message))

    assert members["correlation_id"] == enqueued["correlation_id"] == 'a"b\\c'
    assert members["payload_content_type"] == 'text/x; a="é"'
    assert members["priority"] == enqueued["priority"] == -3
    assert members["failure_attempts"] == enqueued["failure_attempts"] == 2


def test_batches_number_their_parts() -> None:
    text = framed(BOUNDARY, [DELIVERY, DELIVERY])

    assert b'name="meta"; filename="meta-0.json"\r\n' in text
    assert b'name="payload"; filename="payload-1"\r\n' in text
    assert text.count(b"--" + BOUNDARY) == 5


def test_an_enqueue_is_answered_as_recorded() -> None:
    message = MESSAGE._replace(attempts=0, not_visible_until_s=1794789173, visibility_s=30)

    assert enqueued_json(message) == (
        b'{"namespace":"default","queue":"orders","message_id":"01a1e1c5-68db-7adc-972e-daefb000a2ee","attempts":0,'
        b'"max_attempts":3,"not_visible_until_unix":1794789173,"visibility_timeout_seconds":30,"payload_bytes":13,'
        b'"correlation_id":"req-4711"}'
    )
