"""What `holdfast kv` prints: no key or value is obeyed by a terminal, and no integer is rounded."""

import pytest

from holdfast.cli.kv.print import Look, for_terminal, kv_lines, with_numbers
from holdfast.client import KeyValue


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain", "plain"),
        ("schön 😀".encode(), "schön 😀"),
        (b"two\n\tlines", "two\n\tlines"),
        (b"\xff\x00z", "\\xff\\x00z"),
        (b"\x1b[31mred", "\\x1b[31mred"),
        (b"\xc3", "\\xc3"),
        ("\u202e".encode(), "\\u202e"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(data: bytes, shown: str) -> None:
    assert for_terminal(data) == shown


@pytest.mark.parametrize(
    ("look", "lines"),
    [
        (Look(), [b"k", b"\xff"]),
        (Look(keys=False), [b"\xff"]),
        (Look(values=False), [b"k"]),
        (Look(is_hex=True), [b"\\x6b", b"\\xff"]),
    ],
)
def test_a_key_and_its_value_have_a_line_each(look: Look, lines: list[bytes]) -> None:
    assert list(kv_lines(KeyValue(b"k", b"\xff"), look)) == lines


def test_integers_are_printed_as_integers() -> None:
    raw = {
        "header": {"cluster_id": "18446744073709551615"},
        "kvs": [{"key": "MTI=", "lease": "7"}],
        "count": "1",
    }

    assert with_numbers(raw) == {
        "header": {"cluster_id": 18446744073709551615},
        "kvs": [{"key": "MTI=", "lease": 7}],
        "count": 1,
    }
