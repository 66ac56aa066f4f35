"""Evaluation, rule by rule and against a second evaluator that is as plain as the rules."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from typing import TypeVar

import pytest
from hypothesis import given, settings

from holdfast.lql.document.value import Number, Value, parse_document
from holdfast.lql.selector.evaluation import Matcher, matches
from holdfast.lql.selector.json import selector_from_json_text
from holdfast.lql.selector.text import parse_selector
from holdfast.lql.selector.tree import (
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
)
from tests.infra.examples import examples
from tests.unit.lql.strategies import DOCUMENTS, SELECTORS

Comparable = TypeVar("Comparable", Fraction, datetime)
NOW_NS = 1_741_000_000_000_000_000  # 2025-03-03T11:06:40Z


def does_match(text: str, document: str) -> bool:
    return matches(parse_selector(text), parse_document(document), now_ns=NOW_NS)


def plain_matches(selector: Selector, document: Value) -> bool:
    if isinstance(selector, All):
        return all(plain_matches(child, document) for child in selector.children)
    if isinstance(selector, Alternatives):
        return any(plain_matches(child, document) for child in selector.children)
    if isinstance(selector, Not):
        return not plain_matches(selector.child, document)
    values = plain_select(
        document, selector.field.text.replace("[]", "/[]").replace("//[]", "/[]").split("/")[1:]
    )
    return any(plain_holds(selector, value) for value in values)


def plain_select(value: Value, segments: list[str]) -> Iterator[Value]:
    if not segments:
        yield value
        return
    first, rest = segments[0], segments[1:]
    members = list(value.values()) if isinstance(value, dict) else []
    elements = value if isinstance(value, list) else []
    if first == "...":
        yield from plain_select(value, rest)
        for child in (*members, *elements):
            yield from plain_select(child, segments)
    elif first in ("*", "[]", "**"):
        for child in {"*": members, "[]": elements, "**": [*members, *elements]}[first]:
            yield from plain_select(child, rest)
    elif isinstance(value, dict):
        name = re.sub("~[01]", lambda match: {"~0": "~", "~1": "/"}[match[0]], first)
        if name in value:
            yield from plain_select(value[name], rest)
    elif re.fullmatch(r"\+?[0-9]+", first) and int(first) < len(elements):
        yield from plain_select(elements[int(first)], rest)


def plain_holds(term: Text | In | Exists | Range | Date, value: Value) -> bool:
    text = (
        {True: "true", False: "false"}[value]
        if isinstance(value, bool)
        else value
        if isinstance(value, str)
        else None
    )
    if isinstance(term, Exists):
        return value is not None
    if isinstance(term, In):
        return text in term.values
    if isinstance(term, Text):
        return plain_text_holds(term, text)
    bounds = dict(term.bounds)
    if any(isinstance(bound, str) for bound in bounds.values()):
        return isinstance(value, str) and all(
            plain_date(name, value, str(bound)) for name, bound in bounds.items()
        )
    if isinstance(value, bool) or text is None or not re.fullmatch(r"-?[0-9.]+([eE][+-]?[0-9]+)?", text):
        return False
    try:
        number = Fraction(text)
    except ValueError:
        return False
    return all(plain_compare(name, number, Fraction(str(bound))) for name, bound in bounds.items())


def plain_text_holds(term: Text, text: str | None) -> bool:
    if term.values is None:
        return True
    if text is None:
        return False
    if term.operator is TextOperator.EQ:
        return text == term.values[0] or plain_date("value", text, term.values[0])
    fold = term.ignore_case or term.operator in ("icontains", "iprefix")
    found, wanted = (text.lower(), [v.lower() for v in term.values]) if fold else (text, list(term.values))
    return any(found.startswith(v) if term.operator.endswith("prefix") else v in found for v in wanted)


def plain_date(name: str, first: str, second: str) -> bool:
    if not all(re.match(r"\d{4}-\d\d-\d\d(T|$)", text) for text in (first, second)):
        return False
    try:
        one, other = datetime.fromisoformat(first), datetime.fromisoformat(second)
    except ValueError:
        return False
    if name == "value" and 10 in (len(first), len(second)):
        return one.date() == other.date()
    aware = [moment if moment.tzinfo else moment.replace(tzinfo=UTC) for moment in (one, other)]
    return plain_compare(name, *aware) if name != "value" else aware[0] == aware[1]


def plain_compare(name: str, first: Comparable, second: Comparable) -> bool:
    return {
        "gte": first >= second,
        "since": first >= second,
        "gt": first > second,
        "after": first > second,
        "lte": first <= second,
        "lt": first < second,
    }[name]


@settings(max_examples=examples(400), deadline=None)
@given(SELECTORS, DOCUMENTS)
def test_evaluation_is_what_the_plain_rules_say(selector: Selector, document: dict[str, Value]) -> None:
    assert Matcher(selector, now_ns=NOW_NS).matches(document) == plain_matches(selector, document)


DOCUMENT = """{"status":"open","n":5,"big":9007199254740993,"amount":19.95,"ok":true,"note":null,"empty":"","o":{},
"tags":["red","Blue"],"items":[{"sku":"A-1","qty":3},{"sku":"B-2","qty":0}],"num":"42","at":"2025-03-01T10:00:00Z",
"day":"2025-03-02","local":"2025-03-01T23:30:00-02:00","deep":{"x":{"sku":"Z"}},"matrix":[[1,2],[3]]}"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/tags=red", False),
        ("/tags/0=red", True),
        ("/tags[]=red", True),
        ("/tags/*=red", False),
        ("/tags/**=red", True),
        ("/items[]/sku=B-2", True),
        ("/items/*/sku=B-2", False),
        ("/.../sku=Z", True),
        ("/...=Z", True),
        ("/.../qty>2", True),
        ("/items/.../qty>3", False),
        ("/matrix[][]=3", True),
        ("/*=open", True),
        ("exists{/note}", False),
        ("exists{/empty}", True),
        ("exists{/o}", True),
        ("contains{field=/note}", True),
        ("contains{field=/missing}", False),
        ("contains{field=/o}", True),
        ("contains{field=/status,value=pe}", True),
        ("contains{field=/status,value=PE}", False),
        ("contains{field=/status,value=PE,ic=true}", True),
        ("icontains{field=/tags[],any=green|BLU}", True),
        ("iprefix{field=/status,value=OP}", True),
        ("contains{field=/amount,value=9.9}", True),
        ("in{field=/n,any=4|5}", True),
        ("/num>41", True),
        ("/ok>0", False),
        ("/big>9007199254740992", True),
        ("/big=9007199254740993", False),
        ("/at=2025-03-01", True),
        ("/at=2025-03-01T12:00:00+02:00", True),
        ("/local=2025-03-01", True),
        ("/at>2025-03-01", True),
        ("/day>=2025-03-02T00:00:00Z", True),
        ("date{f=/at,value=2025-03-01}", True),
        ("date{f=/at,after=2025-03-01T10:00:00}", False),
        ("date{f=/at,gte=2025-03-01T10:00:00,before=2025-03-02}", True),
        ("date{f=/day,since=yesterday}", True),
        ("date{f=/day,since=today}", False),
        ("date{f=/at,since=now}", False),
        ("date{f=/status,after=2025-01-01}", False),
        ("/tags/+1=Blue", True),
        ("/tags/-0=red", True),
        ("/tags/2=x", False),
        ("/tags/99999999999999999999=x", False),
        ("/status/0=o", False),
        ('prefix{field=/o,value=""}', False),
    ],
)
def test_a_document_matches(text: str, expected: bool) -> None:
    assert does_match(text, DOCUMENT) is expected


@pytest.mark.parametrize("root", ["[]", "1", '"x"', "null", "[{}]"])
def test_roots_that_are_no_objects_match_only_the_empty_selector(root: str) -> None:
    assert does_match("", root)
    assert not does_match("/a!=x", root)
    assert not does_match("not.exists", root)


@pytest.mark.parametrize("node", ['{"eq":{"field":"/","value":""}}', '{"exists":""}', '{"not":{}}'])
def test_the_root_pointer_and_the_negation_of_everything_match_nothing(node: str) -> None:
    assert not matches(selector_from_json_text(node), {"": "", "a": 1}, now_ns=0)


@pytest.mark.parametrize(
    "text", ["0", "0.0", "-0", "1e-99999", "-1E5", "1e999999999999999999999", "5" * 5000]
)
def test_numbers_of_any_size_are_compared(text: str) -> None:
    assert does_match("not.range{field=/n,gt=1,lt=0}", f'{{"n":{text}}}')


def test_numbers_are_compared_as_spelled_and_plain_numbers_as_json_writes_them() -> None:
    assert does_match("/n=1.5", '{"n":1.5}')
    assert not does_match("/n=1.5", '{"n":1.50}')
    assert matches(parse_selector("/a=5,/b=2.5,/b>2"), {"a": 5, "b": 2.5}, now_ns=0)
    assert matches(parse_selector("/a>4"), {"a": Number("5")}, now_ns=0)
