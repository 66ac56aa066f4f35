"""Calls that end a hold (release, ack, nack) and met a service that died: repeated until one has answered.

All of them name the lease they end, so a second run does no harm. The client waits for a moment; then it is told how its
call failed, and may repeat it, while the gateway goes on trying. It also goes on when the client has hung up: nothing else
would end the hold before its time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.common.express.message import Answer, Request
from holdfast.common.express.undo import Repeat
from holdfast.common.logging import get_logger
from holdfast.common.telemetry.metrics import Counter, Family
from holdfast.common.upstream.errors import UpstreamError, UpstreamUnavailable
from holdfast.common.upstream.port import UpstreamAnswer
from holdfast.gateway.proxy.unfinished import Unfinished, collected, is_failure, persist

CLIENT_WAITS_S: Final = 2.0

Call = Callable[[], Awaitable[UpstreamAnswer]]

_log = get_logger("gateway.repetition")


class Repetition:
    """Of the calls of one route. `counted` is by service and outcome."""

    def __init__(
        self, repeat: Repeat, service: str, unfinished: Unfinished, counted: Family[Counter]
    ) -> None:
        self._repeat = repeat
        self._service = service
        self._unfinished = unfinished
        self._counted = counted

    async def answer(self, request: Request, call: Call) -> UpstreamAnswer | Answer:
        """The answer of the service, or the first failure when it does not come soon."""
        try:
            answer = await call()
        except asyncio.CancelledError:
            self._go_on(request, call)  # The client hung up, and perhaps the call had no effect yet.
            raise
        except UpstreamError as error:
            task = self._go_on(request, call, was_sent=not isinstance(error, UpstreamUnavailable))
            found = await _soon(task)
            if found is None:
                error.retry_after_s = error.retry_after_s or 1
                raise
            return found
        if not is_failure(answer):
            return answer
        answer = await collected(answer)
        return await _soon(self._go_on(request, call)) or answer

    def _go_on(
        self, request: Request, call: Call, *, was_sent: bool = True
    ) -> "asyncio.Task[UpstreamAnswer | Answer] | None":
        work = self._repeated(request, call, was_sent=was_sent)
        task = self._unfinished.begin(work, len(request.body))
        if task is None:
            self._count("refused")
        return task

    async def _repeated(self, request: Request, call: Call, *, was_sent: bool) -> UpstreamAnswer | Answer:
        """`was_sent`: an earlier sending may have had its effect."""
        sent_before = was_sent

        async def attempt() -> UpstreamAnswer:
            nonlocal was_sent, sent_before
            sent_before = was_sent
            try:
                answer = await call()
            except UpstreamError as error:
                was_sent = was_sent or not isinstance(error, UpstreamUnavailable)
                raise
            was_sent = True
            return answer

        try:
            answer = await persist(attempt)
        except UpstreamError as error:
            _log.warn("gateway.repeat.failed", service=self._service, reason=error.detail)
            self._count("failed")
            raise
        self._count("failed" if is_failure(answer) else "answered")
        first_answer = self._repeat.first_answer
        first = first_answer(request, answer.status, answer.body) if sent_before and first_answer else None
        return first or answer

    def _count(self, outcome: str) -> None:
        self._counted.labels(self._service, outcome).inc()


async def _soon(
    task: "asyncio.Task[UpstreamAnswer | Answer] | None",
) -> UpstreamAnswer | Answer | None:
    """What the task comes to while the client waits; it goes on without it."""
    if task is None:
        return None
    done, _ = await asyncio.wait((task,), timeout=CLIENT_WAITS_S)
    return None if not done or task.exception() is not None else task.result()
