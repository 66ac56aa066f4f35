"""Documents as values that keep the spelling of their numbers, and back to JSON."""

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import cast

from holdfast.lql.errors import InvalidDocument
from holdfast.lql.number import json_number

NESTING_MAX = 10_000


class Number(str):
    """A JSON number, as it is spelled."""

    __slots__ = ()


Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]
"""Number is a str. int and float are read too, for values that were not made by parse_document."""


def parse_document(data: bytes | str) -> Value:
    """The value of a JSON text. Of members with one name the last one counts. Raises InvalidDocument."""
    try:
        text = data if isinstance(data, str) else data.decode()
        return _parse(text)
    except ValueError as error:
        raise InvalidDocument(f"the document is no JSON: {error}") from None


def _parse(text: str) -> Value:
    try:
        return cast(Value, _DECODER.decode(text))
    except RecursionError:
        return _parse_deep(text)


def _refuse(name: str) -> Value:
    raise ValueError(f"{name} is no JSON number")


# json.loads makes one for every document, which takes as long as reading a small one.
_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse)


class _Next(Enum):
    """What may follow in a JSON text."""

    VALUE = auto()
    VALUE_OR_END = auto()
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    COMMA_OR_END = auto()


_TOKEN = re.compile(
    r"""[ \t\r\n]*+([{}\[\],:]|"(?:[^"\\]|\\.)*+"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"""
    r"""|true|false|null)[ \t\r\n]*+""",
    re.DOTALL,
)
_CONSTANTS: Mapping[str, Value] = {"true": True, "false": False, "null": None}
_MAY_CLOSE = (_Next.COMMA_OR_END, _Next.VALUE_OR_END, _Next.KEY_OR_END)


def _parse_deep(text: str) -> Value:
    """Slower than json's scanner, which calls itself for every level, and bounded by NESTING_MAX instead of the stack."""
    root: list[Value] = []
    containers: list[list[Value] | dict[str, Value]] = [root]
    key, following = "", _Next.VALUE
    for token in _tokens(text):
        inner = containers[-1]
        if following in (_Next.VALUE, _Next.VALUE_OR_END) and token not in ("]", "}", ",", ":"):
            value = _token_value(token)
            if isinstance(inner, dict):
                inner[key] = value
            else:
                inner.append(value)
            following = _Next.COMMA_OR_END
            if isinstance(value, list | dict):
                following = _Next.KEY_OR_END if isinstance(value, dict) else _Next.VALUE_OR_END
                containers.append(value)
                if len(containers) > NESTING_MAX + 1:
                    raise ValueError(f"nested more than {NESTING_MAX} deep")
        elif following in (_Next.KEY, _Next.KEY_OR_END) and token[0] == '"':
            key, following = cast(str, json.loads(token)), _Next.COLON
        elif following is _Next.COLON and token == ":":
            following = _Next.VALUE
        elif following is _Next.COMMA_OR_END and token == "," and inner is not root:
            following = _Next.KEY if isinstance(inner, dict) else _Next.VALUE
        elif (
            following in _MAY_CLOSE
            and inner is not root
            and token == ("}" if isinstance(inner, dict) else "]")
        ):
            containers.pop()
            following = _Next.COMMA_OR_END
        else:
            raise ValueError(f"unexpected {token[:20]}")
    if len(containers) > 1 or not root:
        raise ValueError("it ends too early")
    return root[0]


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"unexpected character {at + 1}")
        yield match[1]
        at = match.end()


def _token_value(token: str) -> Value:
    if token[0] == '"':
        return cast(str, json.loads(token))
    if token in "{[":
        return {} if token == "{" else []
    return _CONSTANTS[token] if token in _CONSTANTS else Number(token)


def encode_document(value: Value, *, indent: int = 0, sort_keys: bool = False) -> bytes:
    """Compact JSON, or lines indented by `indent` spaces per level; numbers as they are spelled."""
    return "".join(_encoded(value, indent, sort_keys)).encode()


def encode_text(text: str) -> bytes:
    """A JSON string. Halves of characters, which UTF-8 cannot carry, stay escaped."""
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(text).encode()


def _encoded(value: Value, indent: int, sort_keys: bool) -> Iterator[str]:
    """Pieces of text; a stack of what is still to come instead of calls, because documents may be deep."""
    stack: list[tuple[Iterator[tuple[str, Value]], str, int]] = []
    todo: tuple[str, Value] | None = ("", value)
    count = 0
    while True:
        if todo is not None:
            prefix, item = todo
            yield prefix
            if isinstance(item, dict | list) and item:
                yield "{" if isinstance(item, dict) else "["
                stack.append(
                    (
                        _children(item, sort_keys, ": " if indent else ":"),
                        "}" if isinstance(item, dict) else "]",
                        count,
                    )
                )
                count = 0
            else:
                yield _scalar(item)
        if not stack:
            return
        children, end, outer_count = stack[-1]
        todo = next(children, None)
        if todo is None:
            stack.pop()
            yield _line(indent, len(stack)) + end
            count = outer_count
        else:
            yield ("," if count else "") + _line(indent, len(stack))
            count += 1


def _children(
    value: list[Value] | dict[str, Value], sort_keys: bool, colon: str
) -> Iterator[tuple[str, Value]]:
    if isinstance(value, list):
        return (("", item) for item in value)
    items = sorted(value.items()) if sort_keys else value.items()
    return ((encode_text(key).decode() + colon, item) for key, item in items)


def _line(indent: int, depth: int) -> str:
    return "\n" + " " * (indent * depth) if indent else ""


def _scalar(value: Value) -> str:
    if isinstance(value, Number):
        return value
    if isinstance(value, str):
        return encode_text(value).decode()
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return json_number(value)
    return "{}" if isinstance(value, dict) else "[]"
