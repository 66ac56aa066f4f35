"""Members of requests: base64, numbers of 64 bits, enums and lists."""

import base64
from enum import IntEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.layer.kv.errors import KvInvalid, TooManyOperations
from holdfast.state.protocol.etcd.wire.base64_text import decoded
from holdfast.state.protocol.etcd.wire.errors import WrongType
from holdfast.state.protocol.etcd.wire.field import (
    Message,
    enum_reader,
    list_reader,
    read_bool,
    read_bytes,
    read_int64,
)

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class Color(IntEnum):
    RED = 0
    BLUE = 1


class Paint(NamedTuple):
    key: bytes = b""
    how_thick: int = 7


COLORS = enum_reader(Color, "paint.Color")
PAINT = Message(Paint, {"key": read_bytes, "how_thick": read_int64})


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b""),
        ("YQ==", b"a"),
        ("YQ", b"a"),
        ("YWI=", b"ab"),
        ("YWI", b"ab"),
        ("YWJj", b"abc"),
        ("//4=", b"\xff\xfe"),
        ("__4=", b"\xff\xfe"),
        ("__4", b"\xff\xfe"),
        ("-_-_", b"\xfb\xff\xbf"),
        ("YR==", b"a"),
        ("YW\r\nJj\n", b"abc"),
        ("Y\nQ==", b"a"),
        ("YQ=\n=", b"a"),
    ],
)
def test_base64_is_read_in_both_alphabets_padded_or_not(text: str, data: bytes) -> None:
    assert read_bytes(text) == data


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("!!!", 0),
        ("!!!!", 0),
        ("Y", 0),
        ("YWJjY", 4),
        ("YWJjYW!j", 6),
        ("=", 0),
        ("Y===", 1),
        ("YQ=", 3),
        ("YQ=a", 2),
        ("YQ===", 4),
        ("YQ==YQ==", 4),
        ("YWJj=", 4),
        ("YWJj====", 4),
        ("YWI=YWI=", 4),
        ("YWI==", 4),
        ("YW J", 2),
        ("YWJjé===", 4),
        ("\ud800", 0),
        ("YWJj" * 1000 + "*", 4000),
    ],
)
def test_what_is_no_base64_is_refused_with_its_offset(text: str, offset: int) -> None:
    with pytest.raises(KvInvalid) as refused:
        read_bytes(text)

    assert refused.value.detail == f"illegal base64 data at input byte {offset}"


@given(st.binary(max_size=40), st.booleans(), st.booleans())
def test_all_that_can_be_written_is_read(data: bytes, is_url_safe: bool, is_padded: bool) -> None:
    text = (base64.urlsafe_b64encode if is_url_safe else base64.b64encode)(data).decode()

    assert decoded(text if is_padded else text.rstrip("=")) == data


def _strict(text: str) -> bytes | None:
    """Letter by letter, as the rule has it."""
    plain = "".join(letter for letter in text if letter not in "\r\n").replace("-", "+").replace("_", "/")
    data = plain.rstrip("=")
    padding = len(plain) - len(data)
    if len(data) % 4 == 1 or padding not in (0, -len(data) % 4) or any(one not in ALPHABET for one in data):
        return None
    bits = "".join(f"{ALPHABET.index(letter):06b}" for letter in data)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) // 8 * 8, 8))


@given(st.text("Aa9+/-_=\n*é", max_size=12))
def test_nothing_else_is_read(text: str) -> None:
    expected = _strict(text)

    if expected is not None:
        assert decoded(text) == expected
    else:
        with pytest.raises(KvInvalid) as refused:
            decoded(text)
        offset = int(refused.value.detail.rpartition(" ")[2])
        assert 0 <= offset <= len(text.encode())


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0),
        (-5, -5),
        ("0", 0),
        ("-7", -7),
        (2**63 - 1, 2**63 - 1),
        (str(2**63 - 1), 2**63 - 1),
        (-(2**63), -(2**63)),
        (str(-(2**63)), -(2**63)),
        (6879426421624451362, 6879426421624451362),
        (3.0, 3),
        (1e15, 10**15),
        (float(2**53), 2**53),
    ],
)
def test_a_number_of_64_bits_is_a_number_or_a_text(value: Any, number: int) -> None:
    found = read_int64(value)

    assert (found, type(found)) == (number, int)


@pytest.mark.parametrize(
    "value",
    [
        *(2**63, -(2**63) - 1, 10**4000, 1.5, 1e30, float("inf"), True, False, [], {}),
        *(
            "",
            " 1",
            "1 ",
            "+1",
            "1_000",
            "0x10",
            "1.0",
            "1e3",
            "٣",
            "007",
            "-",
            "nan",
            str(2**63),
            "9" * 5000,
        ),
    ],
)
def test_what_is_no_number_of_64_bits_is_refused(value: Any) -> None:
    with pytest.raises(KvInvalid) as refused:
        read_int64(value)

    assert len(refused.value.detail) < 120


@pytest.mark.parametrize(
    ("read", "value", "text"),
    [
        (read_bytes, 1, "json: cannot unmarshal number into Go value of type []uint8"),
        (read_bytes, True, "json: cannot unmarshal bool into Go value of type []uint8"),
        (read_bytes, {}, "json: cannot unmarshal object into Go value of type []uint8"),
        (read_bytes, [1], "json: cannot unmarshal array into Go value of type []uint8"),
        (read_bool, 1, "json: cannot unmarshal number 1 into Go value of type bool"),
        (read_bool, "true", "json: cannot unmarshal string into Go value of type bool"),
        (read_int64, 1.5, "json: cannot unmarshal number 1.5 into Go value of type int64"),
        (read_int64, True, "json: cannot unmarshal bool into Go value of type int64"),
        (COLORS, True, "json: cannot unmarshal bool into Go value of type int32"),
        (COLORS, 1.0, "json: cannot unmarshal number 1.0 into Go value of type int32"),
        (PAINT.of, [], "json: cannot unmarshal array into Go value of type map[string]json.RawMessage"),
    ],
)
def test_a_wrong_type_is_refused_in_the_words_of_go(read: Any, value: Any, text: str) -> None:
    with pytest.raises(WrongType) as refused:
        read(value)

    assert refused.value.detail == text


def test_enums_are_names_or_numbers() -> None:
    assert [COLORS(value) for value in ("RED", "BLUE", 0, 1)] == [
        Color.RED,
        Color.BLUE,
        Color.RED,
        Color.BLUE,
    ]
    for unknown in ("red", "GREEN", "1", 2, -1, "x" * 10_000):
        with pytest.raises(KvInvalid, match=r"^unknown value .* for enum paint\.Color$"):
            COLORS(unknown)


def test_lists_are_bounded_and_null_in_them_has_no_members() -> None:
    read = list_reader(PAINT.of, 2, TooManyOperations)

    assert read([None, {"howThick": 1}]) == (Paint(), Paint(how_thick=1))
    with pytest.raises(TooManyOperations):
        read([{}, {}, {}])
    with pytest.raises(WrongType):
        read({})


def test_members_have_both_spellings_and_those_that_are_unknown_or_null_are_ignored() -> None:
    assert PAINT.of({"key": "YQ==", "how_thick": "1"}) == Paint(b"a", 1)
    assert PAINT.of({"howThick": 2}) == Paint(how_thick=2)
    assert PAINT.of({"key": None, "how_thick": None, "HowThick": 3, "other": [{}]}) == Paint()
    assert type(PAINT.of({})) is Paint
