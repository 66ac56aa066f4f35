"""The first half of acquire-for-update: a lease and the document under it, or neither."""

from itertools import count
from typing import Final, Literal

from holdfast.client.errors import ApiError, ClientError, LeaseLost, TransportFailed
from holdfast.client.options import ClientOptions
from holdfast.client.session.acquisition import Acquisition
from holdfast.client.session.document import State
from holdfast.client.session.hold import Hold
from holdfast.client.wire.flow import Channel, Flow, pause
from holdfast.client.wire.retry import ACQUIRE_BACKOFF, RETRIES_DEFAULT

OnError = Literal["rollback", "commit"]
"""What becomes of staged changes when the handler fails; lockd commits them."""

FAILURE_RETRIES_DEFAULT: Final = RETRIES_DEFAULT
HANDSHAKE_S_MAX: Final = 15 * 60.0


class Handshake:
    """Acquire, then get. `hold` is the lease as soon as there is one, so that an interrupted caller can end it."""

    def __init__(
        self, channel: Channel, options: ClientOptions, acquisition: Acquisition, *, failure_retries: int
    ) -> None:
        self.hold: Hold | None = None
        self._channel = channel
        self._options = options
        self._acquisition = acquisition
        self._failure_retries = failure_retries

    def run(self) -> Flow[State | None]:
        """The document; what may pass is tried again, as often as the budget allows (−1: for ever)."""
        deadline_s = self._channel.monotonic_s() + HANDSHAKE_S_MAX
        for attempt in count():
            try:
                return (yield from self._attempt())
            except (ApiError, TransportFailed) as problem:
                is_spent = 0 <= self._failure_retries <= attempt
                if is_spent or not _may_pass(problem) or self._channel.monotonic_s() >= deadline_s:
                    raise
                advice_s = problem.retry_after_s if isinstance(problem, ApiError) else None
            yield from pause(ACQUIRE_BACKOFF.delay_s(attempt, self._channel.chance, advice_s))
        raise AssertionError("count() does not end")

    def _attempt(self) -> Flow[State | None]:
        answer = yield from self._acquisition.run(self._channel)
        self.hold = Hold.granted(self._channel, self._options, answer, self._acquisition.ttl_s)
        try:
            return (yield from self.hold.get())
        except ClientError:
            yield from self._give_back()
            raise

    def _give_back(self) -> Flow[None]:
        assert self.hold is not None, "there is a lease to give back"
        try:
            yield from self.hold.release(rollback=True)
        except ClientError:
            return  # It expires by itself; what counts is why the get failed.
        finally:
            self.hold = None


def _may_pass(problem: ApiError | TransportFailed) -> bool:
    if isinstance(problem, TransportFailed | LeaseLost):
        return True
    return problem.status == 429 or problem.status >= 500


def join(problems: list[Exception]) -> Exception:
    """One problem as it is, several as a group."""
    if len(problems) == 1:
        return problems[0]
    return ExceptionGroup("acquire_for_update failed in more than one way", problems)
