"""The selector as a tree: conjunctions, alternatives, negations, and the terms that look at a field."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from holdfast.lql.pointer import Pointer

NESTING_MAX = 100
WILDCARDS_MAX = 16
CONTAINS_ANY_MAX = 100


class TextOperator(StrEnum):
    """Terms that look at the text form of a value. The names are those of the JSON members."""

    EQ = "eq"
    CONTAINS = "contains"
    ICONTAINS = "icontains"
    PREFIX = "prefix"
    IPREFIX = "iprefix"


@dataclass(frozen=True, slots=True)
class All:
    """Every child matches; without children: every document matches."""

    children: tuple["Selector", ...] = ()


@dataclass(frozen=True, slots=True)
class Alternatives:
    """At least one child matches."""

    children: tuple["Selector", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The child does not match."""

    child: "Selector"


@dataclass(frozen=True, slots=True)
class Text:
    """The text form of the field equals, starts with or contains one of `values`; None: the path resolves to anything."""

    operator: TextOperator
    field: Pointer
    values: tuple[str, ...] | None
    ignore_case: bool = False
    is_list: bool = False

    @property
    def is_folded(self) -> bool:
        return self.ignore_case or self.operator in (TextOperator.ICONTAINS, TextOperator.IPREFIX)


@dataclass(frozen=True, slots=True)
class In:
    """The text form of the field is one of `values`."""

    field: Pointer
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """The field resolves to something that is not null."""

    field: Pointer


Bound = int | float | str
BOUND_NAMES = ("gte", "gt", "lte", "lt")
DATE_NAMES = ("value", "since", "after", "before", *BOUND_NAMES)
SINCE_WORDS = ("now", "today", "yesterday")


@dataclass(frozen=True, slots=True)
class Range:
    """All bounds hold: numbers, or dates and times (texts), never both. Pairs of name and bound, in the order of BOUND_NAMES."""

    field: Pointer
    bounds: tuple[tuple[str, Bound], ...]


@dataclass(frozen=True, slots=True)
class Date:
    """The field is a date or time and all comparisons hold. Pairs of name and literal, in the order of DATE_NAMES."""

    field: Pointer
    bounds: tuple[tuple[str, str], ...]


Term = Text | In | Exists | Range | Date
Selector = All | Alternatives | Not | Term

MATCH_ALL = All()


def conjunction(children: Iterable[Selector]) -> Selector:
    """AND in its simplest form: nothing nested in itself, nothing that always holds, nothing alone."""
    flat: list[Selector] = []
    for child in children:
        flat.extend(child.children if isinstance(child, All) else (child,))
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def alternatives(children: Iterable[Selector]) -> Selector:
    """OR in its simplest form. No alternatives are no constraint."""
    found = tuple(children)
    if not found:
        return MATCH_ALL
    return found[0] if len(found) == 1 else Alternatives(found)


def is_match_all(selector: Selector) -> bool:
    return isinstance(selector, All) and not selector.children
