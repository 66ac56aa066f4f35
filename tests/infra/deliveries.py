"""Deliveries as a server sends them, to the byte."""

import json
from typing import Any

from tests.infra.fake_plane import EXPIRES_AT_UNIX, Reply

BOUNDARY = "05beadc466ebb8760bcc055bc1906942e3bfbee1998b2d39a9c0c7c43ec1"
MESSAGE_ID = "01a1e1c5-68db-7adc-972e-daefb000a2ee"


def message(**changes: Any) -> dict[str, Any]:
    return {
        "namespace": "default",
        "queue": "orders",
        "message_id": MESSAGE_ID,
        "attempts": 1,
        "max_attempts": 3,
        "not_visible_until_unix": EXPIRES_AT_UNIX,
        "visibility_timeout_seconds": 20,
        "attributes": {"n": 1, "tenant": "acme"},
        "payload_content_type": "application/json",
        "payload_bytes": 13,
        "correlation_id": "req-4711",
        "lease_id": "dbt4ud9ksducbc8b3la0",
        "lease_expires_at_unix": EXPIRES_AT_UNIX,
        "fencing_token": 1,
        "txn_id": "dbt4ud9ksducbc8b3lag",
        "meta_etag": "m1",
        **changes,
    }


STATE: dict[str, Any] = {
    "state_etag": "s1",
    "state_lease_id": "dbt4ue9ksducbc8b3lg0",
    "state_lease_expires_at_unix": EXPIRES_AT_UNIX,
    "state_fencing_token": 1,
    "state_txn_id": "dbt4ud9ksducbc8b3lag",
}


def parts(payload: bytes = b'{"op":"ship"}', **changes: Any) -> bytes:
    """A meta part and a payload part, from delimiter to payload."""
    members = message(payload_bytes=len(payload), **changes)
    return b"".join(
        (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="meta"\r\n'.encode(),
            b"Content-Type: application/json\r\n\r\n",
            json.dumps({"message": members}, separators=(",", ":")).encode() + b"\n\r\n",
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="payload"\r\n'.encode(),
            f"Content-Length: {len(payload)}\r\n".encode(),
            b"Content-Type: application/octet-stream\r\n\r\n" + payload,
        )
    )


END = f"\r\n--{BOUNDARY}--\r\n".encode()


def delivered(*deliveries: bytes) -> Reply:
    """The answer of a dequeue."""
    body = b"\r\n".join(deliveries or [parts()]) + END
    return Reply(200, body, {"Content-Type": f"multipart/related; boundary={BOUNDARY}"})
