"""Rows cut from pieces: any cut gives the same rows, and nothing that is no row passes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client import UnexpectedAnswer
from holdfast.client.query.rows import Row, RowReader

LINES = (
    b'{"ns":"default","key":"orders/1","ver":42,"doc":{"n":1.50,"s":"}\\"\\n"}}\n'
    b"\n"
    b' { "ns" : "d\\u00e9" , "key" : "k" , "doc" : [1, 2] } \r\n'
    b'{"ns":"default","key":"last","ver":7,"doc":null}'
)
ROWS = [
    Row("default", "orders/1", 42, b'{"n":1.50,"s":"}\\"\\n"}'),
    Row("dé", "k", 0, b"[1, 2]"),
    Row("default", "last", 7, b"null"),
]


def read(*pieces: bytes, document_bytes_max: int = 1000) -> list[Row]:
    reader = RowReader(document_bytes_max)
    rows = [row for piece in pieces for row in reader.feed(piece)]
    return [*rows, *reader.finish()]


@given(st.lists(st.integers(0, len(LINES)), max_size=8))
def test_rows_are_the_same_wherever_the_pieces_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(LINES)]

    rows = read(*(LINES[start:end] for start, end in pairwise(places)))

    assert rows == ROWS


def test_a_row_gives_its_document_decoded() -> None:
    assert read(LINES)[0].json() == {"n": 1.5, "s": '}"\n'}


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b'{"key":"k","ns":"default","doc":{}}\n',
        b'{"ns":"default","key":"k","ver":1}\n',
        b'{"ns":"default","key":"k","ver":-1,"doc":{}}\n',
        b'{"ns":"default","key":"k","ver":1,"doc":}\n',
        b'{"ns":"default","key":"k","ver":1,"doc":{"a":1\n',
        b'{"ns":"\xff","key":"k","doc":{}}\n',
        b'{"ns":"default","key":"k","doc":',
    ],
)
def test_what_is_no_row_is_refused(line: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        read(line)


def test_a_document_above_the_limit_is_refused_before_it_is_complete() -> None:
    reader = RowReader(1000)
    list(reader.feed(b'{"ns":"default","key":"k","doc":"'))

    with pytest.raises(UnexpectedAnswer, match="larger than 1000 bytes"):
        list(reader.feed(b"x" * 100_000))
