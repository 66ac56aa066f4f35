"""Asking again: for as long as the caller wants to wait, and not at all where asking again makes no sense."""

from collections.abc import Callable

from holdfast.client.errors import ApiError, TransportFailed
from holdfast.client.session.lease import whole_seconds
from holdfast.client.wire.call import Answer, Call
from holdfast.client.wire.flow import Channel, Flow, pause
from holdfast.client.wire.retry import ACQUIRE_BACKOFF

_ON_THE_WIRE_FOREVER = 0
_ON_THE_WIRE_NO_WAIT = -1


def patiently(
    channel: Channel,
    call_for: Callable[[int], Call],
    *,
    block_s: float | None,
    retries: int,
    may_pass: Callable[[ApiError], bool],
) -> Flow[Answer]:
    """The first success; `call_for` is given how many seconds the server may wait, as the wire spells it.

    `block_s` is the time for all of it (None: for ever), `retries` how often in a row no answer is accepted.
    """
    deadline_s = None if block_s is None else channel.monotonic_s() + block_s
    failures = refusals = 0
    while True:
        left_s = None if deadline_s is None else deadline_s - channel.monotonic_s()
        problem: ApiError | TransportFailed
        try:
            answer = yield from channel.send(call_for(block_seconds(left_s)))
        except TransportFailed as failure:
            problem = failure
            failures += 1
            delay_s = ACQUIRE_BACKOFF.delay_s(failures - 1, channel.chance)
        else:
            if answer.status < 300:
                return answer
            problem = answer.error()
            failures, refusals = 0, refusals + 1
            delay_s = ACQUIRE_BACKOFF.delay_s(refusals - 1, channel.chance, problem.retry_after_s)
            if not may_pass(problem):
                raise problem
        left_s = None if deadline_s is None else deadline_s - channel.monotonic_s()
        if failures > retries or (left_s is not None and left_s <= 0):
            raise problem
        # The last attempt is made when the time is just over, however far away the server's advice is.
        yield from pause(delay_s if left_s is None else min(delay_s, left_s))


def block_seconds(left_s: float | None) -> int:
    """How long a server shall wait, as it is told."""
    if left_s is None:
        return _ON_THE_WIRE_FOREVER
    return whole_seconds(left_s) if left_s > 0 else _ON_THE_WIRE_NO_WAIT
