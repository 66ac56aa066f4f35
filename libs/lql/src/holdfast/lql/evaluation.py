"""Does a document match a selector? The selector is compiled once and then asked for many documents."""

import operator
from collections.abc import Callable, Iterable
from decimal import Decimal

from holdfast.lql import temporal
from holdfast.lql.document import Number, Value
from holdfast.lql.number import exact, exact_bound, exact_text, plain_decimal
from holdfast.lql.path import select
from holdfast.lql.selector import (
    All,
    Alternatives,
    Date,
    Exists,
    In,
    Not,
    Range,
    Selector,
    Text,
    TextOperator,
    is_match_all,
)
from holdfast.lql.temporal import Temporal, parse_temporal

Folded = dict[str, str]
"""Texts of one document in lower case: many terms may look at the same long text."""

_Test = Callable[[Value, Folded], bool]
_COMPARISONS = {
    "gte": operator.ge,
    "since": operator.ge,
    "gt": operator.gt,
    "after": operator.gt,
    "lte": operator.le,
    "lt": operator.lt,
    "before": operator.lt,
}


class Matcher:
    """A selector ready to be asked. `now_ns` (since 1970, UTC) is what `since=now` and its kind mean."""

    __slots__ = ("_is_match_all", "_test")

    def __init__(self, selector: Selector, *, now_ns: int) -> None:
        self._is_match_all = is_match_all(selector)
        self._test = _compile(selector, now_ns)

    def matches(self, document: Value) -> bool:
        """Only objects match; the empty selector lists every document."""
        if self._is_match_all or not isinstance(document, dict):
            return self._is_match_all
        return self._test(document, {})


def matches(selector: Selector, document: Value, *, now_ns: int) -> bool:
    """One question; for many documents keep a Matcher."""
    return Matcher(selector, now_ns=now_ns).matches(document)


def text_form(value: Value) -> str | None:
    """The text that eq, prefix, in and contains compare; null, objects and arrays have none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return plain_decimal(value) if isinstance(value, float) else None


def numeric_form(value: Value) -> Decimal | None:
    """The number that range compares: of numbers and of texts that read as one, every digit counts."""
    if isinstance(value, Number):
        return exact(value)
    if isinstance(value, str):
        return exact_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return exact_bound(value)


def temporal_form(value: Value) -> Temporal | None:
    """The date or time that date terms compare."""
    return parse_temporal(value) if isinstance(value, str) else None


def _compile(selector: Selector, now_ns: int) -> _Test:
    if isinstance(selector, All | Alternatives):
        combine = all if isinstance(selector, All) else any
        return _combined([_compile(child, now_ns) for child in selector.children], combine)
    if isinstance(selector, Not):
        test = _compile(selector.child, now_ns)
        return lambda document, folded: not test(document, folded)
    holds = _predicate(selector, now_ns)
    segments = selector.field.segments
    if not segments:
        return lambda document, folded: False
    return lambda document, folded: any(holds(value, folded) for value in select(document, segments))


def _combined(tests: list[_Test], combine: Callable[[Iterable[bool]], bool]) -> _Test:
    return lambda document, folded: combine(test(document, folded) for test in tests)


def _predicate(term: Text | In | Exists | Range | Date, now_ns: int) -> _Test:
    if isinstance(term, Exists):
        return lambda value, folded: value is not None
    if isinstance(term, In):
        return _in(term)
    if isinstance(term, Text):
        return _text(term)
    if isinstance(term, Range) and not isinstance(term.bounds[0][1], str):
        return _numeric_range(term)
    return _temporal_range([(name, str(literal)) for name, literal in term.bounds], now_ns)


def _in(term: In) -> _Test:
    values = frozenset(term.values)
    return lambda value, folded: text_form(value) in values


def _text(term: Text) -> _Test:
    if term.values is None:
        return lambda value, folded: True
    if term.operator is TextOperator.EQ:
        return _eq(term.values[0])
    wanted = tuple(value.lower() if term.is_folded else value for value in term.values)
    is_prefix = term.operator in (TextOperator.PREFIX, TextOperator.IPREFIX)
    is_folded = term.is_folded

    def test(value: Value, folded: Folded) -> bool:
        text = text_form(value)
        if text is None:
            return False
        if is_folded:
            text = folded.get(text) or folded.setdefault(text, text.lower())
        return text.startswith(wanted) if is_prefix else any(part in text for part in wanted)

    return test


def _eq(wanted: str) -> _Test:
    moment = parse_temporal(wanted)
    if moment is None:
        return lambda value, folded: text_form(value) == wanted

    def test(value: Value, folded: Folded) -> bool:
        found = temporal_form(value)
        return text_form(value) == wanted or (found is not None and found.equals(moment))

    return test


def _numeric_range(term: Range) -> _Test:
    checks = [
        (_COMPARISONS[name], exact_bound(bound)) for name, bound in term.bounds if not isinstance(bound, str)
    ]

    def test(value: Value, folded: Folded) -> bool:
        number = numeric_form(value)
        return number is not None and all(compare(number, bound) for compare, bound in checks)

    return test


def _temporal_range(bounds: list[tuple[str, str]], now_ns: int) -> _Test:
    checks = [(name, _moment(literal, now_ns)) for name, literal in bounds]

    def holds(found: Temporal, name: str, moment: Temporal) -> bool:
        if name == "value":
            return found.equals(moment)
        return bool(_COMPARISONS[name](found.instant_ns, moment.instant_ns))

    def test(value: Value, folded: Folded) -> bool:
        found = temporal_form(value)
        return found is not None and all(holds(found, name, moment) for name, moment in checks)

    return test


def _moment(literal: str, now_ns: int) -> Temporal:
    word = literal.lower()
    if word == "now":
        return temporal.instant(now_ns)
    if word in ("today", "yesterday"):
        return temporal.utc_midnight(now_ns, days_before=0 if word == "today" else 1)
    moment = parse_temporal(literal)
    assert moment is not None, "literals were checked when the selector was read"
    return moment
