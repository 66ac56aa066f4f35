"""The calls of the queue: what is sent for each operation."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.client.errors import InvalidArgument
from holdfast.client.queue.message import Intent, Message, Outgoing
from holdfast.client.queue.multipart import framed, framed_batch
from holdfast.client.session.lease import whole_seconds
from holdfast.client.wire.body import Body
from holdfast.client.wire.call import Call
from holdfast.client.wire.request import JSON_TYPE, json_bytes


def enqueue(namespace: str, queue: str, message: Outgoing, correlation_id: str, *, txn_id: str = "") -> Call:
    """The payload goes out as its source gives it; the size of the request is named if it is known."""
    meta = _meta(namespace, queue, message, txn_id)
    body, content_type = framed(json_bytes(meta), message.payload, content_type=message.content_type)
    headers = {"Content-Type": content_type, "X-Correlation-Id": correlation_id}
    return Call("POST", "/v1/queue/enqueue", {}, headers, body)


def enqueue_batch(
    namespace: str, queue: str, messages: Sequence[Outgoing], correlation_id: str, *, txn_id: str = ""
) -> Call:
    """Messages that are in memory, all of them or none."""
    parts = [
        (json_bytes(_meta(namespace, queue, message, txn_id)), in_memory(message)) for message in messages
    ]
    body, content_type = framed_batch(parts)
    headers = {"Content-Type": content_type, "X-Correlation-Id": correlation_id}
    return Call("POST", "/v1/queue/enqueueBatch", {}, headers, body)


def _meta(namespace: str, queue: str, message: Outgoing, txn_id: str) -> dict[str, Any]:
    named = {"namespace": namespace, "queue": queue, **outgoing_members(message)}
    return {**named, "txn_id": txn_id} if txn_id else named


def in_memory(message: Outgoing) -> bytes:
    """The payload of a message that goes out in a batch."""
    payload = message.payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise InvalidArgument("a batch takes payloads that are bytes or text; send streams one by one")


def outgoing_members(message: Outgoing) -> dict[str, Any]:
    """The fields that say how a message is to be treated; what is not set is not sent."""
    members: dict[str, Any] = {
        "delay_seconds": whole_seconds(message.delay_s),
        "visibility_timeout_seconds": whole_seconds(message.visibility_s or 0.0),
        "ttl_seconds": whole_seconds(message.ttl_s or 0.0),
        "max_attempts": message.max_attempts,
        "priority": message.priority,
        "attributes": message.attributes,
    }
    present = {name: value for name, value in members.items() if value}
    return {**present, "payload_content_type": message.content_type}


def dequeue(
    *,
    namespace: str,
    queue: str,
    owner: str,
    visibility_s: float | None,
    wait_seconds: int,
    page_size: int,
    txn_id: str,
    with_state: bool,
    correlation_id: str,
    timeout_s: float,
) -> Call:
    """A waiting dequeue may take as long as it waits, so only the rest of the exchange is timed."""
    path = "/v1/queue/dequeueWithState" if with_state else "/v1/queue/dequeue"
    if page_size > 1:
        path = "/v1/queue/dequeueBatch"
    members = _taking(namespace, queue, owner, visibility_s, wait_seconds, page_size, txn_id)
    call = json_call(path, members, correlation_id)
    call.pool = "call" if wait_seconds < 0 else "wait"
    call.is_endless = wait_seconds == 0
    call.timeout_s = timeout_s + max(0, wait_seconds)
    call.is_stream = True
    return call


def subscribe(
    *,
    namespace: str,
    queue: str,
    owner: str,
    visibility_s: float | None,
    wait_seconds: int,
    prefetch: int,
    with_state: bool,
    correlation_id: str,
) -> Call:
    """One answer without an end: deliveries as they come."""
    path = "/v1/queue/subscribeWithState" if with_state else "/v1/queue/subscribe"
    members = _taking(namespace, queue, owner, visibility_s, wait_seconds, prefetch, "")
    return _endless(json_call(path, members, correlation_id))


def watch(namespace: str, queue: str, correlation_id: str) -> Call:
    call = _endless(json_call("/v1/queue/watch", {"namespace": namespace, "queue": queue}, correlation_id))
    call.headers["Accept"] = "text/event-stream"
    return call


def ack(message: Message, meta_etag: str) -> Call:
    return json_call("/v1/queue/ack", claim_members(message, meta_etag), message.correlation_id)


def nack(message: Message, meta_etag: str, *, delay_s: float, intent: Intent, reason: str) -> Call:
    members = claim_members(message, meta_etag) | {"delay_seconds": whole_seconds(delay_s)}
    if intent != "failure":
        members["intent"] = intent
    if reason:
        members["last_error"] = {"detail": reason}
    return json_call("/v1/queue/nack", members, message.correlation_id)


def extend(message: Message, meta_etag: str, seconds: float, *, timeout_s: float) -> Call:
    members = claim_members(message, meta_etag) | {"extend_by_seconds": whole_seconds(seconds)}
    call = json_call("/v1/queue/extend", members, message.correlation_id)
    call.pool = "keepalive"
    call.timeout_s = timeout_s
    return call


def ack_batch(namespace: str, queue: str, claims: Sequence[dict[str, Any]], correlation_id: str) -> Call:
    members = {"namespace": namespace, "queue": queue, "messages": list(claims)}
    return json_call("/v1/queue/ackBatch", members, correlation_id)


def about(
    operation: str,
    namespace: str,
    queue: str,
    correlation_id: str,
    *,
    is_idempotent: bool = True,
    **members: object,
) -> Call:
    """A question about a queue, or an order to it; what is None is not sent."""
    present = {name: value for name, value in members.items() if value is not None}
    named = {"namespace": namespace, "queue": queue, **present}
    call = json_call(f"/v1/queue/{operation}", named, correlation_id)
    call.is_idempotent = is_idempotent
    return call


def claim_members(message: Message, meta_etag: str) -> dict[str, Any]:
    """What shows that a delivery is ours; the state's part only if there is one."""
    members: dict[str, Any] = {
        "namespace": message.namespace,
        "queue": message.queue,
        "message_id": message.message_id,
        "lease_id": message.lease_id,
        "txn_id": message.txn_id,
        "fencing_token": message.fencing_token,
        "meta_etag": meta_etag,
        "state_etag": message.state_etag,
        "state_lease_id": message.state_lease_id,
        "state_fencing_token": message.state_fencing_token,
    }
    return {name: value for name, value in members.items() if value}


def json_call(path: str, members: Mapping[str, Any], correlation_id: str) -> Call:
    headers = {"Content-Type": JSON_TYPE}
    if correlation_id:
        headers["X-Correlation-Id"] = correlation_id
    return Call("POST", path, {}, headers, Body(json_bytes(members)))


def _taking(
    namespace: str,
    queue: str,
    owner: str,
    visibility_s: float | None,
    wait_seconds: int,
    page_size: int,
    txn_id: str,
) -> dict[str, Any]:
    members: dict[str, Any] = {
        "namespace": namespace,
        "queue": queue,
        "owner": owner,
        "wait_seconds": wait_seconds,
        "page_size": page_size,
    }
    if visibility_s:
        members["visibility_timeout_seconds"] = whole_seconds(visibility_s)
    if txn_id:
        members["txn_id"] = txn_id
    return members


def _endless(call: Call) -> Call:
    call.pool = "stream"
    call.is_endless = True
    call.is_stream = True
    return call
