"""Does a document match a selector? The selector is compiled once and then asked for many documents."""

import operator
from collections.abc import Callable
from typing import Any

from holdfast.lql import temporal
from holdfast.lql.document.value import Value
from holdfast.lql.number import exact_bound
from holdfast.lql.pointer import Segment
from holdfast.lql.selector.selection import Form, Selection
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
from holdfast.lql.temporal import Temporal, parse_temporal

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "gte": operator.ge,
    "since": operator.ge,
    "gt": operator.gt,
    "after": operator.gt,
    "lte": operator.le,
    "lt": operator.lt,
    "before": operator.lt,
    "value": Temporal.equals,
}

_Holds = Callable[[Any], bool]
"""Whether one value, in the form the term asks for, satisfies it."""

_Selections = dict[tuple[Segment, ...], Selection]
_Test = Callable[[Value, _Selections], bool]


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


def _compile(selector: Selector, now_ns: int) -> _Test:
    if isinstance(selector, All):
        tests = [_compile(child, now_ns) for child in selector.children]
        return lambda document, selections: all(test(document, selections) for test in tests)
    if isinstance(selector, Alternatives):
        tests = [_compile(child, now_ns) for child in selector.children]
        return lambda document, selections: any(test(document, selections) for test in tests)
    if isinstance(selector, Not):
        negated = _compile(selector.child, now_ns)
        return lambda document, selections: not negated(document, selections)
    return _compile_term(selector, now_ns)


def _compile_term(term: Term, now_ns: int) -> _Test:
    form, holds = _predicate(term, now_ns)
    segments = term.field.segments
    if not segments:
        return lambda document, selections: False

    def test(document: Value, selections: _Selections) -> bool:
        selection = selections.get(segments)
        if selection is None:
            selection = selections[segments] = Selection(document, segments)
        return any(map(holds, selection.forms(form)))

    return test


def _predicate(term: Term, now_ns: int) -> tuple[Form, _Holds]:
    if isinstance(term, Exists):
        return Form.PRESENCE, bool
    if isinstance(term, In):
        return Form.TEXT, frozenset(term.values).__contains__
    if isinstance(term, Text):
        return _text(term)
    if isinstance(term, Date):
        return Form.MOMENT, _all_bounds([(name, moment_of(literal, now_ns)) for name, literal in term.bounds])
    return _range(term, now_ns)


def _text(term: Text) -> tuple[Form, _Holds]:
    if term.values is None:
        return Form.PRESENCE, lambda is_there: True
    if term.operator is TextOperator.EQ:
        return Form.TEXT, _eq(term.values[0])
    form = Form.FOLDED if term.is_folded else Form.TEXT
    wanted = tuple(value.lower() if term.is_folded else value for value in term.values)
    if term.operator in (TextOperator.PREFIX, TextOperator.IPREFIX):
        return form, lambda text: text.startswith(wanted)
    return form, lambda text: any(part in text for part in wanted)


def _eq(wanted: str) -> _Holds:
    """Equal texts, or the same moment spelled differently."""
    moment = parse_temporal(wanted)
    if moment is None:
        return wanted.__eq__

    def holds(text: str) -> bool:
        found = parse_temporal(text)
        return text == wanted or (found is not None and found.equals(moment))

    return holds


def _range(term: Range, now_ns: int) -> tuple[Form, _Holds]:
    if isinstance(term.bounds[0][1], str):
        return Form.MOMENT, _all_bounds(
            [(name, moment_of(str(bound), now_ns)) for name, bound in term.bounds]
        )
    numbers = [(name, exact_bound(bound)) for name, bound in term.bounds if not isinstance(bound, str)]
    return Form.NUMBER, _all_bounds(numbers)


def _all_bounds(bounds: list[tuple[str, Any]]) -> _Holds:
    checks = [(_COMPARISONS[name], bound) for name, bound in bounds]
    return lambda found: all(compare(found, bound) for compare, bound in checks)


def moment_of(literal: str, now_ns: int) -> Temporal:
    """What a date term compares with: a literal, or a word like yesterday."""
    word = literal.lower()
    if word == "now":
        return temporal.instant(now_ns)
    if word in ("today", "yesterday"):
        return temporal.utc_midnight(now_ns, days_before=0 if word == "today" else 1)
    moment = parse_temporal(literal)
    assert moment is not None, "literals were checked when the selector was read"
    return moment
