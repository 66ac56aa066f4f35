"""JSON pointers with wildcards: text in, decoded segments out."""

import re
from dataclasses import dataclass, field
from enum import Enum

from holdfast.lql.errors import InvalidSelector, quoted
from holdfast.lql.number import parse_integer

SEGMENTS_MAX = 256


class Wildcard(Enum):
    """A segment that selects many values."""

    MEMBERS = "*"
    ELEMENTS = "[]"
    CHILDREN = "**"
    DESCENDANTS = "..."


Segment = str | Wildcard

_WILDCARDS = {wildcard.value: wildcard for wildcard in Wildcard}
_ESCAPE = re.compile("~[01]")
_ESCAPED = {"~0": "~", "~1": "/"}


class PointerSyntaxError(ValueError):
    """The text is no pointer; the message says why, the caller's own error says where."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where in a document. `text` is as the user wrote it; without segments it is the document itself."""

    text: str
    segments: tuple[Segment, ...] = field(compare=False)

    @property
    def wildcard_count(self) -> int:
        return sum(not isinstance(segment, str) for segment in self.segments)

    @property
    def is_root(self) -> bool:
        return not self.segments


ROOT = Pointer("", ())


def parse_pointer(text: str) -> Pointer:
    """Trimmed; `/` and the empty text are the root. Raises PointerSyntaxError."""
    text = text.strip()
    if text in ("", "/"):
        return ROOT
    if not text.startswith("/"):
        raise PointerSyntaxError(f"the pointer {quoted(text)} does not start with /")
    # Counted before anything is built: every segment but the sugar [] costs a slash.
    if text.count("/") + text.count("[]") > SEGMENTS_MAX:
        raise PointerSyntaxError(f"the pointer {quoted(text)} has more than {SEGMENTS_MAX} segments")
    return Pointer(text, _segments(text))


def selector_pointer(text: str, position: int | None = None) -> Pointer:
    try:
        return parse_pointer(text)
    except PointerSyntaxError as error:
        raise InvalidSelector(
            str(error), position=position, hint="write it like /status or /items/0/sku"
        ) from None


def _segments(text: str) -> tuple[Segment, ...]:
    found: list[Segment] = []
    for raw in text.split("/")[1:]:
        name, sugar_count = raw, 0
        while name.endswith("[]"):
            name, sugar_count = name[:-2], sugar_count + 1
        if name or not sugar_count:
            found.append(_WILDCARDS.get(name) or (_unescaped(name) if "~" in name else name))
        found.extend([Wildcard.ELEMENTS] * sugar_count)
    return tuple(found)


def _unescaped(name: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED[match[0]], name)


def array_index(segment: str) -> int | None:
    """The element a segment names: a decimal integer as Go reads it; negative ones name none."""
    index = parse_integer(segment)
    return index if index is not None and index >= 0 else None


def escaped(name: str) -> str:
    """A member's name as one segment of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")
