"""Selectors to text and to JSON, and back again."""

import json

import pytest
from hypothesis import assume, given, settings

from holdfast.lql.errors import InexpressibleSelector, InvalidSelector
from holdfast.lql.selector.json import selector_from_json, selector_from_json_text, selector_to_json
from holdfast.lql.selector.printer import print_selector
from holdfast.lql.selector.text import parse_selector
from holdfast.lql.selector.tree import Selector
from tests.unit.lql.strategies import SELECTORS


@settings(deadline=None)
@given(SELECTORS)
def test_what_is_printed_reads_as_the_same_selector(selector: Selector) -> None:
    try:
        text = print_selector(selector)
    except InexpressibleSelector:
        assume(False)
        raise

    assert _read(text) == selector


def _read(text: str) -> Selector:
    try:
        return parse_selector(text)
    except InvalidSelector as error:
        assume("wildcards" in error.problem)
        assume(False)
        raise


@settings(deadline=None)
@given(SELECTORS)
def test_json_carries_every_selector(selector: Selector) -> None:
    try:
        read = selector_from_json_text(json.dumps(selector_to_json(selector)))
    except InvalidSelector as error:
        assume("wildcards" not in error.problem)
        raise

    assert read == selector


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        ("eq{field=/status,value=open}", '/status="open"'),
        ("not.eq{field=/a,value=1}", '/a!="1"'),
        ("/n>=10", "/n>=10"),
        ("/a=1,/b<2", '/a="1",/b<2'),
        ('eq{field="/a b",value=x}', 'eq{field="/a b",value="x"}'),
        ("or.5.eq{field=/a,value=x},or.7.exists{/b}", 'or.0.eq{field="/a",value="x"},or.1.exists{"/b"}'),
        (
            "and.0.not.and.0.exists{/a},and.0.not.and.1.exists{/b}",
            'and.0.not.and.0.exists{"/a"},and.0.not.and.1.exists{"/b"}',
        ),
        ("/a='say \"hi\"'", "/a='say \"hi\"'"),
    ],
)
def test_printing_takes_the_plainest_form(text: str, printed: str) -> None:
    assert print_selector(parse_selector(text)) == printed


@pytest.mark.parametrize(
    "node",
    [
        {"eq": {"field": "/zip", "value": "0150"}},
        {"eq": {"field": "/a", "value": "TRUE"}},
        {"eq": {"field": "/a", "value": "inf"}},
        {"eq": {"field": "/a", "value": "both ' and \""}},
        {"eq": {"field": "/a", "value": "ends with \\"}},
        {"in": {"field": "/a", "any": []}},
        {"in": {"field": "/a", "any": ["a|b"]}},
        {"in": {"field": "/a", "any": [" a"]}},
    ],
)
def test_what_text_cannot_carry_is_refused(node: dict[str, object]) -> None:
    with pytest.raises(InexpressibleSelector, match="JSON"):
        print_selector(selector_from_json_text(json.dumps(node)))


def test_the_root_stays_something_that_matches_nothing() -> None:
    selector = selector_from_json({"exists": "/"})

    assert selector_to_json(selector) == {"exists": "/"}
    assert selector_from_json(selector_to_json(selector)) == selector
