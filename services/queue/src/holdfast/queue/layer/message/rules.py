"""The rules of a message's life: what each event makes of its state. Pure; the caller brings the time.

staged --commit of the transaction that sends it--> ready; --rollback--> gone
ready --claim--> taken --ack--> gone
  ^                |---nack, rollback, never sent--> ready
  |                '---lease over: ready again where it stands, one failure more
  '-- budget of failures used up: dead letter; past its deadline: gone
"""

from enum import Enum

from holdfast.common.clock import end_ms, unix_s
from holdfast.queue.layer.errors import MessageLeaseExpired, MessageLeaseMismatch, MetadataChanged
from holdfast.queue.layer.message import rules
from holdfast.queue.layer.message.records import payload_blob
from holdfast.queue.layer.message.types import (
    Body,
    DeadLetter,
    Delivery,
    LeaseClaim,
    Message,
    QueueAddress,
    StateLease,
)
from holdfast.queue.layer.records_pb2 import DeadLetterRecord, MessageState, QueueMessage, StagedMessage

ROLLBACK_ERROR = b'{"reason":"txn_rollback"}'


class Disposition(Enum):
    """What becomes of a message that no consumer holds."""

    READY = "ready"
    DEAD = "dead"
    GONE = "gone"


def is_held(state: MessageState, now_ms: int) -> bool:
    return bool(state.lease_id) and state.expires_at_ms > now_ms


def failures(state: MessageState, now_ms: int) -> int:
    """A lease that ran out is a failure, though it is not recorded yet."""
    has_expired = bool(state.lease_id) and state.expires_at_ms <= now_ms
    return state.failure_attempts + (1 if has_expired else 0)


def disposition(state: MessageState, now_ms: int) -> Disposition:
    if state.deadline_ms and state.deadline_ms <= now_ms:
        return Disposition.GONE
    return Disposition.DEAD if failures(state, now_ms) >= state.max_attempts else Disposition.READY


def visible_from_ms(delay_s: float, now_ms: int) -> int:
    """Without a delay at once: rounding up would keep the message back."""
    return end_ms(now_ms, delay_s) if delay_s else now_ms


def enqueued_at_ms(message: QueueMessage, state: MessageState) -> int:
    """Since when it is in its queue: what a transaction sent came with its commit."""
    return state.sent_at_ms or message.enqueued_at_ms


def published(staged: StagedMessage, now_ms: int) -> MessageState:
    """The transaction that sends it is committed: its times begin."""
    ready = MessageState()
    ready.CopyFrom(staged.state)
    ready.sent_at_ms = now_ms
    ready.visible_at_ms = visible_from_ms(staged.delay_s, now_ms)
    ready.deadline_ms = end_ms(now_ms, staged.ttl_s) if staged.ttl_s else 0
    return ready


def etag(state: MessageState) -> str:
    return f"m{state.changes}"


def claimed(
    state: MessageState,
    *,
    lease_id: str,
    txn_id: str,
    owner: str,
    is_enlisted: bool,
    visibility_s: int,
    now_ms: int,
) -> MessageState:
    taken = _changed(state)
    taken.attempts += 1
    taken.failure_attempts = failures(state, now_ms)
    if state.lease_id:
        taken.visible_at_ms = state.expires_at_ms  # Its place since the last lease ran out.
    taken.fencing_token += 1
    taken.last_error = b""
    taken.lease_id = lease_id
    taken.txn_id = txn_id
    taken.owner = owner
    taken.is_enlisted = is_enlisted
    taken.visibility_s = visibility_s
    taken.expires_at_ms = end_ms(now_ms, visibility_s)
    return taken


def extended(state: MessageState, visibility_s: int, now_ms: int) -> MessageState:
    kept = _changed(state)
    kept.visibility_s = visibility_s
    kept.expires_at_ms = end_ms(now_ms, visibility_s)
    return kept


def given_back(state: MessageState) -> MessageState:
    """Never sent: its old place, and no delivery counted. The token does not go back."""
    ready = _freed(state)
    ready.attempts -= 1
    return ready


def requeued(state: MessageState, *, visible_at_ms: int, last_error: bytes, is_failure: bool) -> MessageState:
    ready = _freed(state)
    ready.visible_at_ms = visible_at_ms
    ready.last_error = last_error
    if is_failure:
        ready.failure_attempts += 1
    return ready


def redriven(state: MessageState, now_ms: int) -> MessageState:
    """Out of the dead letters: a fresh budget of failures, and no deadline, which may be over already."""
    ready = _freed(state)
    ready.visible_at_ms = now_ms
    ready.failure_attempts = 0
    ready.deadline_ms = 0
    ready.last_error = b""
    return ready


def is_claim_right(claim: LeaseClaim, state: MessageState, now_ms: int) -> bool:
    return _is_holder(claim, state) and state.expires_at_ms > now_ms


def check_claim(claim: LeaseClaim, state: MessageState, now_ms: int) -> None:
    """Refuse a caller that does not hold this delivery, in the order clients rely on."""
    if not _is_holder(claim, state):
        raise MessageLeaseMismatch("the message was delivered again or given back; this delivery is over")
    if state.expires_at_ms <= now_ms:
        raise MessageLeaseExpired("the visibility time is over; extend earlier, or ask for more of it")


def check_etag(claim: LeaseClaim, state: MessageState) -> None:
    if claim.meta_etag and claim.meta_etag != etag(state):
        raise MetadataChanged("message metadata changed", etag(state))


def _is_holder(claim: LeaseClaim, state: MessageState) -> bool:
    return (
        bool(state.lease_id)
        and claim.lease_id == state.lease_id
        and claim.fencing_token in (0, state.fencing_token)
        and claim.txn_id in ("", state.txn_id)
    )


def _changed(state: MessageState) -> MessageState:
    copy = MessageState()
    copy.CopyFrom(state)
    copy.changes += 1
    return copy


def _freed(state: MessageState) -> MessageState:
    ready = _changed(state)
    ready.lease_id = ""
    ready.txn_id = ""
    ready.owner = ""
    ready.is_enlisted = False
    ready.expires_at_ms = 0
    ready.visibility_s = 0
    return ready


def message_view(
    address: QueueAddress, message_id: str, message: QueueMessage, state: MessageState
) -> Message:
    is_taken = bool(state.lease_id)
    return Message(
        address,
        message_id,
        state.attempts,
        state.failure_attempts,
        state.max_attempts,
        state.priority,
        unix_s(rules.enqueued_at_ms(message, state)),
        unix_s(state.expires_at_ms if is_taken else state.visible_at_ms),
        state.visibility_s if is_taken else message.visibility_s,
        unix_s(state.deadline_ms),
        message.payload.size_bytes,
        message.content_type,
        message.attributes,
        state.correlation_id,
        state.last_error,
    )


def body_view(message: QueueMessage) -> Body:
    payload = message.payload
    return Body(payload.inline, payload_blob(payload), payload.size_bytes)


def delivery_view(
    address: QueueAddress,
    message_id: str,
    message: QueueMessage,
    state: MessageState,
    state_lease: StateLease | None = None,
) -> Delivery:
    return Delivery(
        message_view(address, message_id, message, state),
        body_view(message),
        state.lease_id,
        unix_s(state.expires_at_ms),
        state.fencing_token,
        state.txn_id,
        rules.etag(state),
        state_lease,
    )


def dead_letter_view(address: QueueAddress, message_id: str, letter: DeadLetterRecord) -> DeadLetter:
    return DeadLetter(
        message_view(address, message_id, letter.message, letter.state),
        body_view(letter.message),
        unix_s(letter.dead_at_ms),
    )
