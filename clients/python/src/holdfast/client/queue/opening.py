"""A stream that is opened again and again: bounded back-off and jitter between attempts, no end by itself."""

import logging
from collections.abc import Callable
from typing import Final

from holdfast.client.errors import ApiError, QueueEmpty, TransportFailed, UnexpectedAnswer
from holdfast.client.wire.call import Answer, Call
from holdfast.client.wire.flow import Channel, Flow
from holdfast.client.wire.retry import Backoff

_RECONNECT: Final = Backoff(start_s=0.1, factor=2.0, max_s=5.0, jitter_s=0.1)
_ENDED_S: Final = 0.1

_log = logging.getLogger(__name__)


class Opening:
    """Counts failures in a row; `retries` is how many are accepted (None: any number)."""

    def __init__(self, channel: Channel, call_for: Callable[[], Call], *, retries: int | None) -> None:
        self._channel = channel
        self._call_for = call_for
        self._retries = retries
        self._failures = 0
        self._delay_s = 0.0

    def delay_s(self) -> float:
        """How long to wait before the next attempt."""
        return self._delay_s

    def attempt(self) -> Flow[Answer | None]:
        """The open stream; None when it is worth another attempt. What will not pass is raised."""
        try:
            answer = yield from self._channel.send(self._call_for())
        except TransportFailed as failure:
            self.failed(failure)
            return None
        if answer.status == 200:
            return answer
        problem = queue_error(answer.error())
        if problem.status != 429 and problem.status < 500:
            raise problem
        self.failed(problem)
        return None

    def failed(self, problem: ApiError | TransportFailed | UnexpectedAnswer) -> None:
        """No answer, none that helps, or a stream that broke off."""
        self._failures += 1
        if self._retries is not None and self._failures > self._retries:
            raise problem
        if self._failures == 1:  # A consumer that waits for ever should know that no message can come.
            _log.warning("no stream: %r; trying again", str(problem))
        at_least_s = problem.retry_after_s if isinstance(problem, ApiError) else None
        self._delay_s = _RECONNECT.delay_s(self._failures - 1, self._channel.chance, at_least_s)

    def keep_trying(self) -> None:
        """From now on any number of failures is accepted."""
        self._retries = None

    def succeeded(self) -> None:
        """Something arrived."""
        self._failures = 0
        self._delay_s = 0.0

    def ended(self, *, is_empty: bool) -> None:
        """The server closed the stream in good order; one without content must not be asked for in a hurry."""
        self._delay_s = _ENDED_S if is_empty else 0.0


def queue_error(problem: ApiError) -> ApiError:
    """What an error means at the queue, where `waiting` says that there is no message."""
    if problem.code != "waiting":
        return problem
    return QueueEmpty(
        problem.code,
        problem.detail,
        status=problem.status,
        retry_after_s=problem.retry_after_s,
        correlation_id=problem.correlation_id,
    )
