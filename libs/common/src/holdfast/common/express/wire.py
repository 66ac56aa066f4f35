"""Answers as bytes: the lane and ASGI send the same headers in the same order because both get them here."""

import re
from http import HTTPStatus
from typing import Final

from holdfast.common.express.message import (
    JSON_HEADERS,
    Answer,
    AnyAnswer,
    Header,
    ProxiedResponse,
    StreamAnswer,
    parse_header_lines,
)
from holdfast.common.logging import get_logger
from holdfast.common.wire_errors import error_answer, internal_error

_log = get_logger("api.http.server")

_bad_name = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z]").search
_bad_value = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search

_JSON_HEAD: Final = b"content-type: application/json\r\n"
_CLOSE: Final = b"connection: close\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_BODILESS: Final = frozenset({204, 304})


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
        return error_answer(internal_error())
    if answer.status in _BODILESS and answer.body:
        _log.error("http.answer.unexpected_body", status=answer.status, cid=correlation_id)
        return error_answer(internal_error())
    return answer


def header_list(answer: AnyAnswer, correlation_id: str) -> list[Header]:
    """All headers of a checked answer but those of the connection (date, shutdown-imminent, connection)."""
    passed = answer.header_lines if isinstance(answer, ProxiedResponse) else None
    headers = list(answer.headers) if passed is None else parse_header_lines(passed)
    size_bytes = answer.size_bytes if isinstance(answer, StreamAnswer) else len(answer.body)
    if answer.status not in _BODILESS and size_bytes is not None:
        headers.append((b"content-length", str(size_bytes).encode()))
    if not _has_own_id(headers):
        headers.append((b"x-correlation-id", correlation_id.encode("ascii")))
    return headers


def _has_own_id(headers: list[Header]) -> bool:
    """An answer may bring a correlation id of its own: that of the message it delivers, not of the request."""
    return any(name == b"x-correlation-id" for name, _ in headers)


def render(answer: Answer, correlation_id: str, common_head: bytes, *, is_last: bool) -> bytes:
    """The whole answer in one piece; `common_head` holds the lines that every answer of this moment has."""
    identity = b"x-correlation-id: %b\r\n" % correlation_id.encode("ascii")
    if isinstance(answer, ProxiedResponse):
        head = answer.header_lines
    elif answer.headers is JSON_HEADERS and answer.status not in _BODILESS:
        head = _JSON_HEAD
    else:
        answer = checked(answer, correlation_id)
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
    lines = [b"%b: %b\r\n" % (name.lower(), value) for name, value in header_list(answer, correlation_id)]
    close = _CLOSE if is_last else b""
    chunked = _CHUNKED if answer.size_bytes is None else b""
    if chunked and answer.trailers:
        lines.append(b"trailer: %b\r\n" % b", ".join(answer.trailers))
    return b"".join([STATUS_LINES[answer.status], common_head, *lines, close, chunked, b"\r\n"])


def render_stream_end(answer: StreamAnswer) -> bytes:
    """What follows the last chunk."""
    lines = [b"%b: %b\r\n" % trailer for trailer in answer.trailers.items() if not _bad_value(trailer[1])]
    return b"".join([b"0\r\n", *lines, b"\r\n"])
