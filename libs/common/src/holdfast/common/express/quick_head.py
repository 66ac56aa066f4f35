"""Recognises the plainest form of a request, which nearly all hot requests have, without a parser's callbacks.

Only a whole request that arrives in one piece and is beyond doubt is taken: an exact request line of a known route,
well-formed headers of printable ASCII, at most one Content-Length, none of the headers that change how the connection
works. Everything else, right or wrong, goes to the real parser, which alone decides what is malformed.
"""

import re
from dataclasses import dataclass
from typing import Final

from holdfast.common.express.route import Route, Table

_OTHER: Final = (
    rb"(?!(?i:content-length|transfer-encoding|connection|expect|upgrade|te|trailer|x-correlation-id):)"
    rb"[0-9A-Za-z!#$%&'*+.^_`|~-]++: (?! )[\x20-\x7e]++(?<! )\r\n"
)
_LENGTH: Final = rb"(?i:content-length): ([0-9]{1,6})\r\n"
_CORRELATION: Final = rb"(?i:x-correlation-id): (?! )([\x20-\x7e]{1,128})(?<! )\r\n"
_match_headers = re.compile(
    rb"(?:%(other)b)*+(?:%(length)b(?:%(other)b)*+)?+(?:%(correlation)b(?:%(other)b)*+)?+(?:%(length)b(?:%(other)b)*+)?+\r\n"
    % {b"other": _OTHER, b"length": _LENGTH, b"correlation": _CORRELATION}
).match
_is_plain_query = re.compile(rb"[!$-~]*").fullmatch

LINE_BYTES_MAX: Final = 2048
HEAD_BYTES_MAX: Final = 700
"""Short enough that the limits of the real parser on size and number of headers cannot be reached."""


@dataclass(slots=True)
class QuickHead:
    """The head of a plain request. Another request that begins with the same bytes and has this size is as plain."""

    head: bytes
    size: int
    route: Route
    method: str
    query: bytes
    correlation_id: str | None
    header_lines: bytes


class RequestLines:
    """The request lines of a table."""

    __slots__ = ("_inline_body_bytes", "_lines", "_starts")

    def __init__(self, table: Table, inline_body_bytes: int) -> None:
        self._inline_body_bytes = inline_body_bytes
        self._starts = {
            method + b" " + path: (route, method.decode("ascii"))
            for path, methods in table.items()
            for method, route in methods.items()
        }
        self._lines = {start + b" HTTP/1.1": found for start, found in self._starts.items()}

    def recognise(self, data: bytes) -> QuickHead | None:
        """The head of the request, when `data` begins with a plain one."""
        line_end = data.find(b"\r\n", 0, LINE_BYTES_MAX)
        line = data[:line_end]
        query = b""
        found = self._lines.get(line)
        if found is None:
            start, question, rest = line.partition(b"?")
            found = self._starts.get(start) if question and rest.endswith(b" HTTP/1.1") else None
            query = rest[:-9]
            if found is None or not _is_plain_query(query):
                return None
        match = _match_headers(data, line_end + 2, line_end + HEAD_BYTES_MAX)
        if match is None:
            return None
        length, correlation, length_later = match.groups()
        if length is None:
            length = length_later
        elif length_later is not None:
            return None
        body_bytes = 0 if length is None else int(length)
        if body_bytes > min(self._inline_body_bytes, found[0].body_limit_bytes):
            return None
        head_end = match.end()
        offered_id = None if correlation is None else correlation.decode("ascii")
        lines = data[line_end + 2 : head_end - 2]
        return QuickHead(data[:head_end], head_end + body_bytes, *found, query, offered_id, lines)
