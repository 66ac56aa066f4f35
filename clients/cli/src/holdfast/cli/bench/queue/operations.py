"""The requests of `holdfast bench queue`: one message's life, and that of a hundred at once."""

import json
from collections.abc import Generator
from typing import Any, Final

PAYLOAD: Final = b"x" * 512
BATCH: Final = 100
QUEUE: Final = "bench"

_BOUNDARY: Final = b"holdfast-bench-0123456789abcdef"
_META_HEAD: Final = b'Content-Disposition: form-data; name="meta"\r\nContent-Type: application/json\r\n\r\n'
_PAYLOAD_HEAD: Final = (
    b'Content-Disposition: form-data; name="payload"\r\nContent-Type: application/octet-stream\r\n\r\n'
)

Operation = Generator[bytes, bytes, None]


def request(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    head = f"POST /v1/queue/{path} HTTP/1.1\r\nHost: plane\r\nContent-Type: {content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def enqueue_request(queue: str, payloads: list[bytes], path: str = "enqueue") -> bytes:
    """One message, or several for `enqueueBatch`."""
    meta = json.dumps({"queue": queue}).encode()
    pieces: list[bytes] = []
    for payload in payloads:
        pieces += (b"--", _BOUNDARY, b"\r\n", _META_HEAD, meta, b"\r\n")
        pieces += (b"--", _BOUNDARY, b"\r\n", _PAYLOAD_HEAD, payload, b"\r\n")
    body = b"".join([*pieces, b"--", _BOUNDARY, b"--\r\n"])
    return request(path, body, f"multipart/related; boundary={_BOUNDARY.decode()}")


def dequeue_request(queue: str, path: str = "dequeue", **more: int) -> bytes:
    asked = {"queue": queue, "owner": "bench", "visibility_timeout_seconds": 60, "wait_seconds": 10, **more}
    return request(path, json.dumps(asked).encode())


def messages_of(body: bytes) -> list[dict[str, Any]]:
    """The meta parts of an answer."""
    return [json.loads(line)["message"] for line in body.split(b"\n") if line.startswith(b'{"message":')]


def claim_of(message: dict[str, Any]) -> dict[str, Any]:
    names = ("queue", "message_id", "lease_id", "txn_id", "fencing_token", "meta_etag")
    return {name: message[name] for name in names}


def ack_request(message: dict[str, Any]) -> bytes:
    return request("ack", json.dumps(claim_of(message)).encode())


_ENQUEUE: Final = enqueue_request(QUEUE, [PAYLOAD])
_DEQUEUE: Final = dequeue_request(QUEUE)


def message_life(key: str) -> Operation:
    """Enqueue, dequeue, ack: all clients share one queue, so a client takes whichever message is next."""
    yield _ENQUEUE
    (message,) = messages_of((yield _DEQUEUE))
    yield ack_request(message)


def batch_life(key: str) -> Operation:
    """The same with a hundred messages in each request; each client has its own queue."""
    yield enqueue_request(key, [PAYLOAD] * BATCH, "enqueueBatch")
    messages = messages_of((yield dequeue_request(key, "dequeueBatch", page_size=BATCH)))
    assert len(messages) == BATCH, "the batch did not come back whole"
    acks = {"queue": key, "messages": [claim_of(message) for message in messages]}
    told = json.loads((yield request("ackBatch", json.dumps(acks).encode())))
    assert told["acked"] == BATCH, "not all of the batch were acked"
