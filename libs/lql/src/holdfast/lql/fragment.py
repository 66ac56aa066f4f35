"""A piece of the user's text that knows where it stood, and the scan that cuts text at its separators."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from holdfast.lql.errors import LqlError

_MARKS = re.compile(r"""\\.|["'{},\n]""", re.DOTALL)


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
    """The pieces between commas and newlines outside quotes and braces, trimmed, without the empty ones."""
    cuts = [-1, *_separators(fragment, error), len(fragment.text)]
    pieces = (fragment.part(start + 1, end).stripped() for start, end in pairwise(cuts))
    return [piece for piece in pieces if piece.text]


def _separators(fragment: Fragment, error: Callable[..., LqlError]) -> Iterator[int]:
    quote, quote_at = "", 0
    open_braces: list[int] = []
    for match in _MARKS.finditer(fragment.text):
        mark, at = match[0], match.start()
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "\"'":
            quote, quote_at = mark, at
        elif mark == "{":
            open_braces.append(at)
        elif mark == "}":
            if not open_braces:
                raise error("a brace is closed that was not opened", position=fragment.position + at)
            open_braces.pop()
        elif mark in ",\n" and not open_braces:
            yield at
    if quote:
        raise error(
            f"the quote {quote} is not closed",
            position=fragment.position + quote_at,
            hint="close it, or put the text into quotes of the other kind",
        )
    if open_braces:
        raise error("a brace is not closed", position=fragment.position + open_braces[-1], hint="add }")


def unquoted(text: str) -> str:
    """Without one pair of equal surrounding quotes; backslashes are plain characters."""
    return text[1:-1] if is_quoted(text) else text


def is_quoted(text: str) -> bool:
    return len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
