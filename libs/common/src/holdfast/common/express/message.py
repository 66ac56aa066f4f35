"""A request and its answer as the handlers of hot endpoints see them, free of ASGI, and answers as bytes.

The lane and ASGI send the same headers in the same order because both get them here.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from pydantic import BaseModel
from pydantic_core import to_json

from holdfast.common.errors import InvalidRequest
from holdfast.common.logging import get_logger
from holdfast.common.security.principal import ANONYMOUS, Principal
from holdfast.common.telemetry.metrics import OperationMetrics

Header = tuple[bytes, bytes]
Headers = list[Header] | bytes
"""Pairs with lower-case names, or plain lines (`Name: value`, each with its line end) as they came."""

Address = tuple[str, int]
"""Host and port."""

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""A client may invent others; those become neither labels of metrics nor names of spans."""
QUERY_FIELDS_MAX: Final = 256
JSON_HEADERS: Final[list[Header]] = [(b"content-type", b"application/json")]


_is_unescaped = re.compile(rb"(?:[\w./:-]+=[\w./:-]*&){0,15}[\w./:-]+=[\w./:-]*").fullmatch


class Request:
    """One request, complete with its body; header names are lower case, repeated ones stay repeated.

    Its principal may be given as a certificate in DER, or as None for the anonymous one. The address of its client may be given
    as what finds it out: few ask for it. A handler that knows which operation it is, for which namespace, says so with the
    moment at which it begins (of `perf_counter`); it is counted with the answer.
    """

    __slots__ = (
        "_client",
        "_first_values",
        "_headers",
        "_is_asked",
        "_parameters",
        "_principal",
        "body",
        "correlation_id",
        "method",
        "operation",
        "path",
        "query_string",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query_string: bytes,
        headers: Headers,
        body: bytes,
        client: Callable[[], Address | None] | Address | None,
        principal: Principal | bytes | None,
        correlation_id: str,
    ) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        self._headers = headers
        self.body = body
        self._client = client
        self._principal = principal
        self.correlation_id = correlation_id
        self.operation: tuple[OperationMetrics, str, float] | None = None
        self._first_values: dict[bytes, bytes] | None = None
        self._is_asked = False
        self._parameters: dict[str, str] | None = None

    @property
    def client(self) -> Address | None:
        client = self._client
        return client() if callable(client) else client

    @property
    def principal(self) -> Principal:
        """Who makes it; made when it is asked for."""
        principal = self._principal
        if principal is None:
            return ANONYMOUS
        if isinstance(principal, bytes):
            principal = self._principal = Principal.of_certificate(principal)
        return principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal

    @property
    def headers(self) -> list[Header]:
        """All headers in their order; plain header lines are parsed on demand."""
        if isinstance(self._headers, bytes):
            self._headers = parse_header_lines(self._headers)
        return self._headers

    @property
    def raw_headers(self) -> Headers:
        """All headers in whichever form they are now."""
        return self._headers

    @property
    def header_lines(self) -> bytes | None:
        """All headers as they came, one line each, if they came plainly and are not parsed yet."""
        return self._headers if isinstance(self._headers, bytes) else None

    def peek(self, name: bytes) -> bytes | None:
        """The first value of a header without parsing all of them, for callers that need just this one."""
        return first_value(self._headers, name)

    def header(self, name: bytes) -> str | None:
        """The first value of a header (its name in lower case), trimmed; None when it was not sent."""
        values = self._first_values
        if values is None:
            headers = self._headers
            if isinstance(headers, bytes):
                if not self._is_asked:  # Many handlers look at one alone.
                    self._is_asked = True
                    found = first_value(headers, name)
                    return None if found is None else found.decode("latin-1")
                values = first_values(headers)
            else:
                values = dict(reversed(headers))
            self._first_values = values
        value = values.get(name)
        return None if value is None else value.strip().decode("latin-1")

    def query(self, name: str) -> str | None:
        """The first value of a query parameter; None when it was not sent."""
        if self._parameters is None:
            self._parameters = _parse_query(self.query_string) if self.query_string else {}
        return self._parameters.get(name)


def first_value(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header (its name in lower case), trimmed; None when it was not sent."""
    if not isinstance(headers, bytes):
        return next((value.strip() for found, value in headers if found == name), None)
    before, found, _ = (b"\n" + headers.lower()).partition(b"\n" + name + b": ")
    if not found:
        return None
    start = len(before) + len(found) - 1
    return headers[start : headers.index(b"\r", start)]


def first_values(header_lines: bytes) -> dict[bytes, bytes]:
    """The first value of each header of plain lines, by its name in lower case."""
    values: dict[bytes, bytes] = {}
    for line in reversed(header_lines.split(b"\r\n")):
        name, _, value = line.partition(b": ")
        values[name.lower()] = value
    return values


def parse_header_lines(header_lines: bytes) -> list[Header]:
    """The headers of plain lines (`Name: value`, each with its line end), names in lower case."""
    pairs = [line.partition(b": ") for line in header_lines.split(b"\r\n") if line]
    return [(name.lower(), value) for name, _, value in pairs]


def _parse_query(query_string: bytes) -> dict[str, str]:
    if _is_unescaped(query_string):  # Nearly all are; the general way takes several times as long.
        fields = [field.partition("=") for field in query_string.decode("ascii").split("&")]
        return {name: value for name, _, value in reversed(fields)}
    try:
        pairs = parse_qsl(
            query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError as error:
        raise InvalidRequest(f"the query has more than {QUERY_FIELDS_MAX} parameters") from error
    # The first of a repeated name counts, as in Go's url.Values.Get, which the clients were written against.
    return dict(reversed(pairs))


class Answer:
    """What goes back: the lane and ASGI add date, content-length and correlation id themselves."""

    __slots__ = ("body", "headers", "status")

    on_unsent: Callable[[], None] | None = None
    """Takes back what the answer gives away, when the client is gone before it was sent."""

    def __init__(self, status: int, body: bytes = b"", headers: list[Header] | None = None) -> None:
        self.status = status
        self.body = body
        self.headers: list[Header] = [] if headers is None else headers


class HandOver(Answer):
    """An answer that gives something away; `on_unsent` takes it back when the client is gone before it was sent."""

    __slots__ = ("on_unsent",)

    def __init__(
        self, status: int, body: bytes, headers: list[Header], on_unsent: Callable[[], None]
    ) -> None:
        super().__init__(status, body, headers)
        self.on_unsent = on_unsent


class RenderedAnswer(Answer):
    """An answer whose headers are lines already, well-formed and in order: they go out as they are, perhaps many times."""

    __slots__ = ("header_lines", "on_unsent")

    def __init__(
        self, status: int, body: bytes, header_lines: bytes, on_unsent: Callable[[], None] | None = None
    ) -> None:
        self.status = status
        self.body = body
        self.headers = []
        self.header_lines = header_lines
        self.on_unsent = on_unsent


class StreamAnswer:
    """An answer whose body comes in chunks; the sender closes `chunks` at the end, however it ends.

    The head goes out with the first chunk, so an error before that is still answered as one; later the connection
    is dropped. The chunks are of a size that may sit in memory; together they have `size_bytes`, if it is known.

    `trailers` follow the chunks if the size is not known and the lane sends them: plain ASGI has no way to. Their
    names go out with the head, their values may change until the last chunk is made.

    One that `is_endless` waits for what comes next until its client goes away; so an end of the client's input is
    the end of the client: what came next would have no reader.
    """

    __slots__ = ("chunks", "first", "headers", "is_endless", "size_bytes", "status", "trailers")

    def __init__(
        self,
        status: int,
        headers: list[Header],
        size_bytes: int | None,
        chunks: AsyncIterator[bytes],
        trailers: dict[bytes, bytes] | None = None,
        *,
        is_endless: bool = False,
    ) -> None:
        self.status = status
        self.headers = headers
        self.size_bytes = size_bytes
        self.chunks = chunks
        self.first = b""
        self.trailers: dict[bytes, bytes] = trailers or {}
        self.is_endless = is_endless


AnyAnswer = Answer | StreamAnswer


def json_answer(value: object, *, status: int = 200, headers: Iterable[Header] = ()) -> Answer:
    """One compact JSON value and a newline; members that are None are left out."""
    if isinstance(value, BaseModel):
        body = value.__pydantic_serializer__.to_json(
            value, exclude_none=True
        )  # Spares finding out what it is.
    else:
        if isinstance(value, dict):  # The serializer leaves None out of models only.
            value = {name: member for name, member in value.items() if member is not None}
        body = to_json(value)
    return Answer(status, body + b"\n", [*JSON_HEADERS, *headers] if headers else JSON_HEADERS)


def json_with_lines(
    members: dict[str, object], header_lines: bytes, on_unsent: Callable[[], None] | None = None
) -> RenderedAnswer:
    """The same of an object, with more headers as lines: for values that cannot break the framing, such as numbers."""
    body = to_json({name: member for name, member in members.items() if member is not None})
    return RenderedAnswer(200, body + b"\n", _JSON_HEAD + header_lines, on_unsent)


_log = get_logger("api.http.server")

_bad_name = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z]").search
_bad_value = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search

_JSON_HEAD: Final = b"content-type: application/json\r\n"
_CLOSE: Final = b"connection: close\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_BODILESS: Final = frozenset({204, 304})
_INTERNAL_ERROR: Final = b'{"error":"internal_error","detail":"internal server error"}\n'


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


STATUS_LINES: Final = {status: _status_line(status) for status in range(100, 600)}


def bad_header(headers: list[Header]) -> bytes | None:
    """The name of a header that would break the framing of the connection."""
    for name, value in headers:
        if not name or _bad_name(name) or _bad_value(value):
            return name
    return None


def may_have_body(status: int) -> bool:
    """Whether HTTP lets an answer of this status have a body."""
    return status not in _BODILESS


def checked(answer: Answer, correlation_id: str) -> Answer:
    """The answer itself, or a 500 in its place when a header would break the framing of the connection."""
    name = bad_header(answer.headers)
    if name is not None:
        _log.error("http.answer.invalid_header", header=repr(name), cid=correlation_id)
        return Answer(500, _INTERNAL_ERROR, JSON_HEADERS)
    if answer.status in _BODILESS and answer.body:
        _log.error("http.answer.unexpected_body", status=answer.status, cid=correlation_id)
        return Answer(500, _INTERNAL_ERROR, JSON_HEADERS)
    return answer


def header_list(answer: AnyAnswer, correlation_id: str) -> list[Header]:
    """All headers of a checked answer but those of the connection (date, shutdown-imminent, connection)."""
    lines = answer.header_lines if isinstance(answer, RenderedAnswer) else None
    headers = list(answer.headers) if lines is None else parse_header_lines(lines)
    size_bytes = answer.size_bytes if isinstance(answer, StreamAnswer) else len(answer.body)
    if answer.status not in _BODILESS and size_bytes is not None:
        headers.append((b"content-length", str(size_bytes).encode()))
    if not _has_own_id(headers):
        headers.append((b"x-correlation-id", correlation_id.encode("ascii")))
    return headers


def _has_own_id(headers: list[Header]) -> bool:
    """An answer may bring a correlation id of its own: that of the message it delivers, not of the request."""
    return any(name == b"x-correlation-id" for name, _ in headers)


def render_lines(headers: Iterable[Header]) -> bytes:
    """Headers as lines, one each."""
    return b"".join([b"%b: %b\r\n" % (name.lower(), value) for name, value in headers])


def render(answer: Answer, correlation_id: str, common_head: bytes, *, is_last: bool) -> bytes:
    """The whole answer in one piece; `common_head` holds the lines that every answer of this moment has."""
    identity = b"x-correlation-id: %b\r\n" % correlation_id.encode("ascii")
    if isinstance(answer, RenderedAnswer):
        head = answer.header_lines
    elif answer.headers is JSON_HEADERS and answer.status not in _BODILESS:
        head = _JSON_HEAD
    else:
        answer = checked(answer, correlation_id)
        # As `render_lines` does, without the call: this is the way of nearly every answer.
        head = b"".join([b"%b: %b\r\n" % (name.lower(), value) for name, value in answer.headers])
        if _has_own_id(answer.headers):
            identity = b""
    length = b"" if answer.status in _BODILESS else b"content-length: %d\r\n" % len(answer.body)
    return b"%b%b%b%b%b%b\r\n%b" % (
        STATUS_LINES[answer.status],
        common_head,
        head,
        length,
        identity,
        _CLOSE if is_last else b"",
        answer.body,
    )


def render_stream_head(
    answer: StreamAnswer, correlation_id: str, common_head: bytes, *, is_last: bool
) -> bytes:
    """The head of a streamed answer that was begun."""
    lines = render_lines(header_list(answer, correlation_id))
    close = _CLOSE if is_last else b""
    chunked = _CHUNKED if answer.size_bytes is None else b""
    if chunked and answer.trailers:
        lines += b"trailer: %b\r\n" % b", ".join(answer.trailers)
    return b"".join([STATUS_LINES[answer.status], common_head, lines, close, chunked, b"\r\n"])


def render_stream_end(answer: StreamAnswer) -> bytes:
    """What follows the last chunk."""
    lines = [b"%b: %b\r\n" % trailer for trailer in answer.trailers.items() if not _bad_value(trailer[1])]
    return b"".join([b"0\r\n", *lines, b"\r\n"])
