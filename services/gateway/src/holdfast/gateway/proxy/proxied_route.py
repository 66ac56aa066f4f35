"""One route of a service as the gateway serves it: the request goes on as it came, the answer comes back as it is."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial, wraps
from typing import Final

from holdfast.common.express.message import (
    Answer,
    AnyAnswer,
    HandOver,
    Header,
    RenderedAnswer,
    Request,
    StreamAnswer,
    may_have_body,
    parse_header_lines,
)
from holdfast.common.express.route import Route
from holdfast.common.express.traits import Duration
from holdfast.common.ids import HEADER as CORRELATION_HEADER
from holdfast.common.security.internal_identity import RESERVED_PREFIX, Signer
from holdfast.common.serving.drain import Drain
from holdfast.common.telemetry.tracing import TRACEPARENT, TRACESTATE, Span, current_span
from holdfast.common.upstream.errors import UpstreamTimeout, UpstreamUnavailable
from holdfast.common.upstream.peer import OnCalledOff
from holdfast.common.upstream.port import RequestStream, UpstreamAnswer
from holdfast.common.upstream.service import ServiceClient
from holdfast.gateway.proxy.affinity import Affinity
from holdfast.gateway.proxy.give_back import GivingBack
from holdfast.gateway.proxy.repetition import Repetition

ANSWER_S_MAX: Final = 60.0
"""For calls that do not wait for anything but the store."""

_SHUTDOWN_HEADER: Final = b"shutdown-imminent"

# Headers that concern the client's connection, or that this process says itself.
_NOT_PASSED_ON: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        CORRELATION_HEADER,
    }
)
_NOT_PASSED_ON_TRACED: Final = _NOT_PASSED_ON | {TRACEPARENT, TRACESTATE}
_NOT_PASSED_BACK: Final = frozenset({CORRELATION_HEADER, _SHUTDOWN_HEADER})


class ProxiedRoute:
    """The way of one route's requests to their service and back."""

    def __init__(
        self,
        route: Route,
        client: ServiceClient,
        signer: Signer,
        drain: Drain,
        affinity: Affinity | None,
        *,
        giving_back: GivingBack | None = None,
        repetition: Repetition | None = None,
    ) -> None:
        assert giving_back is None or route.stream_handler is None, "a body that streams is not called off"
        self._giving_back = giving_back
        self._repetition = repetition
        self._route = route
        self._client = client
        self._signer = signer
        self._drain = drain
        self._affinity = affinity if len(client.peers) > 1 else None
        self._repeatable = route.traits.repeatable
        self._deadline_s = ANSWER_S_MAX if route.traits.duration.has_deadline else None
        self._is_endless = route.traits.duration is Duration.ENDLESS

    def route(self) -> Route:
        """The declaration of the service, with this proxy in the place of its handlers."""
        handler = self._pass_whole
        if self._giving_back is not None:
            handler = self._pass_granting
        elif self._repetition is not None:
            handler = self._pass_repeating

        @wraps(self._route.handler)  # The docs are made from its name and its text.
        def passed(request: Request, body: None) -> Awaitable[AnyAnswer]:
            # Not awaited here: each coroutine in between would cost every hot request.
            return handler(request)

        return replace(
            self._route,
            handler=passed,
            stream_handler=None if self._route.stream_handler is None else self._pass_stream,
            errors=(*self._route.errors, UpstreamUnavailable, UpstreamTimeout),
            is_parsed_by_handler=True,
        )

    async def _pass_whole(self, request: Request) -> AnyAnswer:
        return self._answer(request, await self._call(request, request.body, self._deadline_s))

    async def _pass_granting(self, request: Request) -> AnyAnswer:
        """From the answer to its sending there is no await, so it is either sent or known to be unsent."""
        giving_back = self._giving_back
        assert giving_back is not None
        affinity = b"" if self._affinity is None else self._affinity.of(request)
        on_called_off = partial(giving_back.answer_came_late, affinity)
        answer = await self._call(request, request.body, self._deadline_s, affinity, on_called_off)
        if answer.status != 200:
            return self._answer(request, answer)
        if answer.stream is not None:
            watched = giving_back.watched(affinity, answer.stream, answer.headers)
            return self._stream_answer(answer, request, watched)
        return self._answer(request, answer, partial(giving_back.answer_is_unsent, affinity, answer))

    async def _pass_repeating(self, request: Request) -> AnyAnswer:
        assert self._repetition is not None
        call = partial(self._call, request, request.body, self._deadline_s)
        answer = await self._repetition.answer(request, call)
        return answer if isinstance(answer, Answer) else self._answer(request, answer)

    async def _pass_stream(self, request: Request, chunks: AsyncIterator[bytes]) -> AnyAnswer:
        # No deadline: the answer may only come after the last byte of a body that the client sends at its own pace.
        answer = await self._call(request, RequestStream(chunks, _size_bytes(request)), None)
        return self._answer(request, answer)

    async def _call(
        self,
        request: Request,
        body: bytes | RequestStream,
        deadline_s: float | None,
        affinity: bytes | None = None,
        on_called_off: OnCalledOff | None = None,
    ) -> UpstreamAnswer:
        method, query = request.method, request.query_string
        if affinity is None:
            affinity = b"" if self._affinity is None else self._affinity.of(request)
        target = f"{request.path}?{query.decode('latin-1')}" if query else request.path
        return await self._client.call(
            method,
            target,
            self._headers(request, target, body if isinstance(body, bytes) else None),
            body,
            deadline_s=deadline_s,
            affinity=affinity,
            is_repeatable=method in self._repeatable,
            on_called_off=on_called_off,
        )

    def _headers(self, request: Request, target: str, body: bytes | None) -> bytes:
        """The lines of the request's headers that are passed on, and those of this process."""
        return b"%bx-correlation-id: %b\r\nx-holdfast-internal: %b\r\n" % (
            passed_on(request, current_span.get()),
            request.correlation_id.encode("ascii"),
            self._signer.sign(request.method, target, body, request.principal),
        )

    def _answer(
        self, request: Request, answer: UpstreamAnswer, on_unsent: Callable[[], None] | None = None
    ) -> AnyAnswer:
        lines = answer.header_lines
        if lines is not None and answer.correlation_id == request.correlation_id.encode("ascii"):
            return RenderedAnswer(answer.status, answer.body, lines, on_unsent)
        if request.method == "HEAD" and may_have_body(answer.status):
            return StreamAnswer(
                answer.status, self._passed_back(answer, request), answer.size_bytes, _no_chunks()
            )
        if answer.stream is not None:
            return self._stream_answer(answer, request, answer.stream)
        headers = self._passed_back(answer, request)
        if on_unsent is not None:
            return HandOver(answer.status, answer.body, headers, on_unsent)
        return Answer(answer.status, answer.body, headers)

    def _stream_answer(
        self, answer: UpstreamAnswer, request: Request, chunks: AsyncIterator[bytes]
    ) -> StreamAnswer:
        return StreamAnswer(
            answer.status,
            self._passed_back(answer, request),
            answer.size_bytes,
            _whole_lines(chunks) if self._route.traits.streams_lines else chunks,
            answer.trailers,
            is_endless=self._is_endless,
        )

    def _passed_back(self, answer: UpstreamAnswer, request: Request) -> list[Header]:
        return [header for header in answer.headers if self._is_passed_back(header, request)]

    def _is_passed_back(self, header: Header, request: Request) -> bool:
        """This process has the id and perhaps an end of its own to tell; another id is that of a message."""
        if header[0] not in _NOT_PASSED_BACK:
            return True
        if header[0] == CORRELATION_HEADER:
            return header[1] != request.correlation_id.encode("ascii")
        return header[0] == _SHUTDOWN_HEADER and not self._drain.is_draining


def passed_on(request: Request, span: Span | None) -> bytes:
    """The lines of the headers that go on to the service; with a span, the service is a part of its trace."""
    lines = request.header_lines
    if span is None:  # Nothing is traced here: what the client says of its trace goes on as it came.
        return passed_lines(request.headers) if lines is None else _plain_lines(lines)
    context = b"".join([b"%b: %b\r\n" % header for header in span.context_headers()])
    if lines is None or span.has_parent:  # A client that traces sends other lines every time.
        return passed_lines(request.headers, _NOT_PASSED_ON_TRACED) + context
    return _plain_lines(lines, _NOT_PASSED_ON_TRACED) + context


def passed_lines(headers: Sequence[Header], hidden: frozenset[bytes] = _NOT_PASSED_ON) -> bytes:
    """The lines of the headers that concern more than the client's connection, and that a client may send."""
    for name, value in headers:
        if name == b"connection":
            hidden |= {word.strip().lower() for word in value.split(b",")}
    return b"".join(
        [
            b"%b: %b\r\n" % header
            for header in headers
            if header[0] not in hidden and not header[0].startswith(RESERVED_PREFIX)
        ]
    )


@lru_cache(maxsize=1024)
def _plain_lines(lines: bytes, hidden: frozenset[bytes] = _NOT_PASSED_ON) -> bytes:
    """The same for plain lines: most clients send the same ones again and again."""
    return passed_lines(parse_header_lines(lines), hidden)


async def _whole_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The network joins and cuts chunks as it likes."""
    pieces: list[bytes] = []
    try:
        async for chunk in chunks:
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                yield b"".join([*pieces, line, b"\n"])
                pieces.clear()
            if rest:
                pieces.append(rest)
        if pieces:
            yield b"".join(pieces)
    finally:
        aclose = getattr(chunks, "aclose", None)
        if aclose is not None:
            await aclose()


async def _no_chunks() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk


def _size_bytes(request: Request) -> int | None:
    announced = request.header(b"content-length")
    with suppress(ValueError):
        return None if announced is None else int(announced)
    return None
