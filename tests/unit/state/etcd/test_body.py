"""Bodies of requests: what is JSON, and in which words it is refused that it is not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.layer.kv.errors import KvInvalid, KvRequestTooLarge
from holdfast.state.protocol.etcd.wire.body import STREAM_OBJECTS_MAX, object_of, objects_of
from holdfast.state.protocol.etcd.wire.errors import WrongType
from holdfast.state.protocol.etcd.wire.syntax import SCANNED_BYTES_MAX, fault_of

VALUE = "looking for beginning of value"
KEY = "looking for beginning of object key string"
FAULTS = [
    (b"{bad", f"invalid character 'b' {KEY}"),
    (b"{", "unexpected EOF"),
    (b'{"a"', "unexpected EOF"),
    (b'{"a":', "unexpected EOF"),
    (b'{"a":1', "unexpected EOF"),
    (b'{"a":"x', "unexpected EOF"),
    (b"[1", "unexpected EOF"),
    (b"tru", "unexpected EOF"),
    (b"-", "unexpected EOF"),
    (b"1.", "unexpected EOF"),
    (b"1e", "unexpected EOF"),
    (b'"\\', "unexpected EOF"),
    (b'"\\u12', "unexpected EOF"),
    (b"x", f"invalid character 'x' {VALUE}"),
    (b"[,", f"invalid character ',' {VALUE}"),
    (b"[1,]", f"invalid character ']' {VALUE}"),
    (b"{,}", f"invalid character ',' {KEY}"),
    (b'{"a":1,}', f"invalid character '}}' {KEY}"),
    (b'{"a":}', f"invalid character '}}' {VALUE}"),
    (b'{"a":[}', f"invalid character '}}' {VALUE}"),
    (b'{"a":{1:2}}', f"invalid character '1' {KEY}"),
    (b'{"a":{},', "unexpected EOF"),
    (b'{"a" 1}', "invalid character '1' after object key"),
    (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
    (b"[1 2]", "invalid character '2' after array element"),
    (b"{}x", "invalid character 'x' after top-level value"),
    (b"{} {}", "invalid character '{' after top-level value"),
    (b"01", "invalid character '1' after top-level value"),
    (b"nul!", "invalid character '!' in literal null (expecting 'l')"),
    (b"True", f"invalid character 'T' {VALUE}"),
    (b"trap", "invalid character 'a' in literal true (expecting 'u')"),
    (b"fals3", "invalid character '3' in literal false (expecting 'e')"),
    (b'{"a":NaN}', f"invalid character 'N' {VALUE}"),
    (b'{"a":-Infinity}', "invalid character 'I' in numeric literal"),
    (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
    (b"1e+x", "invalid character 'x' in exponent of numeric literal"),
    (b'"a\nb"', "invalid character '\\n' in string literal"),
    (b'"a\x01b"', "invalid character '\\x01' in string literal"),
    (b'"\\x"', "invalid character 'x' in string escape code"),
    (b'"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
    (b"'a'", f"invalid character '\\'' {VALUE}"),
    (b"\\", f"invalid character '\\\\' {VALUE}"),
    (b"\xef\xbb\xbf{}", f"invalid character 'ï' {VALUE}"),
    (b"\x80", f"invalid character '\\u0080' {VALUE}"),
    (b"\x00{}", f"invalid character '\\x00' {VALUE}"),
]


@pytest.mark.parametrize(("body", "text"), FAULTS)
def test_what_is_no_json_is_refused_in_the_words_of_go(body: bytes, text: str) -> None:
    with pytest.raises(KvInvalid) as refused:
        object_of(body)

    assert refused.value.detail == text


@given(st.binary(max_size=60) | st.text('{}[]:,"\\ue0123456789abtrlfs-+. \n', max_size=40).map(str.encode))
def test_a_fault_is_found_in_every_text_that_is_none(text: bytes) -> None:
    """Of the texts that Python takes for JSON there is nothing to be said, but what the caller says."""
    told = fault_of(text, ValueError("nothing"))

    try:
        json.loads(text.decode("latin-1"), parse_constant=pytest.fail)
    except (ValueError, pytest.fail.Exception):
        assert told != "invalid JSON: nothing"
    else:
        assert told == "invalid JSON: nothing"


@pytest.mark.parametrize("body", [b"", b" ", b"\r\n\t ", b"{}", b' {"a":null} '])
def test_no_body_is_an_empty_object(body: bytes) -> None:
    assert {name for name, value in object_of(body).items() if value is not None} == set()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"[]", "array"),
        (b"1", "number"),
        (b"1e400", "number"),
        (b'"a"', "string"),
        (b"true", "bool"),
        (b"null", "value"),
    ],
)
def test_what_is_no_object_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(WrongType, match=rf"^json: cannot unmarshal {kind} into Go value of type map"):
        object_of(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b"[" * 500_000,
        b'{"a":' + b"9" * 5000 + b"}",
        b"[1," * SCANNED_BYTES_MAX,
    ],
)
def test_what_the_parser_alone_refuses_is_refused_too(body: bytes) -> None:
    with pytest.raises(KvInvalid):
        object_of(body)
    with pytest.raises(KvInvalid):
        objects_of(b"{}" + body)


@pytest.mark.parametrize("body", [b'{"a":"\xff"}', b'{"a":"\\ud800"}'])
def test_what_is_no_unicode_is_refused(body: bytes) -> None:
    with pytest.raises(KvInvalid, match=r"^invalid JSON: "):
        object_of(body)


@pytest.mark.parametrize(
    "body", [b'{"a":1}{"b":2}', b' {"a":1} {"b":2} ', b'{"a":1}\n{"b":2}\n', b'\r\n{"a":1}\t{"b":2}']
)
def test_a_stream_of_requests_is_one_after_the_other(body: bytes) -> None:
    assert objects_of(body) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"a":1}{bad', f"invalid character 'b' {KEY}"),
        (b'{"a":1},{}', f"invalid character ',' {VALUE}"),
        (b'{"a":1}{"b":NaN}', f"invalid character 'N' {VALUE}"),
        (b'{"a":1}{', "unexpected EOF"),
        (b'{"a":1}[]', "json: cannot unmarshal array into Go value of type map[string]json.RawMessage"),
    ],
)
def test_a_stream_is_refused_for_its_first_wrong_request(body: bytes, text: str) -> None:
    with pytest.raises(KvInvalid) as refused:
        objects_of(body)

    assert refused.value.detail == text


def test_a_stream_has_a_bound() -> None:
    assert len(objects_of(b"{}" * STREAM_OBJECTS_MAX)) == STREAM_OBJECTS_MAX
    with pytest.raises(KvRequestTooLarge):
        objects_of(b"{}" * (STREAM_OBJECTS_MAX + 1))
