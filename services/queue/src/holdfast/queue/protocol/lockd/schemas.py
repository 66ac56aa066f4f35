"""Bodies on the wire; the field names are the contract. A null stands for a field left out; unknown fields are ignored."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from holdfast.queue.layer.message.types import PRIORITY_MAX, PRIORITY_MIN

Int64 = Annotated[int, Field(ge=-(1 << 63), le=(1 << 63) - 1)]
Priority = Annotated[int, Field(ge=PRIORITY_MIN, le=PRIORITY_MAX)]


class QueueBody(BaseModel):
    """What every request may name; queue and namespace may also stand in the query."""

    model_config = ConfigDict(extra="ignore", strict=True)

    namespace: str | None = None
    queue: str | None = None


class EnqueueMeta(QueueBody):
    delay_seconds: Int64 | None = None
    visibility_timeout_seconds: Int64 | None = None
    ttl_seconds: Int64 | None = None
    max_attempts: Int64 | None = None
    attributes: dict[str, Any] | None = None
    payload_content_type: str | None = None
    priority: Priority | None = Field(default=None, description="The lower number leaves first.")
    txn_id: str | None = Field(
        default=None, description="Send it with the commit of this transaction; `X-Txn-ID` says the same."
    )


class DequeueRequest(QueueBody):
    owner: str | None = None
    txn_id: str | None = Field(default=None, description="Enlist the delivery in this transaction.")
    visibility_timeout_seconds: Int64 | None = None
    wait_seconds: Int64 | None = Field(default=None, description="-1: no wait, 0: for ever, n: n seconds.")
    page_size: Int64 | None = None
    start_after: str | None = Field(default=None, description="Has no effect.")


class Resolution(BaseModel):
    """What shows that a delivery is the caller's."""

    model_config = ConfigDict(extra="ignore", strict=True)

    message_id: str | None = None
    lease_id: str | None = None
    txn_id: str | None = None
    fencing_token: Int64 | None = None
    meta_etag: str | None = None
    state_etag: str | None = None
    state_lease_id: str | None = None
    state_fencing_token: Int64 | None = None


class AckRequest(QueueBody, Resolution):
    pass


class NackRequest(QueueBody, Resolution):
    delay_seconds: Int64 | None = None
    intent: str | None = Field(default=None, description="`failure` (the default) or `defer`.")
    last_error: Any = None


class ExtendRequest(QueueBody, Resolution):
    extend_by_seconds: Int64 | None = None


class AckBatchRequest(QueueBody):
    messages: list[Resolution] | None = None


class PeekRequest(QueueBody):
    limit: Int64 | None = None
    payloads: bool | None = None


class DeadLettersRequest(QueueBody):
    limit: Int64 | None = None
    after: str | None = None


class DeadLetterChoice(QueueBody):
    message_ids: list[str] | None = Field(default=None, description="Left out: the oldest `limit`.")
    limit: Int64 | None = None


class PolicyRequest(QueueBody):
    visibility_timeout_seconds: Int64 | None = None
    max_attempts: Int64 | None = None
    ttl_seconds: Int64 | None = None
    deliveries_per_second: float | None = None
    paused: bool | None = None


_BYTES = {"type": "string", "format": "binary"}
_MESSAGE = {
    "type": "object",
    "properties": {"meta": EnqueueMeta.model_json_schema(), "payload": _BYTES},
    "required": ["meta"],
}
ENQUEUE_CONTENT = {"multipart/form-data": _MESSAGE, "multipart/related": _MESSAGE}
BATCH_CONTENT = {"multipart/form-data": _BYTES, "multipart/related": _BYTES}
DELIVERY_CONTENT = {"multipart/related": _BYTES}


class EnqueueAnswer(BaseModel):
    namespace: str
    queue: str
    message_id: str
    attempts: int
    max_attempts: int
    not_visible_until_unix: int
    visibility_timeout_seconds: int
    payload_bytes: int
    priority: int | None = Field(default=None, description="Left out when 0.")
    txn_id: str | None = Field(
        default=None, description="The transaction that sends it; left out without one."
    )
    correlation_id: str


class EnqueueBatchAnswer(BaseModel):
    messages: list[EnqueueAnswer]
    correlation_id: str


class AckAnswer(BaseModel):
    acked: bool
    correlation_id: str


class AckResult(BaseModel):
    message_id: str
    acked: bool
    error: str | None = None
    detail: str | None = None


class AckBatchAnswer(BaseModel):
    acked: int
    results: list[AckResult]
    correlation_id: str


class NackAnswer(BaseModel):
    requeued: bool
    meta_etag: str
    correlation_id: str


class ExtendAnswer(BaseModel):
    lease_expires_at_unix: int
    visibility_timeout_seconds: int
    meta_etag: str
    state_lease_expires_at_unix: int | None = None
    correlation_id: str


class StatsAnswer(BaseModel):
    namespace: str
    queue: str
    waiting_consumers: int
    pending_candidates: int
    total_consumers: int
    has_active_watcher: bool
    available: bool
    head_message_id: str | None = None
    head_enqueued_at_unix: int | None = None
    head_not_visible_until_unix: int | None = None
    head_age_seconds: int | None = None
    in_flight: int
    paused: bool
    correlation_id: str


class StoredMessage(BaseModel):
    namespace: str
    queue: str
    message_id: str
    attempts: int
    failure_attempts: int | None = None
    max_attempts: int
    priority: int | None = None
    enqueued_at_unix: int
    not_visible_until_unix: int | None = None
    visibility_timeout_seconds: int
    expires_at_unix: int | None = None
    attributes: Any = None
    payload_content_type: str
    payload_bytes: int
    payload_base64: str | None = None
    last_error: Any = None
    dead_at_unix: int | None = None
    correlation_id: str


class PeekAnswer(BaseModel):
    namespace: str
    queue: str
    messages: list[StoredMessage]
    correlation_id: str


class DeadLettersAnswer(BaseModel):
    namespace: str
    queue: str
    messages: list[StoredMessage]
    next_after: str | None = None
    correlation_id: str


class RedriveAnswer(BaseModel):
    redriven: int
    correlation_id: str


class PurgeAnswer(BaseModel):
    purged: int
    correlation_id: str


class PolicyAnswer(BaseModel):
    namespace: str
    queue: str
    visibility_timeout_seconds: int
    max_attempts: int
    ttl_seconds: int
    deliveries_per_second: float
    paused: bool
    correlation_id: str
