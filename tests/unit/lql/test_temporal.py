"""Dates, times, numbers and pointers: the small parts."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.lql.number import json_number, parse_float, parse_integer, plain_decimal
from holdfast.lql.pointer import PointerSyntaxError, Wildcard, parse_pointer
from holdfast.lql.temporal import format_utc, parse_temporal


@settings(deadline=None)
@given(st.datetimes(timezones=st.just(UTC)))
def test_an_instant_is_written_and_read_as_the_same(moment: datetime) -> None:
    instant_ns = ((moment - datetime(1970, 1, 1, tzinfo=UTC)) // (moment.resolution)) * 1000

    written = format_utc(instant_ns)

    assert written is not None
    assert datetime.fromisoformat(written) == moment
    read = parse_temporal(written)
    assert read is not None
    assert read.instant_ns == instant_ns


@pytest.mark.parametrize(
    "text",
    ["", "2025", "2025-1-1", "2025-02-29", "2025-13-01", "2025-00-01", "2025-01-00", "2025-01-01T24:00:00Z",
     "2025-01-01T00:60:00Z", "2025-01-01T00:00:60Z", "2025-01-01T00:00:00+24:00", "2025-01-01T00:00:00+00:60",
     "2025-01-01t00:00:00z", "2025-01-01 00:00:00Z", "2025-01-01T00:00:00.Z", "2025-01-01T00:00Z", "1900-02-29",
     "٢٠٢٥-01-01", "2025-01-01Z", "x2025-01-01"],
)  # fmt: skip
def test_text_that_is_no_date_or_time(text: str) -> None:
    assert parse_temporal(text) is None


@pytest.mark.parametrize("text", ["2024-02-29", "2000-02-29", "0000-01-01", "9999-12-31T23:59:59.999999999Z"])
def test_text_that_is_one(text: str) -> None:
    assert parse_temporal(text) is not None


def test_years_beyond_four_digits_are_not_written() -> None:
    assert format_utc(253_402_300_800 * 10**9) is None
    assert format_utc(-62_167_219_201 * 10**9) is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [("007", "7"), ("1.50", "1.5"), ("1e3", "1000"), ("+5", "5"), ("-0", "-0"), (".5", "0.5"), ("5.", "5"),
     ("1e-7", "0.0000001"), ("1_0.0_1e1_0", "100100000000"), ("1e21", "1" + "0" * 21), ("0.1", "0.1")],
)  # fmt: skip
def test_numbers_are_written_without_an_exponent(text: str, plain: str) -> None:
    number = parse_float(text)

    assert number is not None
    assert plain_decimal(number) == plain


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "+",
        "e5",
        "1e",
        "1_",
        "_1",
        "1__0",
        "1_.0",
        "1._0",
        "0x10",
        "inf",
        "nan",
        "1e400",
        "1 ",
        "١",
        "--1",
    ],
)
def test_text_that_is_no_number(text: str) -> None:
    assert parse_float(text) is None


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_written_and_read_as_the_same(number: float) -> None:
    assert parse_float(plain_decimal(number)) == number
    assert float(json_number(number)) == number


def test_integers_end_at_64_bits_and_may_have_zeros_in_front() -> None:
    assert parse_integer("-" + "0" * 100 + "9223372036854775808") == -(2**63)
    assert parse_integer("9223372036854775808") is None
    assert parse_integer("1_000") is None
    assert parse_integer("+") is None


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("", ()),
        (" / ", ()),
        ("/a/b", ("a", "b")),
        ("//", ("", "")),
        ("/x/", ("x", "")),
        ("/a~1b/m~0n/~01/~2/~", ("a/b", "m~n", "~1", "~2", "~")),
        ("/items[]/sku", ("items", Wildcard.ELEMENTS, "sku")),
        ("/m[][]", ("m", Wildcard.ELEMENTS, Wildcard.ELEMENTS)),
        ("/[]/*/**/...", (Wildcard.ELEMENTS, Wildcard.MEMBERS, Wildcard.CHILDREN, Wildcard.DESCENDANTS)),
        ("/a*/...b", ("a*", "...b")),
    ],
)
def test_a_pointer_has_segments(text: str, segments: tuple[object, ...]) -> None:
    assert parse_pointer(text).segments == segments


@pytest.mark.parametrize("text", ["a", "a/b", "/a" * 257, "/a" + "[]" * 256])
def test_text_that_is_no_pointer(text: str) -> None:
    with pytest.raises(PointerSyntaxError):
        parse_pointer(text)
