"""Header values with parameters, as multipart uses them: the boundary of a body, the name of a part."""

import re
from functools import lru_cache
from typing import Final

from holdfast.common.errors import HoldfastError

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
