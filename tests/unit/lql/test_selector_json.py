"""Selectors from request bodies and from the URL."""

import pytest

from holdfast.lql.errors import InvalidSelector, LqlError, MalformedSelector
from holdfast.lql.selector.json import Json, selector_from_json, selector_from_json_text, selector_to_json
from holdfast.lql.selector.url import selector_from_parameters


@pytest.mark.parametrize(
    ("body", "ast"),
    [
        (None, {}),
        ({"foo": 1}, {}),
        ({"eq": None, "and": [], "or": []}, {}),
        ({"or": [{}]}, {}),
        ({"and": [None]}, {}),
        ({"EQ": {"Field": " /a ", "VALUE": 19.95}}, {"eq": {"field": "/a", "value": "19.95"}}),
        ({"eq": {"field": "/a", "value": 1e3}}, {"eq": {"field": "/a", "value": "1000"}}),
        ({"eq": {"field": "/a", "value": True}}, {"eq": {"field": "/a", "value": "true"}}),
        ({"prefix": {"field": "/a", "value": None}}, {"prefix": {"field": "/a", "value": ""}}),
        ({"eq": {"field": "/a", "value": "0150"}}, {"eq": {"field": "/a", "value": "0150"}}),
        ({"range": {"field": "/a", "gte": "2025-01-01"}}, {"range": {"field": "/a", "gte": "2025-01-01"}}),
        ({"contains": {"field": "/a"}}, {"contains": {"field": "/a"}}),
        (
            {"exists": "/a", "not": {"exists": "/b"}},
            {"and": [{"exists": "/a"}, {"not": {"exists": "/b"}}]},
        ),
    ],
)
def test_a_body_means(body: Json, ast: Json) -> None:
    assert selector_to_json(selector_from_json(body)) == ast


@pytest.mark.parametrize(
    "body",
    [
        [], "x", 1, {"and": {}}, {"or": [1]}, {"not": []}, {"exists": 1}, {"eq": "x"}, {"eq": {"value": "x"}},
        {"eq": {"field": "", "value": "x"}}, {"eq": {"field": 1}}, {"eq": {"field": "/a", "value": {}}},
        {"in": {"field": "/a", "any": [1]}}, {"in": {"field": "/a"}}, {"range": {"field": "/a"}},
        {"range": {"field": "/a", "gt": "x"}}, {"range": {"field": "/a", "gt": True}},
        {"range": {"field": "/a", "gt": 1, "lt": "2025-01-01"}}, {"date": {"field": "/a", "after": "x"}},
        {"date": {"field": "/a"}}, {"contains": {"field": "/a", "value": "x", "any": ["y"]}},
        {"contains": {"field": "/a", "any": []}}, {"contains": {"field": "/a", "ignoreCase": 1}},
        {"eq": {"field": "/a", "value": 10**400}}, {"range": {"field": "/a", "gt": float("inf")}},
    ],
)  # fmt: skip
def test_a_body_of_the_wrong_shape_is_an_invalid_body(body: Json) -> None:
    with pytest.raises(MalformedSelector) as caught:
        selector_from_json(body)

    assert (caught.value.code, caught.value.status) == ("invalid_body", 400)


@pytest.mark.parametrize("body", [{"exists": "a"}, {"not": {"or": [{"eq": {"field": "a"}}]}}])
def test_a_pointer_without_a_slash_is_an_invalid_selector_anywhere(body: Json) -> None:
    with pytest.raises(InvalidSelector):
        selector_from_json(body)


@pytest.mark.parametrize(
    "text", ["", "/a=1", "[]", '{"eq":{}}', '{"eq":{"field":"/a","value":NaN}}', "[" * 5000]
)
def test_the_url_parameter_holds_json_only(text: str) -> None:
    with pytest.raises(InvalidSelector):
        selector_from_json_text(text)


def test_nesting_ends_with_an_error() -> None:
    body: Json = {}
    for _ in range(101):
        body = {"not": body}

    with pytest.raises(LqlError, match="at most 100 deep"):
        selector_from_json(body)


@pytest.mark.parametrize(
    ("parameters", "ast"),
    [
        (
            [("in.field", "/e"), ("in.any.1", "b"), ("in.any.0", "a")],
            {"in": {"field": "/e", "any": ["a", "b"]}},
        ),
        ([("in.field", "/e"), ("in.any", "a|b")], {"in": {"field": "/e", "any": ["a", "b"]}}),
        ([("eq{field=/a,value=x}", "")], {"eq": {"field": "/a", "value": "x"}}),
        ([("eq.field", "/a"), ("eq.value", "a, b c")], {"eq": {"field": "/a", "value": "a, b c"}}),
        ([("limit", "5"), ("eqx.field", "/a")], {}),
        ([("exists", "")], {}),
        ([("not.exists", " ")], {"not": {}}),
        (
            [("exists", "/s"), ("or.3.exists", "/a"), ("or.9.exists", "/b")],
            {"and": [{"exists": "/s"}, {"or": [{"exists": "/a"}, {"exists": "/b"}]}]},
        ),
    ],
)
def test_url_parameters_mean(parameters: list[tuple[str, str]], ast: Json) -> None:
    assert selector_to_json(selector_from_parameters(parameters)) == ast


@pytest.mark.parametrize(
    "parameters",
    [
        [("eq", "/a")], [("eq.field", "/a"), ("eq.field", "/b")], [("in.any.x", "a"), ("in.field", "/a")],
        [("eq.any.0", "a")], [("exists", "a")], [("eq{field=/a}", "x")], [("and", "x")],
        [("in.field", "/a"), ("in.any", "a"), ("in.any.0", "b")], [("and.eq.field", "/a"), ("and.eq.value", "x")],
    ],
)  # fmt: skip
def test_url_parameters_are_refused(parameters: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidSelector):
        selector_from_parameters(parameters)
