"""Multipart bodies parsed as they come in: bytes go in, the beginnings, contents and ends of parts come out.

    PREAMBLE --boundary--> LINE --line end--> HEAD --empty line--> CONTENT --boundary--> LINE ...
    PREAMBLE, CONTENT --boundary and two dashes--> EPILOGUE

What Go's reader takes is taken here: any preamble and epilogue, white space after a boundary, and bare line feeds
throughout if the first delimiter ends with one. Work is linear in the input, and memory is bounded by one head.
"""

import re
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.common.errors import HoldfastError

HEAD_BYTES_MAX: Final = 16 << 10
PARTS_MAX: Final = 128
AROUND_BYTES_MAX: Final = 64 << 10
"""Of preamble and epilogue together, which are skipped."""
_LINE_BYTES_MAX: Final = 256
"""Of white space after a boundary."""

_PLAIN_HEAD_BYTES_MAX: Final = 512

_find_head_end = re.compile(rb"\n\r?\n").search
_match_line_end = re.compile(rb"[ \t]{0,255}+(\r?\n)").match
_is_line_begun = re.compile(rb"[ \t]{0,255}+\r?").fullmatch


class PartBegin(NamedTuple):
    """The head of a part was read."""

    name: str


class PartEnd(NamedTuple):
    """The boundary after a part was read: its content is complete."""


Event = PartBegin | bytes | PartEnd
"""Bytes are content of the part that began last."""


class _Place(Enum):
    PREAMBLE = "preamble"
    LINE = "line"
    HEAD = "head"
    CONTENT = "content"
    EPILOGUE = "epilogue"


class _Follower(Enum):
    """What stands behind something that looks like a boundary."""

    UNKNOWN = "not there yet"
    DATA = "it was no boundary"
    DASHES = "it was the last one"
    LINE = "the rest of its line"


class MultipartReader:
    """Takes one body apart. Raises MultipartError as soon as it is broken beyond reading."""

    def __init__(self, boundary: bytes, *, parts_max: int = PARTS_MAX) -> None:
        self._boundary = boundary
        self._parts_max = parts_max
        self._delimiter = b"\n--" + boundary
        self._line_end = b"\n"  # From the first delimiter on that which it had.
        self._place = _Place.PREAMBLE
        self._input = bytearray(b"\n")  # The first delimiter may be the first line of the body.
        self._skipped_bytes = 0
        self._looked_bytes = 0
        self._lead_bytes = 0
        self.parts = 0

    def feed(self, data: bytes) -> list[Event]:
        """What the next bytes of the body tell."""
        events: list[Event] = []
        self._input += data
        while self._step(events):
            pass
        return events

    def finish(self) -> None:
        """The body has ended: so must have its last part."""
        if self._place is not _Place.EPILOGUE:
            raise MultipartError("multipart: the body ends before its closing delimiter")

    def _step(self, events: list[Event]) -> bool:
        """Do what the input allows; False when more of it is needed."""
        match self._place:
            case _Place.PREAMBLE:
                return self._skip_preamble()
            case _Place.LINE:
                return self._end_line()
            case _Place.HEAD:
                return self._read_head(events)
            case _Place.CONTENT:
                return self._read_content(events)
            case _Place.EPILOGUE:
                self._skip(len(self._input))
                return False

    def _skip_preamble(self) -> bool:
        found = self._input.find(self._delimiter)
        if found < 0:
            self._skip(len(self._input) - len(self._delimiter) + 1)
            return False
        self._skip(found)
        follower = self._follower(0)
        if follower is _Follower.DATA:
            self._skip(1)
        elif follower is not _Follower.UNKNOWN:
            self._pass_boundary(follower, len(self._delimiter))
        return follower is not _Follower.UNKNOWN

    def _pass_boundary(self, follower: _Follower, end: int) -> None:
        del self._input[:end]
        self._place = _Place.LINE if follower is _Follower.LINE else _Place.EPILOGUE

    def _follower(self, found: int) -> _Follower:
        at = found + len(self._delimiter)
        next_two = bytes(self._input[at : at + 2])
        if next_two == b"--":
            return _Follower.DASHES
        if next_two in (b"", b"-"):
            return _Follower.UNKNOWN
        return _Follower.LINE if next_two[0] in b" \t\r\n" else _Follower.DATA

    def _end_line(self) -> bool:
        line_end = _match_line_end(self._input)
        if line_end is not None:
            return self._begin_part(line_end[1], line_end.end())
        if len(self._input) < _LINE_BYTES_MAX and _is_line_begun(self._input):
            return False
        if self.parts:
            raise MultipartError("multipart: something stands behind a boundary on its line")
        self._place = _Place.PREAMBLE
        return True

    def _begin_part(self, line_end: bytes, line_bytes: int) -> bool:
        if not self.parts:
            self._line_end = line_end
            self._delimiter = line_end + b"--" + self._boundary
        elif line_end != self._line_end:
            raise MultipartError("multipart: a delimiter ends with another line end than the first one")
        self.parts += 1
        if self.parts > self._parts_max:
            raise MultipartError(f"multipart: more than {self._parts_max} parts")
        self._input[:line_bytes] = b"\n"  # So that an empty head ends as any other, with an empty line.
        self._looked_bytes = 0
        self._place = _Place.HEAD
        return True

    def _read_head(self, events: list[Event]) -> bool:
        end = _find_head_end(self._input, max(0, self._looked_bytes - 2))
        if (len(self._input) if end is None else end.start()) > HEAD_BYTES_MAX:
            raise MultipartError(f"multipart: the headers of a part exceed {HEAD_BYTES_MAX} bytes")
        if end is None:
            self._looked_bytes = len(self._input)
            return False
        events.append(PartBegin(part_name(bytes(self._input[1 : end.start()]))))
        # The line end leads the content: a part without any may have its delimiter right there.
        self._input[: end.end()] = self._line_end
        self._lead_bytes = len(self._line_end)
        self._place = _Place.CONTENT
        return True

    def _read_content(self, events: list[Event]) -> bool:
        size_bytes = len(self._delimiter)
        found = self._input.find(self._delimiter)
        if found < 0:
            self._give(events, len(self._input) - size_bytes + 1)
            return False
        follower = self._follower(found)
        if follower is _Follower.DATA:
            self._give(events, found + size_bytes)
            return True
        given_bytes = self._give(events, found)
        if follower is _Follower.UNKNOWN:
            return False
        events.append(PartEnd())
        self._pass_boundary(follower, found - given_bytes + size_bytes)
        return True

    def _give(self, events: list[Event], end: int) -> int:
        """Content up to `end`, without the line end that led it; how much input it took."""
        if end <= self._lead_bytes:
            return 0
        events.append(bytes(self._input[self._lead_bytes : end]))
        del self._input[:end]
        self._lead_bytes = 0
        return end

    def _skip(self, size_bytes: int) -> None:
        if size_bytes <= 0:
            return
        self._skipped_bytes += size_bytes
        if self._skipped_bytes > AROUND_BYTES_MAX:
            raise MultipartError(f"multipart: more than {AROUND_BYTES_MAX} bytes around the parts")
        del self._input[:size_bytes]


def plain_parts(body: bytes, boundary: bytes) -> tuple[bytes, bytes] | None:
    """Meta and payload of a whole body in the plainest form, which nearly all have; None for every other form.

    Only a body beyond doubt is taken: `meta`, then `payload`, nothing around them. Every other body, right or
    wrong, is for the reader.
    """
    delimiter = b"\r\n--" + boundary
    first = len(delimiter) - 2
    if not (body.startswith(delimiter[2:]) and body.startswith(b"\r\n", first)):
        return None
    meta_head_end = body.find(b"\r\n\r\n", first + 2, first + _PLAIN_HEAD_BYTES_MAX)
    if meta_head_end < 0:
        return None
    meta_end = body.find(delimiter, meta_head_end + 4)
    second = meta_end + len(delimiter)
    if meta_end < 0 or not body.startswith(b"\r\n", second):
        return None
    head_end = body.find(b"\r\n\r\n", second + 2, second + _PLAIN_HEAD_BYTES_MAX)
    if head_end < 0:
        return None
    end = body.find(delimiter, head_end + 4)
    if end < 0 or body[end + len(delimiter) :] not in (b"--\r\n", b"--"):
        return None
    if (
        part_name(body[first + 2 : meta_head_end]) != "meta"
        or part_name(body[second + 2 : head_end]) != "payload"
    ):
        return None
    return body[meta_head_end + 4 : meta_end], body[head_end + 4 : end]


def plain_batch(body: bytes, boundary: bytes) -> list[tuple[bytes, bytes]] | None:
    """The same for many messages: meta and payload in turn, none without the other."""
    delimiter = b"\r\n--" + boundary
    first, *parts = (b"\r\n" + body).split(delimiter)
    if first or len(parts) % 2 == 0 or parts.pop() not in (b"--\r\n", b"--"):
        return None
    contents: list[bytes] = []
    for number, part in enumerate(parts):
        head, gap, content = part.partition(b"\r\n\r\n")
        if not gap or not head.startswith(b"\r\n") or len(head) > _PLAIN_HEAD_BYTES_MAX:
            return None
        if part_name(head[2:]) != ("payload" if number % 2 else "meta"):
            return None
        contents.append(content)
    return list(zip(contents[::2], contents[1::2], strict=True))


BOUNDARY_CHARS_MAX: Final = 70  # RFC 2046

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE: Final = r'"(?:[^"\\]|\\.)*+"'
_match_first = re.compile(r"\s*([^\s;]*)\s*", re.DOTALL).match
# A bare value may have more characters than a token: clients forget to quote a boundary with a slash or an equals sign.
_match_parameter = re.compile(rf";\s*({_TOKEN})\s*=\s*({_VALUE}|(?!\")[^\s;\"]*)\s*", re.DOTALL).match
_unescaped = re.compile(r"\\(.)", re.DOTALL).sub
_is_boundary = re.compile(r"[\x20-\x7e]{0,69}[\x21-\x7e]").fullmatch


class InvalidContentType(HoldfastError):
    """The body of an enqueue has to be multipart."""

    code, status = "invalid_content_type", 400


class MultipartError(HoldfastError):
    """The multipart framing is broken: no boundary, a malformed or too large header, too many parts, or no end."""

    code, status = "multipart_error", 400


def boundary_of(content_type: str | None) -> bytes:
    """The boundary of a multipart body, from its Content-Type."""
    kind, parameters = parameters_of(content_type or "")
    if not kind.startswith("multipart/"):
        raise InvalidContentType("multipart form required")
    boundary = parameters.get("boundary", "")
    if not boundary:
        raise MultipartError("multipart: boundary is empty")
    if not _is_boundary(boundary):
        raise MultipartError(
            f"multipart: a boundary has 1 to {BOUNDARY_CHARS_MAX} printable characters, the last one no space"
        )
    return boundary.encode("ascii")


def parameters_of(text: str) -> tuple[str, dict[str, str]]:
    """The value in lower case and its parameters; the first of a repeated one counts, and reading ends at nonsense."""
    first = _match_first(text)
    assert first is not None
    parameters: dict[str, str] = {}
    parameter = _match_parameter(text, first.end())
    while parameter is not None:
        name, value = parameter.groups()
        if value.startswith('"'):
            value = _unescaped(r"\1", value[1:-1])
        parameters.setdefault(name.lower(), value)
        parameter = _match_parameter(text, parameter.end())
    return first[1].lower(), parameters


@lru_cache(maxsize=256)
def part_name(head: bytes) -> str:
    """The name of the part with this head; empty if it has none. A client's parts have the same few heads for ever."""
    disposition = _headers(head).get("content-disposition", "")
    kind, parameters = parameters_of(disposition)
    return parameters.get("name", "") if kind == "form-data" else ""


def _headers(head: bytes) -> dict[str, str]:
    """The headers by lower-case name; the first of a repeated one counts."""
    headers: dict[str, str] = {}
    last = ""
    for line in head.decode("utf-8", "replace").replace("\r\n", "\n").split("\n"):
        if not line:
            continue
        if line[0] in " \t":  # A continuation of the header before.
            if not last:
                raise MultipartError("multipart: the headers of a part begin with white space")
            headers[last] += " " + line.strip()
            continue
        name, colon, value = line.partition(":")
        if not colon or not re.fullmatch(_TOKEN, name):
            raise MultipartError("multipart: a header of a part is malformed")
        last = name.lower()
        if last in headers:
            last = f"{last} "  # Kept apart, so that its continuation does not go to the one that counts.
        headers[last] = value.strip()
    return headers
