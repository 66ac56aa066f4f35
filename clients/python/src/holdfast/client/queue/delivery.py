"""A delivery in use: its calls as flows, the ETag that they taught, and whether it is still ours.

A claim is live until it is resolved (ack or nack) or lost, and then ended for good. Its calls must not
overlap: each extend changes the ETag that nack and the next extend need. The twins see to that with a lock.
"""

import threading
from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Final

from holdfast.client.errors import (
    CasMismatch,
    ClientClosed,
    ClientError,
    Forbidden,
    LeaseLost,
    NotFound,
    RequestRefused,
    TransportFailed,
)
from holdfast.client.options import ClientOptions
from holdfast.client.queue import request
from holdfast.client.queue.message import Intent, Message
from holdfast.client.session.lease import TTL_S_DEFAULT, Lease
from holdfast.client.wire.call import Answer, Call
from holdfast.client.wire.flow import Channel, Flow, pause
from holdfast.client.wire.retry import RETRIES_DEFAULT, UPDATE_BACKOFF

_EXTEND_S_MIN: Final = 0.25
_EXTEND_S_MAX: Final = 30.0
_EXTEND_RETRY_S_MAX: Final = 1.0
_ROUNDING_S: Final = 2.0
_REASON_CHARS_MAX: Final = 1000
_FINAL: Final = (Forbidden, RequestRefused, ClientClosed)


class ServerClock:
    """What the time is at the server that sent an answer, as far as its `Date` tells."""

    def __init__(self, answer: Answer, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._date = _date_of(answer)
        self._read_at_s = monotonic_s()

    def left_s(self, message: Message) -> float:
        """How long a delivery lasts from now on: less than its visibility if it was on its way for long."""
        visibility_s = float(message.visibility_timeout_s or TTL_S_DEFAULT)
        if self._date is None or not message.lease_expires_at_unix:
            return visibility_s
        server_now_s = self._date.timestamp() + self._monotonic_s() - self._read_at_s
        shown_s = message.lease_expires_at_unix - server_now_s
        # Both are whole seconds, so that a second more or less says nothing.
        return visibility_s if shown_s > visibility_s - _ROUNDING_S else max(0.0, shown_s)


def reason_of(error: BaseException) -> str:
    """What a nack says about the error that caused it."""
    return f"{type(error).__name__}: {error}"[:_REASON_CHARS_MAX]


def _date_of(answer: Answer) -> datetime | None:
    try:
        return parsedate_to_datetime(answer.headers["date"])
    except (KeyError, ValueError):
        return None


class DeliveryClaim:
    """The part of a delivery that both twins share. It does no I/O."""

    def __init__(
        self, channel: Channel, options: ClientOptions, message: Message, *, left_s: float | None
    ) -> None:
        self.message = message
        self.meta_etag = message.meta_etag
        self.lease_expires_at_unix = message.lease_expires_at_unix
        self.visibility_s = float(message.visibility_timeout_s or TTL_S_DEFAULT)
        self.lost_because: LeaseLost | None = None
        self.is_resolved = False
        """Acked or nacked by us."""
        self.on_end: Callable[[], None] = lambda: None
        self._channel = channel
        self._options = options
        self._deadline_s = None if left_s is None else channel.monotonic_s() + left_s
        self._is_ended = False
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self.message.message_id

    # Life

    @property
    def is_ended(self) -> bool:
        return self._is_ended

    def end(self, because: LeaseLost | None = None) -> bool:
        """Resolved, or lost because of this; false if it was over already."""
        with self._lock:
            if self._is_ended:
                return False
            self._is_ended = True
            self.is_resolved = because is None
            self.lost_because = because
            return True

    def lose(self, because: LeaseLost) -> None:
        if self.end(because):
            self.on_end()

    def resolve(self) -> None:
        """Acked or nacked, by any call."""
        if self.end():
            self.on_end()

    def check_live(self) -> None:
        if self._is_ended:
            raise self.lost_because or LeaseLost(
                "queue_message_lease_mismatch", "this delivery is resolved already", status=409
            )

    def remaining_s(self) -> float | None:
        """How long the delivery is ours for certain, by our own clock; None if that is not known."""
        return None if self._deadline_s is None else self._deadline_s - self._channel.monotonic_s()

    def keepalive_in_s(self, *, after_failure: bool = False) -> float:
        """When to extend: at half time, and after a failure soon again, for as long as the delivery lasts."""
        remaining_s = self.remaining_s()
        if after_failure:
            retry_s = min(self.visibility_s / 20, _EXTEND_RETRY_S_MAX)
            return retry_s if remaining_s is None else max(0.0, min(remaining_s, retry_s))
        if remaining_s is None:
            return 0.0
        every_s = min(max(self.visibility_s / 2, _EXTEND_S_MIN), _EXTEND_S_MAX)
        return max(0.0, min(remaining_s - self.visibility_s / 2, every_s))

    def verdict(self, problem: ClientError) -> LeaseLost | None:
        """Why a failed extend means that the delivery is lost; None if it may be tried again."""
        if isinstance(problem, LeaseLost):
            return problem
        if isinstance(problem, NotFound):
            return LeaseLost(
                "queue_message_lease_mismatch", f"the message is gone: {problem}", status=problem.status
            )
        if isinstance(problem, _FINAL):
            return LeaseLost("lease_required", f"the extend was refused: {problem}", status=403)
        remaining_s = self.remaining_s()
        if remaining_s is not None and remaining_s <= 0:
            return LeaseLost("lease_expired", f"no extend got through in time: {problem}", status=403)
        return None

    # Calls

    def keepalive(self) -> Flow[int]:
        return (yield from self.extend(None))

    def extend(self, seconds: float | None) -> Flow[int]:
        """Lets the delivery end so many seconds from now, by default its visibility; gives the end in Unix seconds."""
        seconds = seconds or self.visibility_s
        answer = yield from self._send_extend(seconds)
        if answer.status == 409 and (etag := answer.error().current_etag):
            # The answer to an earlier extend was lost on its way, and with it the ETag.
            self.meta_etag = etag
            answer = yield from self._send_extend(seconds)
        members = answer.expect(200).members()
        self.meta_etag = members.text("meta_etag") or self.meta_etag
        self.lease_expires_at_unix = members.number("lease_expires_at_unix", is_required=True)
        self.visibility_s = float(members.number("visibility_timeout_seconds") or seconds)
        self._deadline_s = answer.sent_at_s + self.visibility_s
        return self.lease_expires_at_unix

    def _send_extend(self, seconds: float) -> Flow[Answer]:
        call = request.extend(
            self.message, self.meta_etag, seconds, timeout_s=self._options.keepalive_timeout_s
        )
        return (yield from self._channel.send(call, deadline_s=self._deadline_s))

    def ack(self) -> Flow[None]:
        """The message is done with, and gone for good. Sent again until there is an answer."""
        answer = yield from self._resolve(request.ack(self.message, self.meta_etag))
        # Already removed: by our own first attempt, whose answer did not arrive.
        if not (answer.status == 404 and answer.may_be_a_repeat):
            answer.expect(200)

    def nack(self, *, delay_s: float, intent: Intent, reason: str) -> Flow[None]:
        """The message goes back to the queue. Sent again until there is an answer."""
        answer = yield from self._resolve(self._nack_call(delay_s, intent, reason))
        if answer.status == 409 and not answer.may_be_a_repeat and (etag := answer.error().current_etag):
            # As with an extend: it is ours, and the answer that had its ETag was lost.
            self.meta_etag = etag
            answer = yield from self._resolve(self._nack_call(delay_s, intent, reason))
        if not (answer.may_be_a_repeat and isinstance(answer.error(), LeaseLost | NotFound | CasMismatch)):
            answer.expect(200)

    def _nack_call(self, delay_s: float, intent: Intent, reason: str) -> Call:
        return request.nack(self.message, self.meta_etag, delay_s=delay_s, intent=intent, reason=reason)

    def _resolve(self, call: Call) -> Flow[Answer]:
        """The answer; while there is none, or the server has no time, it is asked again as long as it is ours."""
        may_be_a_repeat = False
        for attempt in count():
            try:
                answer = yield from self._channel.send(call)
            except TransportFailed as failure:
                may_be_a_repeat |= failure.is_sent
                delay_s = UPDATE_BACKOFF.delay_s(attempt, self._channel.chance)
                if not self._may_resolve_in(delay_s, attempt):
                    raise
            else:
                answer.may_be_a_repeat |= may_be_a_repeat
                may_be_a_repeat |= answer.status >= 500
                delay_s = UPDATE_BACKOFF.delay_s(attempt, self._channel.chance, answer.error().retry_after_s)
                is_busy = answer.status == 429 or answer.status >= 500
                if not is_busy or not self._may_resolve_in(delay_s, attempt):
                    return answer
            yield from pause(delay_s)
        raise AssertionError("count() does not end")

    def _may_resolve_in(self, delay_s: float, attempt: int) -> bool:
        remaining_s = self.remaining_s()
        return attempt < RETRIES_DEFAULT and (remaining_s is None or delay_s < remaining_s)

    # State

    def state_lease(self) -> Lease | None:
        """The second lease of a delivery with state."""
        message = self.message
        if not message.state_lease_id:
            return None
        return Lease(
            key=message.state_key,
            lease_id=message.state_lease_id,
            txn_id=message.state_txn_id or message.txn_id,
            fencing_token=message.state_fencing_token,
            namespace=message.namespace,
            expires_at_unix=message.state_lease_expires_at_unix,
            correlation_id=message.correlation_id,
        )
