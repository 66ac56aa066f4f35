"""Any text is answered: with a result, or with an error of the language."""

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.lql.errors import LqlError
from holdfast.lql.mutation.application import apply_mutations
from holdfast.lql.mutation.text import Mode
from holdfast.lql.selector.evaluation import matches
from holdfast.lql.selector.json import Json, selector_from_json, selector_to_json
from holdfast.lql.selector.text import parse_selector
from holdfast.lql.selector.url import selector_from_parameters
from tests.infra.examples import examples

PIECES = st.sampled_from(
    ["and", "or", "not", "eq", "range", "in", "exists", "contains", "date", "field", "value", "any", "gte", "f", "v", "0", "7",
     ".", ".", "{", "}", "=", "=", ",", "\n", " ", "/", "/a", "/b", "*", "...", "[]", '"', "'", "\\", "|", "<", ">=", "!=",
     "rm:", "time:", "NOW", "++", "--", "+1", "-0", "1e999", "inf", "2025-01-01", "x", "\x00", "ü", "\ud800"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=14).map("".join)
NODES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["and", "OR", "not", "eq", "range", "in", "exists", "contains", "date", "field",
                                       "value", "any", "gte", "lt", "since", "ignoreCase"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=examples(500), deadline=None)
@given(TEXTS)
def test_any_selector_text_is_answered(text: str) -> None:
    with suppress(LqlError):
        selector = parse_selector(text)
        assert matches(selector, {"a": {"b": "x"}}, now_ns=0) in (True, False)
        assert selector_from_json(selector_to_json(selector)) == selector


@settings(deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=3))
def test_any_url_parameters_are_answered(parameters: list[tuple[str, str]]) -> None:
    with suppress(LqlError):
        selector_from_parameters(parameters)


@settings(deadline=None)
@given(NODES)
def test_any_json_is_answered(node: Json) -> None:
    with suppress(LqlError):
        assert matches(selector_from_json(node), {"a": 1}, now_ns=0) in (True, False)


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(TEXTS, max_size=3), st.sampled_from(Mode))
def test_any_mutations_are_answered_with_json(expressions: list[str], mode: Mode) -> None:
    with suppress(LqlError):
        changed = apply_mutations(b'{"a":{"b":[1,{"x":2}]},"x":1}', expressions, now_ns=0, mode=mode)
        assert isinstance(json.loads(changed), dict)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from([*'{}[],:"\\ax1. \n', '"a"', '"a":']), max_size=20).map("".join))
def test_any_bytes_as_a_document_are_answered(text: str) -> None:
    with suppress(LqlError):
        apply_mutations(text.encode(), ["/a/b=1", "/*/x++", "rm:/.../y"], now_ns=0)
