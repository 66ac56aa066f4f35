"""What can be seen of a queue without taking anything: its state, its messages, its dead letters, its policy."""

import binascii
from dataclasses import dataclass, field
from typing import Any

from holdfast.client.errors import UnexpectedAnswer
from holdfast.client.wire.call import Members


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue at one moment; the head is the message that is delivered next, if there is one."""

    namespace: str
    queue: str
    waiting_consumers: int
    pending_candidates: int
    total_consumers: int
    in_flight: int
    """Delivered, and neither resolved nor timed out."""
    is_paused: bool
    has_active_watcher: bool
    is_available: bool
    head_message_id: str
    head_enqueued_at_unix: int
    head_age_s: int
    raw: dict[str, Any] = field(repr=False)
    """All that the server said, in its own names."""

    @classmethod
    def read(cls, members: Members) -> "QueueStats":
        return cls(
            namespace=members.text("namespace"),
            queue=members.text("queue"),
            waiting_consumers=members.number("waiting_consumers"),
            pending_candidates=members.number("pending_candidates"),
            total_consumers=members.number("total_consumers"),
            in_flight=members.number("in_flight"),
            is_paused=members.boolean("paused"),
            has_active_watcher=members.boolean("has_active_watcher"),
            is_available=members.boolean("available"),
            head_message_id=members.text("head_message_id"),
            head_enqueued_at_unix=members.number("head_enqueued_at_unix"),
            head_age_s=members.number("head_age_seconds"),
            raw=dict(members.raw),
        )


@dataclass(frozen=True, slots=True)
class QueueChange:
    """Whether a message can be had now, and which one; told whenever that changes."""

    namespace: str
    queue: str
    is_available: bool
    head_message_id: str
    changed_at_unix: int
    correlation_id: str
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, members: Members) -> "QueueChange":
        return cls(
            namespace=members.text("namespace"),
            queue=members.text("queue"),
            is_available=members.boolean("available"),
            head_message_id=members.text("head_message_id"),
            changed_at_unix=members.number("changed_at_unix"),
            correlation_id=members.text("correlation_id"),
            raw=dict(members.raw),
        )


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in its place; this look delivers it to no consumer."""

    namespace: str
    queue: str
    message_id: str
    attempts: int
    failure_attempts: int
    max_attempts: int
    priority: int
    enqueued_at_unix: int
    not_visible_until_unix: int
    expires_at_unix: int
    content_type: str
    payload_bytes: int
    attributes: dict[str, Any]
    last_error: Any
    correlation_id: str
    dead_at_unix: int
    """When it became a dead letter; 0 if it is none."""
    payload: bytes | None
    """None when it was not asked for, or is too large to be shown."""
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, members: Members) -> "StoredMessage":
        attributes = members.raw.get("attributes")
        return cls(
            namespace=members.text("namespace"),
            queue=members.text("queue"),
            message_id=members.text("message_id", is_required=True),
            attempts=members.number("attempts"),
            failure_attempts=members.number("failure_attempts"),
            max_attempts=members.number("max_attempts"),
            priority=members.number("priority"),
            enqueued_at_unix=members.number("enqueued_at_unix"),
            not_visible_until_unix=members.number("not_visible_until_unix"),
            expires_at_unix=members.number("expires_at_unix"),
            content_type=members.text("payload_content_type"),
            payload_bytes=members.number("payload_bytes"),
            attributes=attributes if isinstance(attributes, dict) else {},
            last_error=members.raw.get("last_error"),
            correlation_id=members.text("correlation_id"),
            dead_at_unix=members.number("dead_at_unix"),
            payload=_decoded(members),
            raw=dict(members.raw),
        )


def _decoded(members: Members) -> bytes | None:
    if members.raw.get("payload_base64") is None:
        return None
    try:
        return binascii.a2b_base64(members.text("payload_base64"), strict_mode=True)
    except ValueError as error:
        raise UnexpectedAnswer("a message with a payload that is no base64") from error


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """What holds for the messages of a queue unless they say otherwise; 0 is the server's own, or no limit."""

    visibility_timeout_s: int
    max_attempts: int
    ttl_s: int
    deliveries_per_s: float
    is_paused: bool
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, members: Members) -> "QueuePolicy":
        rate = members.raw.get("deliveries_per_second", 0.0)
        return cls(
            visibility_timeout_s=members.number("visibility_timeout_seconds"),
            max_attempts=members.number("max_attempts"),
            ttl_s=members.number("ttl_seconds"),
            deliveries_per_s=float(rate) if isinstance(rate, int | float) else 0.0,
            is_paused=members.boolean("paused"),
            raw=dict(members.raw),
        )
