"""The selector as JSON, both ways."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import cast

from holdfast.lql.errors import InvalidSelector, MalformedSelector
from holdfast.lql.number import plain_decimal, tidy_bound
from holdfast.lql.pointer import Pointer, selector_pointer
from holdfast.lql.selector.draft import check_wildcards
from holdfast.lql.selector.term import check_date, check_range
from holdfast.lql.selector.tree import (
    BOUND_NAMES,
    CONTAINS_ANY_MAX,
    DATE_NAMES,
    MATCH_ALL,
    NESTING_MAX,
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
    alternatives,
    conjunction,
)
from holdfast.lql.temporal import parse_temporal

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Members = Mapping[str, Json]


def selector_from_json(value: Json) -> Selector:
    """The selector of a request body. Raises MalformedSelector, or InvalidSelector for a pointer without a slash."""
    selector = _node(value, 0)
    check_wildcards(selector)
    return selector


def selector_from_json_text(text: str) -> Selector:
    """The selector of the URL parameter `selector`, which holds JSON only. Raises InvalidSelector."""
    try:
        return selector_from_json(cast(Json, json.loads(text)))
    except MalformedSelector as error:
        raise InvalidSelector(error.problem, hint=error.hint) from error
    except RecursionError:
        raise InvalidSelector(f"a selector is nested at most {NESTING_MAX} deep") from None
    except ValueError as error:
        raise InvalidSelector(f"the selector is no JSON: {error}", hint='like {"exists":"/status"}') from None


def _node(value: Json, depth: int) -> Selector:
    if depth > NESTING_MAX:
        raise MalformedSelector(f"a selector is nested at most {NESTING_MAX} deep")
    if value is None:
        return MATCH_ALL
    members = _object(value, "selector")
    parts: list[Selector] = []
    for name, member in members.items():
        if member is None:
            continue
        if name in ("and", "or"):
            children = [_node(child, depth + 1) for child in _list(member, name)]
            parts.append(conjunction(children) if name == "and" else alternatives(children))
        elif name == "not":
            _object(member, name)
            parts.append(Not(_node(member, depth + 1)))
        elif name in _TERMS:
            parts.append(_term(name, member))
    return conjunction(parts)


_TERMS = (*TextOperator, "range", "in", "exists", "date")


def _term(name: str, value: Json) -> Selector:
    if name == "exists":
        return Exists(selector_pointer(_text(value, name)))
    members = _object(value, name)
    field = _field(members, name)
    if name == "range":
        return _range(field, members)
    if name == "in":
        return In(field, _texts(members.get("any"), "in.any"))
    if name == "date":
        return _date(field, members)
    return _text_term(TextOperator(name), field, members)


def _object(value: Json, name: str) -> Members:
    """Members by lower-case name: clients may spell them as they like."""
    if not isinstance(value, dict):
        raise MalformedSelector(f"{name} is not an object")
    return {key.lower(): member for key, member in value.items()}


def _list(value: Json, name: str) -> list[Json]:
    if not isinstance(value, list):
        raise MalformedSelector(f"{name} is not an array")
    return value


def _text(value: Json, name: str) -> str:
    if not isinstance(value, str):
        raise MalformedSelector(f"{name} is not a string")
    return value


def _texts(value: Json, name: str) -> tuple[str, ...]:
    return tuple(_text(item, f"an element of {name}") for item in _list(value, name))


def _field(members: Members, name: str) -> Pointer:
    field = _text(members.get("field") or "", f"{name}.field")
    if not field.strip():
        raise MalformedSelector(f"{name} needs a field", hint='like "field":"/status"')
    return selector_pointer(field)


def _text_term(operator: TextOperator, field: Pointer, members: Members) -> Text:
    listed, value = members.get("any"), members.get("value")
    may_list = operator in (TextOperator.CONTAINS, TextOperator.ICONTAINS)
    ignore_case = members.get("ignorecase") or False
    if not isinstance(ignore_case, bool):
        raise MalformedSelector(f"{operator}.ignoreCase is not a boolean")
    ignore_case = ignore_case and operator not in (TextOperator.EQ, TextOperator.PREFIX)
    if may_list and listed is not None:
        if value is not None:
            raise MalformedSelector(f"{operator} has both value and any", hint="give one of them")
        texts = _texts(listed, f"{operator}.any")
        if not 0 < len(texts) <= CONTAINS_ANY_MAX:
            raise MalformedSelector(f"{operator}.any has between 1 and {CONTAINS_ANY_MAX} elements")
        return Text(operator, field, texts, ignore_case, is_list=True)
    if may_list and value is None:
        return Text(operator, field, None, ignore_case)
    return Text(operator, field, (_value_text(value, operator),), ignore_case)


def _value_text(value: Json, name: str) -> str:
    """Scalars become the text they are compared as."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return plain_decimal(float(_finite(value, name)))
    return _text(value, f"{name}.value")


def _finite(value: int | float, name: str) -> int | float:
    try:
        if isfinite(value):
            return value
    except OverflowError:
        pass  # An integer beyond every double.
    raise MalformedSelector(f"{name} has a number out of range")


def _range(field: Pointer, members: Members) -> Range:
    bounds = tuple(
        (name, _bound(members[name], name)) for name in BOUND_NAMES if members.get(name) is not None
    )
    if not bounds:
        raise MalformedSelector("range needs a bound", hint='like "gte":1')
    check_range(bounds, MalformedSelector)
    return Range(field, bounds)


def _bound(value: Json, name: str) -> Bound:
    if isinstance(value, str) and parse_temporal(value) is not None:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedSelector(f"range.{name} is neither a number nor a date")
    finite = _finite(value, f"range.{name}")
    return finite if isinstance(finite, int) else tidy_bound(finite)


def _date(field: Pointer, members: Members) -> Date:
    bounds = tuple(
        (name, _text(members[name], f"date.{name}")) for name in DATE_NAMES if members.get(name) is not None
    )
    check_date(bounds, MalformedSelector)
    return Date(field, bounds)


def selector_to_json(selector: Selector) -> dict[str, Json]:
    """The JSON form that every client reads: lower-case names, texts as values, absent bounds left out."""
    if isinstance(selector, All):
        return {"and": [selector_to_json(child) for child in selector.children]} if selector.children else {}
    if isinstance(selector, Alternatives):
        return {"or": [selector_to_json(child) for child in selector.children]}
    if isinstance(selector, Not):
        return {"not": selector_to_json(selector.child)}
    if isinstance(selector, Exists):
        return {"exists": _pointer_text(selector.field)}
    if isinstance(selector, In):
        return {"in": {"field": _pointer_text(selector.field), "any": list(selector.values)}}
    if isinstance(selector, Range | Date):
        name = "range" if isinstance(selector, Range) else "date"
        return {name: {"field": _pointer_text(selector.field), **dict(selector.bounds)}}
    return {selector.operator.value: _text_members(selector)}


def _text_members(term: Text) -> dict[str, Json]:
    members: dict[str, Json] = {"field": _pointer_text(term.field)}
    if term.is_list:
        members["any"] = list(term.values or ())
    elif term.values is not None:
        members["value"] = term.values[0]
    if term.ignore_case:
        members["ignoreCase"] = True
    return members


def _pointer_text(pointer: Pointer) -> str:
    # The root matches nothing; left empty it would read as "no field".
    return pointer.text or "/"
