"""Records as the doors see them: times in Unix seconds, payloads with where they lie."""

from holdfast.common.clock import SteadyClock
from holdfast.queue import rules
from holdfast.queue.messages import Body, DeadLetter, Delivery, Message, QueueAddress, StateLease
from holdfast.queue.records import payload_blob
from holdfast.storage.layers_pb2 import DeadLetterRecord, MessageState, QueueMessage


class WallTime:
    """What was judged by the steady clock, told in wall time, which is what the caller's clock shows."""

    def __init__(self, clock: SteadyClock) -> None:
        self._shift_s = clock.wall_s() - clock.now_ms() / 1000

    def unix_s(self, at_ms: int) -> int:
        return int(at_ms / 1000 + self._shift_s) if at_ms else 0


def message_view(
    address: QueueAddress, message_id: str, message: QueueMessage, state: MessageState, time: WallTime
) -> Message:
    is_taken = bool(state.lease_id)
    return Message(
        address,
        message_id,
        state.attempts,
        state.failure_attempts,
        state.max_attempts,
        state.priority,
        time.unix_s(message.enqueued_at_ms),
        time.unix_s(state.expires_at_ms if is_taken else state.visible_at_ms),
        state.visibility_s if is_taken else message.visibility_s,
        time.unix_s(state.deadline_ms),
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
    time: WallTime,
    state_lease: StateLease | None = None,
) -> Delivery:
    return Delivery(
        message_view(address, message_id, message, state, time),
        body_view(message),
        state.lease_id,
        time.unix_s(state.expires_at_ms),
        state.fencing_token,
        state.txn_id,
        rules.etag(state),
        state_lease,
    )


def dead_letter_view(
    address: QueueAddress, message_id: str, letter: DeadLetterRecord, time: WallTime
) -> DeadLetter:
    return DeadLetter(
        message_view(address, message_id, letter.message, letter.state, time),
        body_view(letter.message),
        time.unix_s(letter.dead_at_ms),
    )
