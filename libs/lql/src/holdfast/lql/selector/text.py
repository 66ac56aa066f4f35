"""Selector text to selector."""

import re

from holdfast.lql.errors import InvalidSelector, quoted
from holdfast.lql.fragment import QUOTED, Fragment, split_outside
from holdfast.lql.selector.draft import OPERATORS, Collector, Wrapper, read_clause_path
from holdfast.lql.selector.term import Assignments, range_bound
from holdfast.lql.selector.tree import Selector

_MATCH_ALL = ("{}", ".", "/")
_FIRST_WORD = re.compile(r"[^.{]*+")
_OPERATOR = re.compile(r"""\\.|["']|[=!<>]=|[=<>]""", re.DOTALL)
_RANGES = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_NOT_IN_FIELD = re.compile(r"[\s,]")
_BRACES = re.compile(r"""\\.|["'{}]""", re.DOTALL)

_SKIPPED = re.compile(r"[, \t\r\n]*+")
_KEY = re.compile(rf"""(?:{QUOTED}|[^=,\r\n])*+""", re.DOTALL)
_VALUE = re.compile(rf"""[ \t]*+((?:{QUOTED}|[^, \t\r\n])*+)""", re.DOTALL)


def parse_selector(text: str) -> Selector:
    """The selector of a text; no text selects everything. Raises InvalidSelector."""
    collector = Collector()
    for piece in split_outside(Fragment(text), InvalidSelector):
        add_clause(collector, piece)
    return collector.selector()


def is_term(text: str) -> bool:
    """Whether the word before the first dot or brace is an operator; else the clause is a shorthand."""
    word = _FIRST_WORD.match(text)
    return word is not None and word[0].strip().lower() in OPERATORS


def add_clause(collector: Collector, clause: Fragment) -> None:
    """Reads one clause and puts it at its place."""
    if is_term(clause.text):
        _add_term(collector, clause)
    elif clause.text not in _MATCH_ALL:
        _add_shorthand(collector, clause)


def _add_shorthand(collector: Collector, clause: Fragment) -> None:
    found = _first_operator(clause.text)
    if found is None:
        raise InvalidSelector(
            f"{quoted(clause.text)} compares nothing",
            position=clause.position,
            hint="write it like /status=open",
        )
    field, value = clause.part(0, found.start()).stripped(), clause.part(found.end()).stripped()
    if not field.text.startswith("/") or _NOT_IN_FIELD.search(field.text):
        raise InvalidSelector(
            f"{quoted(field.text)} is no field",
            position=field.position,
            hint='it starts with / and has no spaces here; else write eq{field="/a b",value=x}',
        )
    if not value.text:
        raise InvalidSelector(
            f"nothing follows {found[0]}",
            position=value.position,
            hint='write "" to compare with the empty text',
        )
    node = collector.node((Wrapper("not"),) if found[0] == "!=" else (), is_shared=False)
    bound = _RANGES.get(found[0])
    if bound is not None:
        range_bound(value, may_quote_number=False)
    term = node.term("range" if bound else "eq", clause.position)
    term.assign("field", field, field.position)
    term.assign(bound or "value", value, value.position)


def _first_operator(text: str) -> re.Match[str] | None:
    quote = ""
    for match in _OPERATOR.finditer(text):
        mark = match[0]
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "\"'":
            quote = mark
        elif not mark.startswith("\\"):
            return match
    return None


def _add_term(collector: Collector, clause: Fragment) -> None:
    brace = clause.text.find("{")
    place = read_clause_path(clause.part(0, brace) if brace >= 0 else clause)
    word, *keys = place.rest
    leaf = word.text.lower()
    if keys or (brace < 0 and leaf != "exists"):
        raise InvalidSelector(
            f"{leaf} needs its braces",
            position=word.position,
            hint=f"like {leaf}{{field=/status,…}}",
        )
    node = collector.node(place.wrappers, is_shared=False)
    # Without braces `exists` opens its place and constrains nothing: this is how text spells an empty node.
    if brace >= 0:
        body = _body(clause, brace)
        term = node.term(leaf, clause.position)
        if leaf == "exists":
            _point(term, body)
        else:
            _assign_all(term, body)


def _body(clause: Fragment, brace: int) -> Fragment:
    """What stands between the brace and its partner, which must end the clause."""
    depth, quote = 0, ""
    for match in _BRACES.finditer(clause.text, brace):
        mark = match[0]
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "\"'":
            quote = mark
        else:
            depth += {"{": 1, "}": -1}.get(mark, 0)
            if depth == 0 and mark == "}" and match.end() < len(clause.text):
                raise InvalidSelector(
                    f"{quoted(clause.text[match.end() :])} follows the closing brace",
                    position=clause.position + match.end(),
                    hint="separate clauses by a comma",
                )
    body = clause.part(brace + 1, -1)
    if not body.text.strip():
        raise InvalidSelector(
            "the braces are empty", position=body.position, hint="like eq{field=/status,value=open}"
        )
    return body


def _point(term: Assignments, body: Fragment) -> None:
    pointer = _VALUE.match(body.stripped().text)
    assert pointer is not None, "the pattern matches anything"
    if pointer.end() < len(body.stripped().text):
        raise InvalidSelector("exists takes one pointer", position=body.position, hint="like exists{/status}")
    term.point(body.stripped())


def _assign_all(term: Assignments, body: Fragment) -> None:
    at = _skip(body.text, 0)
    while at < len(body.text):
        key = _KEY.match(body.text, at)
        assert key is not None, "the pattern matches anything"
        if body.text[key.end() : key.end() + 1] != "=":
            raise InvalidSelector(
                f"{quoted(key[0].strip())} is not assigned to a key",
                position=body.position + at,
                hint='write key=value, and quotes around a value with spaces, like value="b c"',
            )
        value = _VALUE.match(body.text, key.end() + 1)
        assert value is not None, "the pattern matches anything"
        term.assign(key[0], Fragment(value[1], body.position + value.start(1)), body.position + at)
        at = _skip(body.text, value.end())


def _skip(text: str, at: int) -> int:
    skipped = _SKIPPED.match(text, at)
    return skipped.end() if skipped else at
