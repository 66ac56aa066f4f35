"""The entries of a JSON text, token by token: the document is never built, so that a large one fits. Pure."""

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from holdfast.lql.document.value import NESTING_MAX, Number
from holdfast.lql.errors import InvalidDocument
from holdfast.state.layer.index.terms import CONTAINER, NULL, PathNode, Terms

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},:]|[^\s,:\[\]{}"]++', re.DOTALL)
_CONSTANTS: Final = {b"true": "true", b"false": "false"}


class _Container(NamedTuple):
    """`element`: the place of its elements, if it is an array."""

    place: PathNode
    element: PathNode | None


def add_entries(terms: Terms, text: bytes, add: Callable[[bytes], None]) -> None:
    """All that `terms.of_text` makes of a valid text, without its bound. A member that comes twice is told twice."""
    containers: list[_Container] = []
    place, is_name = terms.root, False
    for match in _TOKEN.finditer(text):
        token = match[0]
        first = token[:1]
        if first == b'"' and is_name:
            place, is_name = containers[-1].place.below(_text_of(token)), False
        elif first in b"{[":
            if containers:
                add(place.head + CONTAINER)
            elif first == b"[":
                return  # Nothing but the empty selector matches it.
            if len(containers) == NESTING_MAX:
                raise InvalidDocument(f"the document is nested more than {NESTING_MAX} deep")
            element = place.below(None) if first == b"[" else None
            containers.append(_Container(place, element))
            place, is_name = element or place, element is None
        elif first in b"}]":
            containers.pop()
            is_name = False
        elif first == b",":
            element = containers[-1].element
            place, is_name = element or place, element is None
        elif first != b":":
            if not containers:
                return
            _add_scalar(terms, place, token, add)


def _add_scalar(terms: Terms, place: PathNode, token: bytes, add: Callable[[bytes], None]) -> None:
    if token == b"null":
        add(place.head + NULL)
    elif token in _CONSTANTS:
        add(terms.text_entry(place.head, _CONSTANTS[token]))
    else:
        text = _text_of(token) if token[:1] == b'"' else Number(token.decode())
        terms.add_text(add, place.head, text)


def _text_of(token: bytes) -> str:
    if b"\\" not in token:
        return token[1:-1].decode()
    text: str = json.loads(token)
    return text
