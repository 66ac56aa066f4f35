"""A piece of the user's text that knows where it stood, and the scan that cuts text at its separators."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.lql.errors import LqlError

# A character that a backslash makes inert, or a quoted text. No alternative can step back into another.
QUOTED = r"""\\.|"(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+'"""
_OUTSIDE = re.compile(rf"""(?:{QUOTED}|[^\\"'{{}},\n]++)*+""", re.DOTALL)
_INSIDE = re.compile(rf"""(?:{QUOTED}|[^\\"'{{}}]++)*+""", re.DOTALL)


class Fragment(NamedTuple):
    """Text and the position of its first character in what the user wrote."""

    text: str
    position: int = 0

    def stripped(self) -> "Fragment":
        left = self.text.lstrip()
        return Fragment(left.rstrip(), self.position + len(self.text) - len(left))

    def part(self, start: int, end: int | None = None) -> "Fragment":
        return Fragment(self.text[start:end], self.position + start)


def split_outside(fragment: Fragment, error: Callable[..., LqlError]) -> list[Fragment]:
    """The pieces between commas and newlines outside quotes and braces, trimmed, without the empty ones.

    A backslash makes the next character inert; both stay.
    """
    pieces: list[Fragment] = []
    start = 0
    for end in _ends(fragment, error):
        if end > start:
            piece = fragment.part(start, end).stripped()
            if piece.text:
                pieces.append(piece)
        start = end + 1
    return pieces


def _ends(fragment: Fragment, error: Callable[..., LqlError]) -> Iterator[int]:
    """Where pieces end: at separators and at the end of the text."""
    text, at = fragment.text, 0
    open_braces: list[int] = []
    while True:
        skipped = (_INSIDE if open_braces else _OUTSIDE).match(text, at)
        at = skipped.end() if skipped else at
        mark = text[at : at + 1]
        if mark == "{":
            open_braces.append(at)
        elif mark == "}":
            if not open_braces:
                raise error("a brace is closed that was not opened", position=fragment.position + at)
            open_braces.pop()
        elif mark in ("", "\\") and at >= len(text) - 1:
            break  # A last backslash has nothing to protect.
        elif mark in (",", "\n"):
            yield at
        else:
            raise error(
                f"the quote {mark} is not closed",
                position=fragment.position + at,
                hint="close it, or put the text into quotes of the other kind",
            )
        at += 1
    if open_braces:
        raise error("a brace is not closed", position=fragment.position + open_braces[-1], hint="add }")
    yield len(text)


def unquoted(text: str) -> str:
    """Without one pair of equal surrounding quotes; backslashes are plain characters."""
    return text[1:-1] if is_quoted(text) else text


def is_quoted(text: str) -> bool:
    return len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
