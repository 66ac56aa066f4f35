"""Records as the protocols see them: times in Unix seconds, payloads with where they lie."""

from holdfast.common.clock import unix_s
from holdfast.queue.layer.message import rules
from holdfast.queue.layer.message.records import payload_blob
from holdfast.queue.layer.message.types import Body, DeadLetter, Delivery, Message, QueueAddress, StateLease
from holdfast.queue.layer.records_pb2 import DeadLetterRecord, MessageState, QueueMessage


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
