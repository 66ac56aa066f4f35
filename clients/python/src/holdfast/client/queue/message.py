"""What the queue tells about messages and queues, as values."""

import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.client.errors import UnexpectedAnswer
from holdfast.client.wire.body import AsyncSource
from holdfast.client.wire.call import Members

CONTENT_TYPE_DEFAULT: Final = "application/octet-stream"

Intent = Literal["failure", "defer"]
"""What a nack means: a failed attempt counts against `max_attempts`, a deferred one does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to be sent; what is None is left to the policy of the queue."""

    payload: AsyncSource = b""
    content_type: str = CONTENT_TYPE_DEFAULT
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    delay_s: float = 0.0
    visibility_s: float | None = None
    ttl_s: float | None = None
    max_attempts: int | None = None
    priority: int = 0
    """The lower number leaves first; from -128 to 127."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A message that the queue has taken: it will not be lost, unless the transaction that sends it is rolled back."""

    namespace: str
    queue: str
    message_id: str
    attempts: int
    max_attempts: int
    not_visible_until_unix: int
    visibility_timeout_s: int
    payload_bytes: int
    correlation_id: str
    raw: dict[str, Any] = field(repr=False)
    txn_id: str = ""
    """The transaction that sends it with its commit; empty: it is in the queue."""

    @classmethod
    def read(cls, members: Members) -> "Enqueued":
        return cls(
            namespace=members.text("namespace"),
            queue=members.text("queue"),
            message_id=members.text("message_id", is_required=True),
            attempts=members.number("attempts"),
            max_attempts=members.number("max_attempts"),
            not_visible_until_unix=members.number("not_visible_until_unix"),
            visibility_timeout_s=members.number("visibility_timeout_seconds"),
            payload_bytes=members.number("payload_bytes"),
            correlation_id=members.text("correlation_id"),
            raw=dict(members.raw),
            txn_id=members.text("txn_id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as delivered, and the proof of its delivery: enough for another process to resolve it."""

    queue: str
    message_id: str
    lease_id: str
    fencing_token: int
    namespace: str = "default"
    meta_etag: str = ""
    txn_id: str = ""
    attempts: int = 0
    max_attempts: int = 0
    failure_attempts: int = 0
    visibility_timeout_s: int = 0
    not_visible_until_unix: int = 0
    lease_expires_at_unix: int = 0
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    content_type: str = CONTENT_TYPE_DEFAULT
    payload_bytes: int = 0
    correlation_id: str = ""
    state_etag: str = ""
    state_lease_id: str = ""
    state_lease_expires_at_unix: int = 0
    state_fencing_token: int = 0
    state_txn_id: str = ""
    raw: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @classmethod
    def read(cls, members: Members) -> "Message":
        attributes = members.raw.get("attributes")
        return cls(
            queue=members.text("queue", is_required=True),
            message_id=members.text("message_id", is_required=True),
            lease_id=members.text("lease_id", is_required=True),
            fencing_token=members.number("fencing_token", is_required=True),
            namespace=members.text("namespace", is_required=True),
            meta_etag=members.text("meta_etag"),
            txn_id=members.text("txn_id"),
            attempts=members.number("attempts"),
            max_attempts=members.number("max_attempts"),
            failure_attempts=members.number("failure_attempts"),
            visibility_timeout_s=members.number("visibility_timeout_seconds"),
            not_visible_until_unix=members.number("not_visible_until_unix"),
            lease_expires_at_unix=members.number("lease_expires_at_unix"),
            attributes=attributes if isinstance(attributes, dict) else {},
            content_type=members.text("payload_content_type") or CONTENT_TYPE_DEFAULT,
            payload_bytes=members.number("payload_bytes"),
            correlation_id=members.text("correlation_id"),
            state_etag=members.text("state_etag"),
            state_lease_id=members.text("state_lease_id"),
            state_lease_expires_at_unix=members.number("state_lease_expires_at_unix"),
            state_fencing_token=members.number("state_fencing_token"),
            state_txn_id=members.text("state_txn_id"),
            raw=dict(members.raw),
        )

    @classmethod
    def decode(cls, meta: bytes) -> "Message":
        """The message in the `meta` part of a delivery."""
        try:
            decoded = json.loads(meta)
        except (ValueError, RecursionError) as error:
            raise UnexpectedAnswer("a delivery whose meta part is no JSON") from error
        if not isinstance(decoded, dict):
            raise UnexpectedAnswer("a delivery whose meta part is no JSON object")
        return cls.read(Members(decoded).inner("message"))

    @property
    def state_key(self) -> str:
        """The key under which the state of this message lives."""
        return f"q/{self.queue}/state/{self.message_id}"
