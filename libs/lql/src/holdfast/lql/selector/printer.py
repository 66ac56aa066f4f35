"""Selector to text that reads as the same selector."""

import re
from collections.abc import Iterator

from holdfast.lql.errors import InexpressibleSelector, InvalidSelector, quoted
from holdfast.lql.fragment import Fragment
from holdfast.lql.number import json_number
from holdfast.lql.pointer import Pointer
from holdfast.lql.selector.term import typed_text
from holdfast.lql.selector.tree import (
    All,
    Alternatives,
    Date,
    Exists,
    In,
    Not,
    Range,
    Selector,
    Term,
    Text,
    TextOperator,
    is_match_all,
)

_QUOTABLE = (re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL), re.compile(r"'(?:[^'\\]|\\.)*+'", re.DOTALL))
_SHORTHAND_FIELD = re.compile(r"/[^\s,=!<>\"'\\{}]*+")
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def print_selector(selector: Selector) -> str:
    """The text, one line if no value holds a newline. Raises InexpressibleSelector."""
    if is_match_all(selector):
        return ""
    if _is_one_clause(selector):
        return _clause(selector)
    if isinstance(selector, All) and all(_is_one_clause(child) for child in selector.children):
        return ",".join(_clause(child) for child in selector.children)
    if isinstance(selector, Not):
        # Each clause that starts with `not` stands alone; below one index they are parts of the same negation.
        return ",".join(_clauses(selector, "and.0."))
    return ",".join(_clauses(selector, ""))


def _is_one_clause(selector: Selector) -> bool:
    while isinstance(selector, Not):
        selector = selector.child
    return is_match_all(selector) or not isinstance(selector, All | Alternatives)


def _clause(selector: Selector) -> str:
    """A negation or a term at the top, as a shorthand where there is one."""
    negated = isinstance(selector, Not)
    term = selector.child if isinstance(selector, Not) else selector
    short = _shorthand(term, negated) if isinstance(term, Text | Range) else None
    return short or next(_clauses(selector, ""))


def _shorthand(term: Text | Range, negated: bool) -> str | None:
    if not _SHORTHAND_FIELD.fullmatch(term.field.text):
        return None
    if isinstance(term, Text):
        if term.operator is not TextOperator.EQ or term.values is None:
            return None
        return f"{term.field.text}{'!=' if negated else '='}{_value(term.values[0])}"
    (name, bound), *others = term.bounds
    if negated or others:
        return None
    return f"{term.field.text}{_SIGNS[name]}{_bound(bound)}"


def _clauses(selector: Selector, path: str) -> Iterator[str]:
    if isinstance(selector, All | Alternatives) and selector.children:
        word = "and" if isinstance(selector, All) else "or"
        for index, child in enumerate(selector.children):
            yield from _clauses(child, f"{path}{word}.{index}.")
    elif isinstance(selector, Not):
        yield from _clauses(selector.child, f"{path}not.")
    elif isinstance(selector, All | Alternatives):
        # Opens the place and constrains nothing.
        yield f"{path}exists"
    else:
        yield f"{path}{_term(selector)}"


def _term(term: Term) -> str:
    if isinstance(term, Exists):
        return f"exists{{{_quoted(_field(term.field))}}}"
    pairs = [("field", _quoted(_field(term.field)))]
    if isinstance(term, In):
        return _braces("in", [*pairs, ("any", _list(term.values))])
    if isinstance(term, Range):
        return _braces("range", [*pairs, *((name, _bound(bound)) for name, bound in term.bounds)])
    if isinstance(term, Date):
        return _braces("date", [*pairs, *((name, _quoted(literal)) for name, literal in term.bounds)])
    if term.is_list:
        pairs.append(("any", _list(term.values or ())))
    elif term.values is not None:
        pairs.append(("value", _value(term.values[0])))
    if term.ignore_case:
        pairs.append(("ignoreCase", "true"))
    return _braces(term.operator, pairs)


def _braces(leaf: str, pairs: list[tuple[str, str]]) -> str:
    return f"{leaf}{{{','.join(f'{key}={value}' for key, value in pairs)}}}"


def _field(pointer: Pointer) -> str:
    return pointer.text or "/"


def _bound(bound: int | float | str) -> str:
    return bound if isinstance(bound, str) else json_number(bound)


def _value(text: str) -> str:
    _check_typed(text)
    return _quoted(text)


def _check_typed(text: str) -> None:
    """Some texts are read as a number or boolean that is spelled differently, quoted or not."""
    try:
        reads_as = typed_text(Fragment(f'"{text}"'))
    except InvalidSelector:
        reads_as = None
    if reads_as != text:
        raise InexpressibleSelector(
            f"selector text cannot carry the value {quoted(text)}", hint="send the selector as JSON"
        )


def _list(items: tuple[str, ...]) -> str:
    for item in items:
        _check_typed(item)
        if not item or item != item.strip() or "|" in item:
            raise InexpressibleSelector(
                f"selector text cannot carry the list item {quoted(item)}", hint="send the selector as JSON"
            )
    if not items:
        raise InexpressibleSelector(
            "selector text cannot carry an empty list", hint="send the selector as JSON"
        )
    return _quoted("|".join(items))


def _quoted(text: str) -> str:
    for quote, pattern in zip("\"'", _QUOTABLE, strict=True):
        if pattern.fullmatch(f"{quote}{text}{quote}"):
            return f"{quote}{text}{quote}"
    raise InexpressibleSelector(
        f"selector text cannot quote {quoted(text)}", hint="send the selector as JSON"
    )
