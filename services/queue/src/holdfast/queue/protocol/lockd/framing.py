"""Deliveries as bytes: multipart/related as clients of the original read it, down to the order of its headers."""

import os
from typing import Final

from pydantic_core import to_json

from holdfast.common.express.message import Header
from holdfast.queue.layer.message.types import Delivery
from holdfast.queue.protocol.lockd.fields import common_members

CONTENT_TYPE: Final = b"content-type"
_BOUNDARY_BYTES: Final = 30

_META: Final = b'Content-Disposition: form-data; name="meta"%b\r\nContent-Type: application/json\r\n\r\n'
_PAYLOAD: Final = (
    b'Content-Disposition: form-data; name="payload"%b\r\nContent-Length: %d\r\nContent-Type: %b\r\n\r\n'
)


def new_boundary() -> bytes:
    """Sixty hex digits, random: a producer that guessed them could put parts of its own into a delivery."""
    return os.urandom(_BOUNDARY_BYTES).hex().encode("ascii")


def headers_of(boundary: bytes, first: Delivery) -> list[Header]:
    """The headers of an answer that begins with this delivery: its correlation id is the message's."""
    return [
        (CONTENT_TYPE, b"multipart/related; boundary=" + boundary),
        (b"x-correlation-id", first.message.correlation_id.encode("ascii")),
    ]


def head(boundary: bytes, delivery: Delivery, number: int | None = None) -> bytes:
    """Everything of a delivery between the boundary in front of it and its payload; batches number their parts."""
    meta_name = payload_name = b""
    if number is not None:
        meta_name = b'; filename="meta-%d.json"' % number
        payload_name = b'; filename="payload-%d"' % number
    meta = _META % meta_name
    payload = _PAYLOAD % (payload_name, delivery.body.size_bytes, delivery.message.content_type.encode())
    return b"\r\n%b%b\r\n--%b\r\n%b" % (meta, meta_json(delivery), boundary, payload)


def framed(boundary: bytes, deliveries: list[Delivery]) -> bytes:
    """A whole answer of deliveries that are in memory."""
    is_batch = len(deliveries) > 1
    opening = b"--" + boundary
    between = b"\r\n" + opening
    pieces = [opening]
    for number, delivery in enumerate(deliveries):
        pieces += (head(boundary, delivery, number if is_batch else None), delivery.body.inline, between)
    pieces.append(b"--\r\n")
    return b"".join(pieces)


def meta_json(delivery: Delivery) -> bytes:
    """`{"message":…}` and a line feed; the order of members is that of the original."""
    message = delivery.message
    members = [
        common_members(message),
        b'"not_visible_until_unix":%d,"visibility_timeout_seconds":%d,'
        % (message.not_visible_until_s, message.visibility_s),
        b'"attributes":%b,' % message.attributes if message.attributes else b"",
        b'"payload_content_type":%b,"payload_bytes":%d,"correlation_id":%b,'
        % (to_json(message.content_type), message.payload_bytes, to_json(message.correlation_id)),
        _lease(delivery),
    ]
    if message.priority:
        members.append(b',"priority":%d' % message.priority)
    return b'{"message":{%b}}\n' % b"".join(members)


def _lease(delivery: Delivery) -> bytes:
    text = (
        f'"lease_id":"{delivery.lease_id}","lease_expires_at_unix":{delivery.lease_expires_at_s},'
        f'"fencing_token":{delivery.fencing_token},"txn_id":"{delivery.txn_id}","meta_etag":"{delivery.meta_etag}"'
    )
    state = delivery.state
    if state is not None:
        text += (
            f',"state_etag":"{state.etag}","state_lease_id":"{state.lease_id}",'
            f'"state_lease_expires_at_unix":{state.expires_at_s},"state_fencing_token":{state.fencing_token},'
            f'"state_txn_id":"{state.txn_id}"'
        )
    return text.encode("ascii")
