"""Documents keep how their numbers are spelled, at any depth."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.lql.document.value import (
    NESTING_MAX,
    Number,
    Value,
    _parse_deep,
    encode_document,
    parse_document,
)
from holdfast.lql.errors import InvalidDocument
from tests.unit.lql.strategies import VALUES

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(deadline=None)
@given(VALUES, st.booleans())
def test_what_is_encoded_reads_as_the_same_value(value: Value, is_indented: bool) -> None:
    assert parse_document(encode_document(value, indent=2 if is_indented else 0)) == value


@settings(deadline=None)
@given(JSON, st.sampled_from([None, 2]))
def test_the_parser_for_deep_documents_reads_what_json_reads(value: Value, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)

    assert _parse_deep(text) == parse_document(text)


@settings(deadline=None)
@given(JSON)
def test_indented_and_sorted_it_looks_as_json_would_write_it(value: Value) -> None:
    written = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)

    assert encode_document(parse_document(written), indent=2, sort_keys=True).decode() == written


def test_the_lines_of_an_indented_document() -> None:
    value = parse_document('{"b":[1.50,{}],"a":{"x":[]}}')

    assert encode_document(value, indent=2, sort_keys=True).decode() == (
        '{\n  "a": {\n    "x": []\n  },\n  "b": [\n    1.50,\n    {}\n  ]\n}'
    )


def test_numbers_keep_their_spelling_and_are_no_texts() -> None:
    value = parse_document('[1.50, 1E3, "1.50"]')

    assert value == ["1.50", "1E3", "1.50"]
    assert isinstance(value, list)
    assert [type(item) for item in value] == [Number, Number, str]
    assert encode_document(value) == b'[1.50,1E3,"1.50"]'


def test_plain_numbers_are_written_as_json() -> None:
    assert encode_document([1, 2.0, 0.1, 1e22, -0.0]) == b"[1,2,0.1,1e+22,-0]"


def test_documents_may_be_as_deep_as_the_limit() -> None:
    text = "[" * NESTING_MAX + "]" * NESTING_MAX

    assert encode_document(parse_document(text)).decode() == text
    with pytest.raises(InvalidDocument, match="deep"):
        parse_document(f"[{text}]")


BROKEN = ["", "{", "[1,]", "[,1]", '{"a":1,}', '{"a"}', '{"a":}', '{1:2}', "[1 2]", "]", "1 2", '"\x01"', "01", "nul",
          "NaN", "[Infinity]", "{,}", "[}", '{"a":1]', ":", ",", '"x']  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidDocument):
        parse_document(text)
    with pytest.raises(ValueError, match=r"."):
        _parse_deep(text)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidDocument):
        parse_document(b'"\xff"')
