"""Proxied streams that would not end by themselves end when the gateway drains, as in the plane in one process.

A request that still waits for its answer is refused as draining. A stream ends behind its last whole message or event: a subscription
with its closing delimiter, as if its service had ended it. The call behind is cancelled either way.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import wraps
from typing import NamedTuple

from holdfast.common.errors import Draining
from holdfast.common.express.message import AnyAnswer, Header, Request, StreamAnswer
from holdfast.common.express.route import Route
from holdfast.common.express.stream import close
from holdfast.common.express.traits import Duration
from holdfast.common.serving.drain import Drain, Waits


class Ending(NamedTuple):
    """How a stream of messages may end: right behind `mark`, with `closing`."""

    mark: bytes
    closing: bytes = b""


class StreamEnds:
    """Ends the proxied streams of a gateway with it."""

    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        self._waits = Waits(drain)

    def ended(self, route: Route) -> Route:
        """The same route, whose answers are neither waited for nor passed on longer than the gateway lives."""
        if not route.traits.duration.ends_with_drain:
            return route
        passed = route.handler

        @wraps(passed)
        async def handler(request: Request, body: None) -> AnyAnswer:
            self._drain.refuse_new_work()
            try:
                answer = await self._waits.until_drain(passed(request, body))
            except Draining:
                self._drain.refuse_new_work()
                raise
            if isinstance(answer, StreamAnswer) and route.traits.duration is Duration.ENDLESS:
                return self._ended_stream(answer)
            return answer

        return replace(route, handler=handler)

    def _ended_stream(self, answer: StreamAnswer) -> StreamAnswer:
        chunks = EndedChunks(answer, ending_of(answer.headers), self._drain, self._waits)
        return StreamAnswer(
            answer.status,
            answer.headers,
            answer.size_bytes,
            chunks,
            answer.trailers,
            is_endless=answer.is_endless,
        )


class EndedChunks(AsyncIterator[bytes]):
    """The chunks of a stream, to where it may end once the server drains."""

    def __init__(self, passed: StreamAnswer, ending: Ending, drain: Drain, waits: Waits) -> None:
        self._passed = passed
        self._ending = ending
        self._drain = drain
        self._waits = waits
        self._tail = b""
        self._is_last = False
        self._is_over = False

    async def __anext__(self) -> bytes:
        if self._is_over:
            raise StopAsyncIteration
        try:
            chunk = await self._next()
        except Draining:
            self._is_over = True
            await self.aclose()
            return self._ending.closing
        self._tail = (self._tail + chunk)[-len(self._ending.mark) :]
        return chunk

    async def _next(self) -> bytes:
        if self._tail != self._ending.mark:
            return await anext(self._passed.chunks)  # What has begun is passed on to its end.
        if self._is_last:
            raise Draining
        # What came before the drain is passed on still: its service holds it for delivered.
        self._is_last = self._drain.is_draining
        return await self._waits.until_drain(anext(self._passed.chunks))

    async def aclose(self) -> None:
        await close(self._passed)


def ending_of(headers: Sequence[Header]) -> Ending:
    """Services send the delimiter behind a message at once, and no writer of messages can guess a boundary."""
    content_type = next((value for name, value in headers if name == b"content-type"), b"")
    kind, _, boundary = content_type.partition(b"; boundary=")
    if kind == b"multipart/related":
        return Ending(b"\r\n--" + boundary, b"--\r\n")
    return Ending(b"\n\n" if kind == b"text/event-stream" else b"\n")
