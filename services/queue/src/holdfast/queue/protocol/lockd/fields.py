"""What the queue endpoints read from bodies and queries, each with the refusal it may lead to."""

import json
import re
from functools import lru_cache
from typing import Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from holdfast.common.errors import HoldfastError, InvalidBody
from holdfast.common.express.message import Request
from holdfast.common.fields import NAME_BYTES_MAX, namespace_of, owner_of, parse_int64
from holdfast.common.ids import is_xid
from holdfast.common.wire_errors import invalid_body
from holdfast.queue.layer.errors import InvalidTxn, MessageNotFound
from holdfast.queue.layer.message.types import (
    CONTENT_TYPE_DEFAULT,
    DequeueOrder,
    EnqueueOrder,
    LeaseClaim,
    Message,
    NackIntent,
    QueueAddress,
    StateClaim,
)
from holdfast.queue.protocol.lockd.schemas import (
    DequeueRequest,
    EnqueueMeta,
    NackRequest,
    QueueBody,
    Resolution,
)

META_BYTES_MAX: Final = 256 << 10
ATTRIBUTES_BYTES_MAX: Final = 64 << 10
LAST_ERROR_BYTES_MAX: Final = 64 << 10
CONTENT_TYPE_BYTES_MAX: Final = 255
SECONDS_MAX: Final = 50 * 365 * 86_400
"""Of delays, times to live and waits: beyond it a date has more digits than clients expect."""
_COUNT_MAX: Final = (1 << 31) - 1

OWNER_BYTES_MAX: Final = 1024

_is_queue = re.compile(r"[a-z0-9._-]+").fullmatch
_is_message_id = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_has_controls = re.compile(r"[\x00-\x1f\x7f]").search
_validate_meta = TypeAdapter(EnqueueMeta).validator.validate_json


class MissingQueue(HoldfastError):
    """The request names no queue."""

    code, status = "missing_queue", 400


class MissingOwner(HoldfastError):
    """Dequeue or subscribe without an owner."""

    code, status = "missing_owner", 400


class MissingFields(HoldfastError):
    """Ack, nack or extend without all of what names a delivery."""

    code, status = "missing_fields", 400


class InvalidQueue(HoldfastError):
    """A queue name of other characters than a-z 0-9 . _ -, or too long."""

    code, status = "invalid_queue", 400


class InvalidQueueKey(HoldfastError):
    """The same, where a message is named."""

    code, status = "invalid_queue_key", 400


class InvalidNackIntent(HoldfastError):
    """The intent of a nack is neither `failure` nor `defer`."""

    code, status = "invalid_nack_intent", 400


class InvalidNackLastError(HoldfastError):
    """A nack that only defers has no error to tell."""

    code, status = "invalid_nack_last_error", 400


@lru_cache(maxsize=4096)
def stored_queue(text: str) -> str | None:
    """A queue name as it is stored: lower case; None if it is none."""
    name = text.lower()
    if len(name) > NAME_BYTES_MAX or name in (".", "..") or not _is_queue(name):
        return None
    return name


def queue_name(text: str, refusal: type[HoldfastError] = InvalidQueue) -> str:
    name = stored_queue(text)
    if name is None:
        raise refusal(
            f"queue: invalid queue name: invalid value {json.dumps(text.lower()[:200])} (allowed: lowercase letters, "
            f"digits, '.', '_', '-')"
        )
    return name


def spelled_queue(request: Request, body: QueueBody | None) -> str:
    """The queue as the caller spelled it; empty if it named none."""
    named = body.queue.strip() if body is not None and body.queue else ""
    return named or (request.query("queue") or "").strip()


def address_of(request: Request, body: QueueBody | None, namespace_default: str) -> QueueAddress:
    spelled = spelled_queue(request, body)
    if not spelled:
        raise MissingQueue("queue is required")
    return QueueAddress(_namespace(request, body, namespace_default), queue_name(spelled))


def _namespace(request: Request, body: QueueBody | None, namespace_default: str) -> str:
    named = body.namespace if body is not None and body.namespace else request.query("namespace")
    return namespace_of(named, namespace_default)


def meta_of(text: bytes) -> EnqueueMeta:
    """The meta part of an enqueue; empty is the same as `{}`."""
    if not text.strip():
        return EnqueueMeta()
    if len(text) > META_BYTES_MAX:
        raise InvalidBody(f"meta is larger than {META_BYTES_MAX} bytes")
    try:
        meta: EnqueueMeta = _validate_meta(text)
    except ValidationError as error:
        raise invalid_body(error) from error
    return meta


def enqueue_order(request: Request, meta: EnqueueMeta, namespace_default: str) -> EnqueueOrder:
    """Unlike everywhere else the query names no namespace here, as in the original."""
    spelled = spelled_queue(request, meta)
    if not spelled:
        raise MissingQueue("queue is required")
    return EnqueueOrder(
        QueueAddress(namespace_of(meta.namespace, namespace_default), queue_name(spelled)),
        request.correlation_id,
        seconds(meta.delay_seconds),
        seconds(meta.visibility_timeout_seconds),
        seconds(meta.ttl_seconds),
        min(max(meta.max_attempts or 0, 0), _COUNT_MAX),
        json_text(meta.attributes, "attributes", ATTRIBUTES_BYTES_MAX) if meta.attributes else b"",
        _content_type(meta.payload_content_type),
        meta.priority or 0,
        _sending_txn(request, meta),
    )


def _sending_txn(request: Request, meta: EnqueueMeta) -> str:
    # A blank one is none, and hides no other.
    txn_id = (
        (meta.txn_id or "").strip()
        or (request.query("txn_id") or "").strip()
        or request.header(b"x-txn-id")
        or ""
    )
    if txn_id and not is_xid(txn_id):
        raise InvalidTxn("txn_id is no transaction id: send one that an acquire or a dequeue answered")
    return txn_id


def seconds(asked: int | None) -> int:
    """A time of the caller's choice; 0 where it is left out or negative."""
    return min(asked, SECONDS_MAX) if asked is not None and asked > 0 else 0


def json_text(value: object, name: str, bytes_max: int) -> bytes:
    """A JSON value as it is stored and given back: compact, with its members in order."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidBody(f"{name}: no JSON that can be kept: {error}") from error
    encoded = text.encode()
    if len(encoded) > bytes_max:
        raise InvalidBody(f"{name}: larger than {bytes_max} bytes")
    return encoded


def _content_type(text: str | None) -> str:
    trimmed = text.strip() if text else ""
    if not trimmed:
        return CONTENT_TYPE_DEFAULT
    if len(trimmed.encode()) > CONTENT_TYPE_BYTES_MAX or _has_controls(trimmed):
        raise InvalidBody(
            f"payload_content_type: at most {CONTENT_TYPE_BYTES_MAX} bytes without control characters"
        )
    return trimmed


def dequeue_order(
    request: Request,
    body: DequeueRequest | None,
    namespace_default: str,
    *,
    count_max: int,
    with_state: bool = False,
) -> DequeueOrder:
    """At most `count_max` messages in one go; `page_size` may ask for fewer."""
    body = body or DequeueRequest()
    spelled = spelled_queue(request, body)
    if not spelled:
        raise MissingQueue("queue is required")
    owner = (body.owner or "").strip() or (request.query("owner") or "").strip()
    if not owner:
        raise MissingOwner("owner is required")
    if len(owner.encode()) > OWNER_BYTES_MAX:
        raise InvalidBody(f"owner: larger than {OWNER_BYTES_MAX} bytes")
    page_size = _number(request, "page_size", body.page_size)
    return DequeueOrder(
        QueueAddress(_namespace(request, body, namespace_default), queue_name(spelled)),
        owner_of(owner, request.principal),
        _wait_s(_number(request, "wait_seconds", body.wait_seconds)),
        seconds(_number(request, "visibility_timeout_seconds", body.visibility_timeout_seconds)),
        min(max(page_size, 1), count_max),
        (body.txn_id or request.query("txn_id") or "").strip(),
        with_state,
    )


def _number(request: Request, name: str, in_body: int | None) -> int:
    if in_body is not None or not request.query_string:
        return in_body or 0
    text = request.query(name)
    number = parse_int64(text.strip()) if text else 0
    if number is None:
        raise InvalidBody(f"{name} of the query is no int64")
    return number


def _wait_s(asked_s: int) -> float | None:
    if asked_s == 0:
        return None
    return float(min(asked_s, SECONDS_MAX)) if asked_s > 0 else 0.0


def claim_of(
    request: Request, body: QueueBody, resolved: Resolution, namespace_default: str, *, needs_etag: bool
) -> LeaseClaim:
    """What names a delivery. Nack and extend go by what the caller saw last, so they need its etag."""
    spelled = spelled_queue(request, body)
    message_id = (resolved.message_id or "").strip()
    lease_id = (resolved.lease_id or "").strip()
    meta_etag = (resolved.meta_etag or "").strip()
    if not (spelled and message_id and lease_id and (meta_etag or not needs_etag)):
        asked = "queue, message_id, lease_id, meta_etag" if needs_etag else "queue, message_id, lease_id"
        raise MissingFields(f"{asked} are required")
    namespace = _namespace(request, body, namespace_default)
    queue = queue_name(spelled, InvalidQueueKey)
    if not _is_message_id(message_id):
        raise MessageNotFound("message not found")  # None was ever called that.
    state_lease_id = (resolved.state_lease_id or "").strip()
    return LeaseClaim(
        QueueAddress(namespace, queue),
        message_id,
        lease_id,
        resolved.fencing_token or 0,
        (resolved.txn_id or "").strip(),
        meta_etag,
        StateClaim(state_lease_id, resolved.state_fencing_token or 0, (resolved.state_etag or "").strip())
        if state_lease_id
        else None,
    )


def intent_of(body: NackRequest) -> NackIntent:
    text = (body.intent or "").strip().lower() or NackIntent.FAILURE.value
    try:
        intent = NackIntent(text)
    except ValueError:
        raise InvalidNackIntent("intent is failure or defer") from None
    if intent is NackIntent.DEFER and body.last_error is not None:
        raise InvalidNackLastError("a nack that defers has no last_error")
    return intent


def common_members(message: Message) -> bytes:
    """Names, ids and counts have no character that JSON would escape."""
    address = message.address
    text = (
        f'"namespace":"{address.namespace}","queue":"{address.queue}","message_id":"{message.message_id}",'
        f'"attempts":{message.attempts},"max_attempts":{message.max_attempts},'
    )
    if message.failure_attempts:
        text += f'"failure_attempts":{message.failure_attempts},'
    return text.encode("ascii")


def enqueued_json(message: Message) -> bytes:
    """What enqueue answers."""
    priority = b'"priority":%d,' % message.priority if message.priority else b""
    txn_id = b'"txn_id":"%b",' % message.txn_id.encode("ascii") if message.txn_id else b""
    return (
        b'{%b"not_visible_until_unix":%d,"visibility_timeout_seconds":%d,"payload_bytes":%d,%b%b"correlation_id":%b}'
        % (
            common_members(message),
            message.not_visible_until_s,
            message.visibility_s,
            message.payload_bytes,
            priority,
            txn_id,
            to_json(message.correlation_id),
        )
    )
