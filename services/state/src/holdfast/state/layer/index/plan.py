"""From a selector to what of the index can hold matching documents. Pure.

A plan never leaves out a document that matches; what it has too much is taken out by evaluation. A part that is
`is_exact` holds nothing but matches.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from holdfast.lql.number import exact_bound
from holdfast.lql.pointer import Pointer, Wildcard, array_index, escaped
from holdfast.lql.selector.evaluation import moment_of
from holdfast.lql.selector.tree import (
    All,
    Alternatives,
    Bound,
    Date,
    Exists,
    In,
    Not,
    Range,
    Selector,
    Text,
    TextOperator,
)
from holdfast.lql.temporal import NANOS_PER_S, S_PER_DAY, Temporal, parse_temporal
from holdfast.state.layer.index.terms import (
    CONTAINER,
    ELEMENT,
    LONG_TEXT,
    MOMENT,
    NULL,
    NUMBER,
    TEXT,
    TEXT_BYTES_MAX,
    Terms,
    element,
    moment_element,
    number_element,
    path_element,
)

PATHS_MAX: Final = 8
VALUES_MAX: Final = 64
_LOWER, _UPPER = frozenset(("gte", "gt", "since", "after")), frozenset(("lte", "lt", "before"))
_END: Final = b"\xff"  # Above everything that may follow an element or a part of a text.


@dataclass(frozen=True, slots=True)
class Postings:
    """The keys of one entry, in their order."""

    entry: bytes
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Span:
    """The keys of all entries in [start, end), in the order of the entries."""

    start: bytes
    end: bytes
    is_exact: bool


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Matching documents are in at least one of these; without any, there are none."""

    parts: tuple["Plan", ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """Matching documents are in each of these."""

    parts: tuple["Plan", ...]


Plan = Postings | Span | AnyOf | AllOf | None
"""None: the index does not help."""

_NO_MATCH: Final = AnyOf(())


class Planner:
    """Makes plans for an index with these terms. `now_ns` is the one that evaluation uses."""

    def __init__(self, terms: Terms, *, now_ns: int) -> None:
        self._terms = terms
        self._now_ns = now_ns

    def plan(self, selector: Selector) -> Plan:
        if isinstance(selector, All):
            return _all_of(self.plan(child) for child in selector.children)
        if isinstance(selector, Alternatives):
            return _any_of(self.plan(child) for child in selector.children)
        if isinstance(selector, Not):
            return None
        if selector.field.is_root:
            return _NO_MATCH
        paths = paths_of(selector.field)
        if paths is None:
            return None
        # An entry of an encrypted store is not authenticated: write access to the store's files could forge it.
        is_exact = not self._terms.is_hashed and not any(
            isinstance(segment, str) and array_index(segment) is not None
            for segment in selector.field.segments
        )
        heads = [path_element(path) for path in paths]
        return _any_of(part for head in heads for part in self._term(selector, head, is_exact))

    def _term(
        self, term: Text | In | Exists | Range | Date, head: bytes, is_exact: bool
    ) -> Iterable[Postings | Span]:
        if isinstance(term, Exists):
            return (_span(head, CONTAINER, LONG_TEXT, is_exact),)
        if isinstance(term, In):
            if len(term.values) > VALUES_MAX:
                return (_scalars(head),)
            return [Postings(self._terms.text_entry(head, value), is_exact) for value in term.values]
        if isinstance(term, Text):
            return self._text(term, head, is_exact)
        if self._terms.is_hashed:
            return (_scalars(head),)
        if isinstance(term, Date):
            return (self._moments(term.bounds, head),)
        if isinstance(term.bounds[0][1], str):
            return (self._moments([(name, str(bound)) for name, bound in term.bounds], head),)
        return (_numbers(term.bounds, head),)

    def _text(self, term: Text, head: bytes, is_exact: bool) -> Iterable[Postings | Span]:
        if term.values is None:
            return (_span(head, NULL, LONG_TEXT, is_exact),)
        if term.operator is TextOperator.EQ:
            return self._equal(term.values[0], head, is_exact)
        if term.operator is TextOperator.PREFIX and not self._terms.is_hashed:
            return _prefixed(term.values[0], head, is_exact)
        return (_scalars(head),)

    def _equal(self, text: str, head: bytes, is_exact: bool) -> Iterable[Postings | Span]:
        moment = parse_temporal(text)
        if moment is None:
            return (Postings(self._terms.text_entry(head, text), is_exact),)
        # The same moment may be spelled in another way.
        return (_scalars(head),) if self._terms.is_hashed else (_days_around(moment, head),)

    def _moments(self, bounds: Sequence[tuple[str, str]], head: bytes) -> Span:
        moments = [(name, moment_of(literal, self._now_ns)) for name, literal in bounds]
        for name, moment in moments:
            if name == "value":
                return _days_around(moment, head)
        lower = [moment.instant_ns for name, moment in moments if name in _LOWER]
        upper = [moment.instant_ns for name, moment in moments if name in _UPPER]
        start = head + MOMENT + (moment_element(max(lower)) if lower else b"")
        end = head + MOMENT + (moment_element(min(upper)) if upper else b"") + _END
        return Span(start, end, False)


def paths_of(pointer: Pointer) -> list[str] | None:
    """The paths under which the values of a pointer are indexed; None: too many to name."""
    paths = [""]
    for segment in pointer.segments:
        if segment is Wildcard.ELEMENTS:
            paths = [path + ELEMENT for path in paths]
        elif isinstance(segment, Wildcard):
            return None
        else:
            members = [f"{path}/{escaped(segment)}" for path in paths]
            # A number may be the name of a member or the place of an element.
            elements = [path + ELEMENT for path in paths] if array_index(segment) is not None else []
            paths = members + elements
        if len(paths) > PATHS_MAX:
            return None
    return paths


def _any_of(plans: Iterable[Plan]) -> Plan:
    parts: list[Plan] = []
    for plan in plans:
        if plan is None:
            return None
        parts.extend(plan.parts if isinstance(plan, AnyOf) else (plan,))
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))


def _all_of(plans: Iterable[Plan]) -> Plan:
    every = list(plans)
    parts = tuple(plan for plan in every if plan is not None)
    if not parts:
        return None
    # A part that stands alone because the index does not help with the others does not make a match.
    return parts[0] if len(every) == 1 else AllOf(parts)


def _span(head: bytes, first: bytes, last: bytes, is_exact: bool) -> Span:
    """All entries of a path from one kind to another."""
    return Span(head + first, head + last + _END, is_exact)


def _scalars(head: bytes) -> Span:
    return _span(head, TEXT, LONG_TEXT, is_exact=False)


def _prefixed(text: str, head: bytes, is_exact: bool) -> Iterable[Span]:
    raw = text.encode("utf-8", "surrogatepass")
    is_exact = is_exact and len(raw) <= TEXT_BYTES_MAX
    start = element(raw[:TEXT_BYTES_MAX])[:-1]
    return [Span(head + kind + start, head + kind + start + _END, is_exact) for kind in (TEXT, LONG_TEXT)]


def _numbers(bounds: Sequence[tuple[str, Bound]], head: bytes) -> Span:
    exact = [(name, exact_bound(bound)) for name, bound in bounds if not isinstance(bound, str)]
    lower = [bound for name, bound in exact if name in _LOWER]
    upper = [bound for name, bound in exact if name in _UPPER]
    start = head + NUMBER + (number_element(_rounded(max(lower))) if lower else b"")
    end = head + NUMBER + (number_element(_rounded(min(upper))) if upper else b"") + _END
    return Span(start, end, False)


def _rounded(number: Decimal) -> float:
    """As the entries are: rounding keeps the order, so no number within the bounds falls out of them."""
    return float(number)


def _days_around(moment: Temporal, head: bytes) -> Span:
    """Everything that may be equal: a date equals every moment of that day, in the moment's own offset."""
    first_ns, last_ns = ((moment.day + days) * S_PER_DAY * NANOS_PER_S for days in (-1, 2))
    return Span(
        head + MOMENT + moment_element(first_ns), head + MOMENT + moment_element(last_ns) + _END, False
    )
