"""The selector while it is read: clauses and URL parameters put their terms at places, then it becomes a tree."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.lql.errors import InvalidSelector, quoted
from holdfast.lql.fragment import Fragment
from holdfast.lql.pointer import Pointer
from holdfast.lql.selector.term import KEYS, Assignments
from holdfast.lql.selector.tree import (
    MATCH_ALL,
    NESTING_MAX,
    WILDCARDS_MAX,
    All,
    Alternatives,
    Not,
    Selector,
    Term,
    alternatives,
    conjunction,
)

INDEX_MAX = 1_048_576
GAPS_MAX = 10_000
AGGREGATORS = ("and", "or")
OPERATORS = frozenset((*AGGREGATORS, "not", *KEYS))


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One step of a path: `and`, `or` (with an index, or opening a new element) or `not`."""

    name: str
    index: int | None = None


class ClausePath(NamedTuple):
    """Where a clause stands: its wrappers, and what follows them (the leaf, and in URL parameters its key)."""

    wrappers: tuple[Wrapper, ...]
    rest: tuple[Fragment, ...]


@dataclass(slots=True)
class Elements:
    """The elements of an `and` or `or`: those with an index are shared by all clauses that name it."""

    indexed: dict[int, "Draft"] = field(default_factory=dict)
    opened: list["Draft"] = field(default_factory=list)

    def at(self, index: int | None) -> "Draft":
        if index is not None:
            return self.indexed.setdefault(index, Draft())
        self.opened.append(Draft())
        return self.opened[-1]

    def in_order(self) -> Iterator["Draft"]:
        yield from (self.indexed[index] for index in sorted(self.indexed))
        yield from self.opened

    def gap_count(self) -> int:
        return max(self.indexed, default=-1) + 1 - len(self.indexed)


@dataclass(slots=True)
class Draft:
    """One node: everything in it must hold."""

    terms: dict[str, Assignments] = field(default_factory=dict)
    all_of: Elements | None = None
    any_of: Elements | None = None
    negated: "Draft | None" = None

    def descend(self, wrapper: Wrapper) -> "Draft":
        if wrapper.name == "not":
            self.negated = self.negated or Draft()
            return self.negated
        if wrapper.name == "and":
            self.all_of = self.all_of or Elements()
            return self.all_of.at(wrapper.index)
        self.any_of = self.any_of or Elements()
        return self.any_of.at(wrapper.index)

    def term(self, leaf: str, position: int) -> Assignments:
        return self.terms.setdefault(leaf, Assignments(leaf, position, {}, {}))


@dataclass(slots=True)
class Collector:
    """All clauses of one selector. Alternatives at the top are one group beside everything else."""

    clauses: list[Draft] = field(default_factory=list)
    shared: Draft = field(default_factory=Draft)
    groups: Elements = field(default_factory=Elements)

    def node(self, wrappers: tuple[Wrapper, ...], *, is_shared: bool) -> Draft:
        """The node at the end of the wrappers. Clauses of text stand alone unless they start with `and` or `or`."""
        if wrappers and wrappers[0].name == "or":
            node, wrappers = self.groups.at(wrappers[0].index), wrappers[1:]
        elif is_shared or (wrappers and wrappers[0].name == "and"):
            node = self.shared
        else:
            self.clauses.append(Draft())
            node = self.clauses[-1]
        for wrapper in wrappers:
            node = node.descend(wrapper)
        return node

    def selector(self) -> Selector:
        gaps_left = [GAPS_MAX]
        parts = [_freeze(draft, gaps_left) for draft in (*self.clauses, self.shared)]
        parts.append(alternatives(_freeze(draft, gaps_left) for draft in self.groups.in_order()))
        selector = conjunction(parts)
        check_wildcards(selector)
        return selector


def _freeze(draft: Draft, gaps_left: list[int]) -> Selector:
    parts: list[Selector] = [assignments.finish() for assignments in draft.terms.values()]
    if draft.negated is not None:
        parts.append(Not(_freeze(draft.negated, gaps_left)))
    if draft.any_of is not None:
        parts.append(_freeze_alternatives(draft.any_of, gaps_left))
    if draft.all_of is not None:
        # A gap is no constraint here and disappears.
        parts.extend(_freeze(child, gaps_left) for child in draft.all_of.in_order())
    return conjunction(parts)


def _freeze_alternatives(elements: Elements, gaps_left: list[int]) -> Selector:
    """A gap is an alternative that always holds."""
    gaps_left[0] -= elements.gap_count()
    if gaps_left[0] < 0:
        raise InvalidSelector("the indexes of or leave too many gaps", hint="number them 0, 1, 2, …")
    gaps: list[Selector] = [MATCH_ALL] * elements.gap_count()
    return alternatives(gaps + [_freeze(child, gaps_left) for child in elements.in_order()])


def read_clause_path(path: Fragment) -> ClausePath:
    """Words between dots: wrappers as long as there are any, then the rest. Errors name the word."""
    words = _words(path)
    wrappers: list[Wrapper] = []
    at = 0
    while at < len(words) and words[at].text.lower() in (*AGGREGATORS, "not"):
        name = words[at].text.lower()
        at += 1
        index = None
        if name != "not" and at < len(words) and words[at].text.isdecimal():
            index = _index(words[at])
            at += 1
        wrappers.append(Wrapper(name, index))
    _check_wrappers(wrappers, path)
    if at == len(words):
        raise InvalidSelector(
            f"{quoted(path.text)} names no operator", position=path.position, hint="end it like and.0.eq{…}"
        )
    if words[at].text.lower() not in KEYS:
        raise InvalidSelector(
            f"{quoted(words[at].text)} is no operator",
            position=words[at].position,
            hint=f"use one of {', '.join(KEYS)}",
        )
    return ClausePath(tuple(wrappers), tuple(words[at:]))


def _words(path: Fragment) -> list[Fragment]:
    words: list[Fragment] = []
    start = 0
    for text in path.text.split("."):
        words.append(Fragment(text, path.position + start).stripped())
        start += len(text) + 1
    return words


def _index(word: Fragment) -> int:
    digits = word.text.lstrip("0") or "0"
    if not word.text.isascii() or len(digits) > 7 or int(digits) > INDEX_MAX:
        raise InvalidSelector(f"an index is at most {INDEX_MAX}", position=word.position, hint="count from 0")
    return int(digits)


def _check_wrappers(wrappers: list[Wrapper], path: Fragment) -> None:
    if len(wrappers) > NESTING_MAX:
        raise InvalidSelector(f"a selector is nested at most {NESTING_MAX} deep", position=path.position)
    inner = wrappers[1:] if wrappers and wrappers[0] == Wrapper("or") else wrappers
    if sum(wrapper.name in AGGREGATORS and wrapper.index is None for wrapper in inner) > 1:
        raise InvalidSelector(
            "two and/or without an index are nested in one clause",
            position=path.position,
            hint="give the inner one an index, like and.or.0.eq{…}",
        )


def check_wildcards(selector: Selector) -> None:
    """Each wildcard may cost a walk over the document, so a selector has only so many."""
    if sum(pointer.wildcard_count for pointer in pointers(selector)) > WILDCARDS_MAX:
        raise InvalidSelector(f"a selector has at most {WILDCARDS_MAX} wildcards", hint="split the query")


def pointers(selector: Selector) -> Iterable[Pointer]:
    """The fields of all terms."""
    return (term.field for term in terms(selector))


def terms(selector: Selector) -> Iterator[Term]:
    """All terms, in no particular order."""
    stack: list[Selector] = [selector]
    while stack:
        node = stack.pop()
        if isinstance(node, All | Alternatives):
            stack.extend(node.children)
        elif isinstance(node, Not):
            stack.append(node.child)
        else:
            yield node
