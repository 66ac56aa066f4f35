"""A slot in use: its calls as flows, and whether it is still ours. It is ended once, by a release or by its loss."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.client.errors import (
    ClientClosed,
    ClientError,
    Forbidden,
    LeaseLost,
    NotFound,
    RequestRefused,
    TransportFailed,
)
from holdfast.client.locks import request
from holdfast.client.options import ClientOptions
from holdfast.client.session.lease import whole_seconds
from holdfast.client.wire.call import Answer
from holdfast.client.wire.flow import Channel, Flow

_RENEW_SHARE: Final = 3
"""A lease is renewed when a third of it is over."""
_RETRY_S_MAX: Final = 1.0
_FINAL: Final = (Forbidden, NotFound, RequestRefused, ClientClosed)


@dataclass(frozen=True, slots=True)
class LockGrant:
    """Who this is to the server."""

    key: str
    token: str
    fencing_token: int
    limit: int
    ttl_s: int
    owner: str

    @classmethod
    def read(cls, answer: Answer) -> "LockGrant":
        members = answer.members()
        return cls(
            key=members.text("key", is_required=True),
            token=members.text("token", is_required=True),
            fencing_token=members.number("fencing_token", is_required=True),
            limit=members.number("limit", is_required=True),
            ttl_s=members.number("ttl_seconds", is_required=True),
            owner=members.text("owner"),
        )


class LockClaim:
    """The part of a held lock that both twins share. It does no I/O."""

    def __init__(self, channel: Channel, options: ClientOptions, answer: Answer, correlation_id: str) -> None:
        self.grant = LockGrant.read(answer)
        self.ttl_s = float(self.grant.ttl_s)
        self.lost_because: LeaseLost | None = None
        self.on_end: Callable[[], None] = lambda: None
        self._channel = channel
        self._options = options
        self._correlation_id = correlation_id
        # The grant may have come at any moment of a long wait: half of the time is believed then, and a renewal is due at once.
        self._deadline_s = max(answer.sent_at_s + self.ttl_s, channel.monotonic_s() + self.ttl_s / 2)
        self._is_ended = False
        self._lock = threading.Lock()

    # Life

    @property
    def is_ended(self) -> bool:
        return self._is_ended

    def remaining_s(self) -> float:
        """How long the lease lasts for certain, by our own clock."""
        return self._deadline_s - self._channel.monotonic_s()

    def keepalive_in_s(self, *, after_failure: bool = False) -> float:
        if after_failure:
            return max(0.0, min(self.remaining_s(), self.ttl_s / 20, _RETRY_S_MAX))
        return max(0.0, self.remaining_s() - self.ttl_s * (_RENEW_SHARE - 1) / _RENEW_SHARE)

    def verdict(self, problem: ClientError) -> LeaseLost | None:
        """Why a failed renewal means that the lock is lost; None if it may be tried again."""
        if isinstance(problem, LeaseLost):
            return problem
        if isinstance(problem, _FINAL):
            return LeaseLost("lock_not_held", f"the renewal was refused: {problem}", status=403)
        if self.remaining_s() <= 0:
            return LeaseLost("lease_expired", f"no renewal got through in time: {problem}", status=403)
        return None

    def end(self, because: LeaseLost | None = None) -> bool:
        """Released, or lost because of this; false if it was over already."""
        with self._lock:
            if self._is_ended:
                return False
            self._is_ended = True
            self.lost_because = because
            return True

    def lose(self, because: LeaseLost) -> None:
        if self.end(because):
            self.on_end()

    def check_held(self) -> None:
        """Raise if it is over, also if only our own clock says so."""
        if self._is_ended:
            raise self.lost_because or LeaseLost("lock_not_held", "this lock was released", status=403)
        if self.remaining_s() <= 0:
            raise LeaseLost("lease_expired", "the lease ended before it was renewed", status=403)

    # Calls

    def keepalive(self, ttl_s: float | None = None) -> Flow[int]:
        """Moves the end of the lease; gives the time that it lasts from now."""
        asked_s = whole_seconds(self.ttl_s if ttl_s is None else ttl_s)
        call = request.renew(
            key=self.grant.key,
            token=self.grant.token,
            ttl_s=asked_s,
            correlation_id=self._correlation_id,
            timeout_s=self._options.keepalive_timeout_s,
        )
        answer = yield from self._channel.send(call, deadline_s=self._deadline_s)
        answer.expect(200)
        self.ttl_s = float(asked_s)
        self._deadline_s = answer.sent_at_s + self.ttl_s
        return asked_s

    def release(self) -> Flow[None]:
        """A first attempt whose answer was lost may have done it already."""
        try:
            answer = yield from self._send_release()
        except TransportFailed:
            answer = yield from self._send_release()
            answer.may_be_a_repeat = True
        try:
            answer.expect(200)
        except LeaseLost:
            if not answer.may_be_a_repeat:
                raise

    def _send_release(self) -> Flow[Answer]:
        call = request.release(
            key=self.grant.key, token=self.grant.token, correlation_id=self._correlation_id
        )
        return (yield from self._channel.send(call))
