"""Calls as generators that do no I/O: they yield what to do, and the transport that drives them does it, sync or async.

A flow yields `Send` and is given the answer (or has TransportFailed thrown into it), or yields `Pause` and is
resumed when the time is over. So failover and retries are written once, and tested without a network.
"""

import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from holdfast.client.errors import TransportFailed, TransportTimedOut
from holdfast.client.wire.call import Answer, Call
from holdfast.client.wire.endpoint import Endpoint, EndpointOrder


@dataclass(frozen=True, slots=True)
class Send:
    """Exchange this call with this endpoint."""

    call: Call
    endpoint: Endpoint
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Let this time pass."""

    seconds: float


T = TypeVar("T")
Flow = Generator[Send | Pause, Answer | None, T]


def pause(seconds: float) -> Flow[None]:
    yield Pause(seconds)


class Channel:
    """The way to the servers: tries one endpoint after the other until one answers for all."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        timeout_s: float = 15.0,
        on_shutdown_imminent: Callable[[Endpoint], None] = lambda endpoint: None,
        chance: random.Random | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.chance = chance or random.Random()
        self.monotonic_s = monotonic_s
        self.timeout_s = timeout_s
        self._order = EndpointOrder(endpoints, self.chance)
        self._on_shutdown_imminent = on_shutdown_imminent

    @property
    def preferred(self) -> Endpoint | None:
        """The endpoint that answered last, and is asked first."""
        return self._order.preferred

    def send(self, call: Call, *, deadline_s: float | None = None) -> Flow[Answer]:
        """The first answer that is not a passive node's; with none but those, the last of them."""
        passive: Answer | None = None
        failure: TransportFailed | None = None
        for endpoint in self._order.next():
            if call.body is not None and not call.body.can_be_sent:
                break
            try:
                answer = yield from self._exchange(call, endpoint, deadline_s)
            except TransportFailed as error:
                if call.is_sent_once and error.is_sent:
                    raise
                # What may have reached one server must not look unsent because the next one was down.
                if failure is None or error.is_sent or not failure.is_sent:
                    failure = error
                continue
            if answer.is_passive:
                passive = answer
                continue
            self._order.prefer(endpoint)
            answer.may_be_a_repeat = failure is not None and failure.is_sent
            return answer
        if passive is not None:
            return passive
        assert failure is not None, "there is at least one endpoint"
        raise failure

    def _exchange(self, call: Call, endpoint: Endpoint, deadline_s: float | None) -> Flow[Answer]:
        try:
            answer = yield from self._exchange_once(call, endpoint, deadline_s)
        except TransportTimedOut:
            raise
        except TransportFailed as error:
            # A pooled connection that the server has closed meanwhile: the next one is fresh.
            if not (call.is_idempotent and error.is_sent):
                raise
            answer = yield from self._exchange_once(call, endpoint, deadline_s)
        answer.endpoint = endpoint
        if answer.is_shutdown_imminent:
            self._on_shutdown_imminent(endpoint)
        return answer

    def _exchange_once(self, call: Call, endpoint: Endpoint, deadline_s: float | None) -> Flow[Answer]:
        sent_at_s = self.monotonic_s()
        timeout_s = None if call.is_endless else call.timeout_s or self.timeout_s
        if deadline_s is not None:
            left_s = deadline_s - sent_at_s
            if left_s <= 0:
                raise TransportTimedOut("no endpoint answered in time", is_sent=False)
            timeout_s = left_s if timeout_s is None else min(timeout_s, left_s)
        answer = yield Send(call, endpoint, timeout_s)
        assert answer is not None, "the driver answers every Send"
        answer.sent_at_s = sent_at_s + answer.queued_s
        return answer
