"""Durations and sizes are read as people write them and written so that they read back the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from holdfast.common.settings.value import DurationS, SizeBytes
from holdfast.common.sizes import (
    format_duration,
    format_size,
    parse_duration_s,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("30s", 30.0, "30s"),
        ("5m0s", 300.0, "5m0s"),
        ("1h30m", 5400.0, "1h30m0s"),
        ("250ms", 0.25, "250ms"),
        ("0s", 0.0, "0s"),
        ("0", 0.0, "0s"),
        ("1.5h", 5400.0, "1h30m0s"),
        (".5s", 0.5, "500ms"),
        ("1m0.1s", 60.1, "1m0.1s"),
        ("-1s", -1.0, "-1s"),
        ("+2s", 2.0, "2s"),
        ("15", 15.0, "15s"),
        (" 2.5 ", 2.5, "2.5s"),
        ("1500ms", 1.5, "1.5s"),
        ("1us", 1e-6, "1µs"),
        ("1µs", 1e-6, "1µs"),
        ("3ns", 3e-9, "3ns"),
        ("24h", 86400.0, "24h0m0s"),
    ],
)
def test_durations_are_read_and_written_the_go_way(text: str, seconds: float, shown: str) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)
    assert format_duration(parse_duration_s(text)) == shown


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s",
        "-",
        "5x",
        "5 s",
        "1h-5m",
        "1e5",
        "nan",
        "inf",
        "1s1",
        "--1s",
        "9" * 70,
        "9999999999h",
        "1٣s",
        True,
        None,
        [],
        {},
    ],
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as"):
        parse_duration_s(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_numbers_out_of_range_are_no_durations(value: float) -> None:
    with pytest.raises(ValueError, match="292 years"):
        parse_duration_s(value)


@settings(deadline=None)
@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_a_written_duration_reads_back_the_same(microseconds: int) -> None:
    seconds = microseconds / 1e6

    assert parse_duration_s(format_duration(seconds)) == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("100MB", 100_000_000),
        ("64MiB", 64 << 20),
        ("4.2MB", 4_200_000),
        ("123", 123),
        ("0", 0),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5GiB", 3 << 29),
        ("100 mb", 100_000_000),
        ("8.1PB", 8_100_000_000_000_000),
        (".5kB", 500),
    ],
)
def test_sizes_are_read(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "value", ["", "MB", "-1", "1XB", "1e3", "12parsecs", "1.2.3", "9" * 30, "9" * 70, True, None, -1]
)
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a size such as"):
        parse_size_bytes(value)


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(0, "0B"), (1, "1B"), (1000, "1kB"), (1024, "1KiB"), (100 << 20, "100MiB"), (4_200_000, "4200kB")],
)
def test_sizes_are_written_in_the_shortest_exact_unit(size_bytes: int, shown: str) -> None:
    assert format_size(size_bytes) == shown


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_a_written_size_reads_back_the_same(size_bytes: int) -> None:
    assert parse_size_bytes(format_size(size_bytes)) == size_bytes


def test_both_work_as_fields_of_a_model() -> None:
    class Limits(BaseModel):
        wait_s: DurationS
        body_bytes: SizeBytes

    limits = Limits.model_validate({"wait_s": "5m", "body_bytes": "1MiB"})

    assert (limits.wait_s, limits.body_bytes) == (300.0, 1 << 20)
    assert limits.model_dump_json() == '{"wait_s":"5m0s","body_bytes":"1MiB"}'
    with pytest.raises(ValidationError):
        Limits.model_validate({"wait_s": "soon", "body_bytes": 1})
