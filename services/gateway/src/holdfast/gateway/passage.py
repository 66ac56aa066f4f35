"""One route of a service as the gateway serves it: the request goes on as it came, the answer comes back as it is."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, wraps
from typing import Final

from holdfast.common.correlation import HEADER as CORRELATION_HEADER
from holdfast.common.drain import Drain
from holdfast.common.express.message import (
    Answer,
    AnyAnswer,
    Header,
    PassedAnswer,
    Request,
    StreamAnswer,
    taken_apart,
)
from holdfast.common.express.route import Route
from holdfast.common.express.wire import may_have_body
from holdfast.common.internal_identity import RESERVED_PREFIX, Signer
from holdfast.common.upstream.errors import UpstreamTimeout, UpstreamUnavailable
from holdfast.common.upstream.port import RequestStream, UpstreamAnswer
from holdfast.common.upstream.service import ServiceClient
from holdfast.common.upstream.signed import trace_headers
from holdfast.gateway.routing import Affinity, is_endless, is_repeatable, may_wait

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
_NOT_PASSED_BACK: Final = frozenset({CORRELATION_HEADER, _SHUTDOWN_HEADER})


class Passage:
    """The way of one route's requests to their service and back."""

    def __init__(
        self, route: Route, client: ServiceClient, signer: Signer, drain: Drain, affinity: Affinity
    ) -> None:
        self._route = route
        self._client = client
        self._signer = signer
        self._drain = drain
        self._affinity = affinity if len(client.peers) > 1 else None
        self._repeatable = frozenset(method for method in route.methods if is_repeatable(route.path, method))
        self._deadline_s = None if may_wait(route.path) else ANSWER_S_MAX
        self._is_endless = is_endless(route.path)

    def route(self) -> Route:
        """The declaration of the service, with this passage in the place of its handlers."""

        @wraps(self._route.handler)  # The docs are made from its name and its text.
        async def pass_whole(request: Request, body: None) -> AnyAnswer:
            return self._answer(request, await self._call(request, request.body, self._deadline_s))

        return replace(
            self._route,
            handler=pass_whole,
            stream_handler=None if self._route.stream_handler is None else self._pass_stream,
            errors=(*self._route.errors, UpstreamUnavailable, UpstreamTimeout),
            is_parsed_by_handler=True,
        )

    async def _pass_stream(self, request: Request, chunks: AsyncIterator[bytes]) -> AnyAnswer:
        # No deadline: the answer may only come after the last byte of a body that the client sends at its own pace.
        answer = await self._call(request, RequestStream(chunks, _size_bytes(request)), None)
        return self._answer(request, answer)

    async def _call(
        self, request: Request, body: bytes | RequestStream, deadline_s: float | None
    ) -> UpstreamAnswer:
        method, query = request.method, request.query_string
        target = f"{request.path}?{query.decode('latin-1')}" if query else request.path
        return await self._client.call(
            method,
            target,
            self._headers(request, target, body if isinstance(body, bytes) else None),
            body,
            deadline_s=deadline_s,
            affinity=b"" if self._affinity is None else self._affinity.of(request),
            is_repeatable=method in self._repeatable,
        )

    def _headers(self, request: Request, target: str, body: bytes | None) -> bytes:
        """The lines of the request's headers that are passed on, and those of this process."""
        lines = request.header_lines
        passed_on = passed_lines(request.headers) if lines is None else _plain_lines(lines)
        return b"%b%bx-correlation-id: %b\r\nx-holdfast-internal: %b\r\n" % (
            passed_on,
            _trace_line(),
            request.correlation_id.encode("ascii"),
            self._signer.sign(request.method, target, body, request.peer_certificate),
        )

    def _answer(self, request: Request, answer: UpstreamAnswer) -> AnyAnswer:
        lines = answer.header_lines
        if lines is not None and answer.correlation_id == request.correlation_id.encode("ascii"):
            return PassedAnswer(answer.status, answer.body, lines)
        headers = [header for header in answer.headers if self._is_passed_back(header, request)]
        if request.method == "HEAD" and may_have_body(answer.status):
            return StreamAnswer(answer.status, headers, answer.size_bytes, _no_chunks())
        if answer.stream is not None:
            return StreamAnswer(
                answer.status,
                headers,
                answer.size_bytes,
                answer.stream,
                answer.trailers,
                is_endless=self._is_endless,
            )
        return Answer(answer.status, answer.body, headers)

    def _is_passed_back(self, header: Header, request: Request) -> bool:
        """This process has the id and perhaps an end of its own to tell; another id is that of a message."""
        if header[0] not in _NOT_PASSED_BACK:
            return True
        if header[0] == CORRELATION_HEADER:
            return header[1] != request.correlation_id.encode("ascii")
        return header[0] == _SHUTDOWN_HEADER and not self._drain.is_draining


def passed_lines(headers: Sequence[Header]) -> bytes:
    """The lines of the headers that concern more than the client's connection, and that a client may send."""
    hidden = _NOT_PASSED_ON
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
def _plain_lines(lines: bytes) -> bytes:
    """The same for plain lines: most clients send the same ones again and again."""
    return passed_lines(taken_apart(lines))


def _trace_line() -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in trace_headers()])


async def _no_chunks() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk


def _size_bytes(request: Request) -> int | None:
    announced = request.header(b"content-length")
    with suppress(ValueError):
        return None if announced is None else int(announced)
    return None
