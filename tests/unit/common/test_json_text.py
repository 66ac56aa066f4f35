"""JSON text is refused or compacted exactly as a slow reader does it that goes byte by byte."""

import json
import random
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.common.errors import InvalidBody
from holdfast.common.json_text import Compactor, compact
from tests.infra.examples import examples


class Refused(Exception):
    """The reference does not take the text."""


class Reference:
    """A recursive reader of RFC 8259, one byte at a time; collects what is not white space."""

    def __init__(self, text: bytes) -> None:
        try:
            text.decode()
        except UnicodeDecodeError:
            raise Refused from None
        self._text = text
        self._at = 0
        self._output = bytearray()

    def compact(self) -> bytes:
        self._value()
        self._skip()
        if self._at != len(self._text):
            raise Refused
        return bytes(self._output)

    def _peek(self) -> bytes:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        while self._peek() and self._peek() in b" \t\n\r":
            self._at += 1

    def _take(self, allowed: bytes) -> bytes:
        byte = self._peek()
        if not byte or byte not in allowed:
            raise Refused
        self._at += 1
        self._output += byte
        return byte

    def _value(self) -> None:
        self._skip()
        start = self._peek()
        if start == b"{":
            self._container(b"}", self._member)
        elif start == b"[":
            self._container(b"]", self._value)
        elif start == b'"':
            self._string()
        elif start and start in b"tfn":
            for letter in {b"t": b"true", b"f": b"false", b"n": b"null"}[start]:
                self._take(bytes([letter]))
        else:
            self._number()

    def _container(self, end: bytes, item: Callable[[], None]) -> None:
        self._take(b"{[")
        self._skip()
        if self._peek() == end:
            self._take(end)
            return
        while True:
            item()
            self._skip()
            if self._take(b"," + end) == end:
                return

    def _member(self) -> None:
        self._skip()
        self._string()
        self._skip()
        self._take(b":")
        self._value()

    def _string(self) -> None:
        self._take(b'"')
        while self._peek() != b'"':
            if self._peek() == b"\\":
                self._take(b"\\")
                if self._take(b'"\\/bfnrtu') == b"u":
                    for _ in range(4):
                        self._take(b"0123456789abcdefABCDEF")
            else:
                self._take(bytes(range(0x20, 0x100)))
        self._take(b'"')

    def _digits(self) -> None:
        self._take(b"0123456789")
        while self._peek() and self._peek() in b"0123456789":
            self._take(b"0123456789")

    def _number(self) -> None:
        if self._peek() == b"-":
            self._take(b"-")
        if self._peek() == b"0":
            self._take(b"0")
        else:
            self._digits()
        if self._peek() == b".":
            self._take(b".")
            self._digits()
        if self._peek() and self._peek() in b"eE":
            self._take(b"eE")
            if self._peek() and self._peek() in b"+-":
                self._take(b"+-")
            self._digits()


def reference(text: bytes) -> bytes | None:
    """The compacted text; None when it is refused."""
    try:
        return Reference(text).compact()
    except Refused:
        return None


def compacted(text: bytes) -> bytes | None:
    """As the reference, by the function under test."""
    try:
        return compact(text)
    except InvalidBody:
        return None


def streamed(pieces: Iterable[bytes]) -> bytes | None:
    """As the reference, by the compactor under test."""
    compactor = Compactor()
    try:
        return b"".join([*map(compactor.feed, pieces), compactor.finish()])
    except InvalidBody:
        return None


def cut(text: bytes, borders: Iterable[int]) -> list[bytes]:
    """The text in pieces that end at the borders."""
    places = [0, *sorted(border % (len(text) + 1) for border in borders), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


white_space = st.text(" \t\n\r", max_size=3).map(str.encode)
number = st.from_regex(rb"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
string_part = st.one_of(
    st.characters(codec="utf-8", min_codepoint=0x20, exclude_characters='"\\').map(str.encode),
    st.sampled_from(
        [b'\\"', b"\\\\", b"\\/", b"\\n", b"\\u00e9", b"\\ud800", b"\\uD83D\\uDE00", b" ", b"\\u0000"]
    ),
)
string = st.lists(string_part, max_size=6).map(lambda parts: b'"' + b"".join(parts) + b'"')
scalar = st.one_of(st.sampled_from([b"true", b"false", b"null"]), number, string)


def _array(parts: list[tuple[bytes, bytes, bytes]], space: bytes) -> bytes:
    return b"[" + space + b",".join(b"".join(part) for part in parts) + b"]"


def _record(parts: list[tuple[bytes, bytes, bytes, bytes]], space: bytes) -> bytes:
    members = (before + name + after + b":" + value for before, name, after, value in parts)
    return b"{" + space + b",".join(members) + space + b"}"


def _containers(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    arrays = st.builds(_array, st.lists(st.tuples(white_space, inner, white_space), max_size=4), white_space)
    members = st.tuples(white_space, string, white_space, inner)
    return arrays | st.builds(_record, st.lists(members, max_size=4), white_space)


value = st.recursive(scalar, _containers, max_leaves=14)
document = st.tuples(white_space, value, white_space).map(b"".join)


def _mutated(text: bytes, at: int, count: int, new: bytes) -> bytes:
    at %= len(text) + 1
    return text[:at] + new + text[at + count :]


broken = st.builds(
    _mutated,
    document,
    st.integers(0, 1000),
    st.integers(0, 3),
    st.one_of(
        st.binary(max_size=2),
        st.lists(st.sampled_from(list(b'[]{},:"\\ -+.0123eEtruefalsn\n\x00\x1f\xc3\xa9')), max_size=4).map(
            bytes
        ),
        st.sampled_from(
            [b"NaN", b"Infinity", b"-Infinity", b"\xed\xa0\x80", b"\xc0\x80", b"//", b"\xef\xbb\xbf"]
        ),
    ),
)
borders = st.lists(st.integers(0, 1000), max_size=5)


@given(document, borders)
@settings(max_examples=examples(400), deadline=None)
def test_a_document_is_compacted_as_the_reference_does_it(text: bytes, places: list[int]) -> None:
    expected = Reference(text).compact()

    assert compact(text) == expected
    assert streamed(cut(text, places)) == expected


@given(document)
@settings(max_examples=examples(200), deadline=None)
def test_a_compacted_document_means_the_same_and_stays_as_it_is(text: bytes) -> None:
    once = compact(text)

    assert json.loads(once) == json.loads(text)
    assert compact(once) == once


@given(st.one_of(broken, st.binary(max_size=12)), borders)
@settings(max_examples=examples(800), deadline=None)
@example(b"1 2", [])
@example(b"[1 2]", [])
@example(b'{"a":1,}', [])
@example(b"[tr ue]", [])
@example(b"-", [])
@example(b"\xef\xbb\xbf1", [])
def test_broken_text_is_refused_exactly_when_the_reference_refuses_it(text: bytes, places: list[int]) -> None:
    expected = reference(text)

    assert compacted(text) == expected
    assert streamed(cut(text, places)) == expected


SAMPLES = [
    b' {"a" : [ 1 , -2.50e+10, "x \\" \\\\ \\u00e9 \\/ " , { } , [ ] ] , "\xc3\xa9 \xf0\x9f\x98\x80" : null }\n',
    b"-0.0E-12",
    b" true ",
    b'"\\ud800 \\n lone"',
    b'[[[[[[[[0,1],2],3],4],5],6],{"a":{"b":{"c":{"d":{"e":{"f":[]}}}}}}]]',
]


@pytest.mark.parametrize("text", SAMPLES)
def test_two_cuts_anywhere_change_nothing(text: bytes) -> None:
    expected = Reference(text).compact()

    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1, 3):
            assert streamed([text[:first], text[first:second], text[second:]]) == expected
    assert streamed(bytes([byte]) for byte in text) == expected


@pytest.mark.parametrize("text", SAMPLES)
def test_every_beginning_of_a_document_that_is_not_one_itself_is_refused(text: bytes) -> None:
    for end in range(len(text)):
        expected = reference(text[:end])

        assert compacted(text[:end]) == expected
        assert streamed(bytes([byte]) for byte in text[:end]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{ "b" : 1.10 , "a" : 2.0 }', b'{"b":1.10,"a":2.0}'),
        (b"[ 12345678901234567890 ]", b"[12345678901234567890]"),
        (b'[ "\\u00e9", "\\/", "\xc3\xa9", "<&>" ]', b'["\\u00e9","\\/","\xc3\xa9","<&>"]'),
        (b'{"a": 1, "a": 2}', b'{"a":1,"a":2}'),
        (b'[ "\\ud800" ]', b'["\\ud800"]'),
        (b'{ "a b" : " \\" : , " }', b'{"a b":" \\" : , "}'),
        (b"[1e999, -0, 1E+2]", b"[1e999,-0,1E+2]"),
        (b"\n42\n", b"42"),
        (b'{"a":1}\n', b'{"a":1}'),
    ],
)
def test_nothing_but_white_space_is_lost(text: bytes, expected: bytes) -> None:
    assert compact(text) == expected
    assert streamed([text]) == expected


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        (b"", 0, "ends where a value"),
        (b"  ", 2, "ends where a value"),
        (b'{"a":', 5, "ends where a value"),
        (b'{"a":1', 6, "ends where"),
        (b'["abc', 5, "ends where"),
        (b"1 2", 2, "one JSON value"),
        (b"{} {}", 3, "one JSON value"),
        (b"[1,]", 3, "expected a value"),
        (b"[01]", 2, "cannot stand here"),
        (b"[1.]", 3, "cannot stand here"),
        (b'["\x00"]', 2, "cannot stand here"),
        (b'["\\u12x4"]', 6, "cannot stand here"),
        (b"[nul]", 4, "cannot stand here"),
        (b"[NaN]", 1, "expected a value or ']'"),
        (b'{"a" 1}', 5, "expected ':'"),
        (b'{"a":1,2}', 7, "expected a member name"),
        (b"[1}", 2, "expected ',' or ']'"),
        (b'["\xff"]', 2, "not UTF-8"),
        (b'["\xc3\xa9\xc3"]', 4, "not UTF-8"),
        (b'[x, "\xff"]', 1, "expected a value"),
    ],
)
def test_a_refusal_names_the_place_wherever_the_text_was_cut(
    text: bytes, position: int, problem: str
) -> None:
    with pytest.raises(InvalidBody, match=rf"byte {position}: .*{problem}"):
        compact(text)
    for border in range(len(text) + 1):
        compactor = Compactor()
        with pytest.raises(InvalidBody, match=rf"byte {position}: "):
            compactor.feed(text[:border])
            compactor.feed(text[border:])
            compactor.finish()


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_ends_at_ten_thousand_levels(opening: bytes, closing: bytes) -> None:
    inner = b"0" if opening != b"[" else b""
    deepest = opening * 10_000 + inner + closing * 10_000

    assert compact(deepest) == deepest
    with pytest.raises(InvalidBody, match="nested deeper than 10000"):
        compact(opening + deepest + closing)


def test_a_document_that_leaves_the_depth_limit_again_is_compacted() -> None:
    text = b"[" * 9_998 + b" [ 1 , [ 2 ] ] , " * 3 + b"0" + b"]" * 9_998

    assert compact(text) == text.replace(b" ", b"")


def test_strings_and_numbers_of_any_length_pass_through_in_pieces() -> None:
    compactor = Compactor()
    pieces = [b'[ "', *[b"x y\\\\" * 1000] * 50, b'" , ', *[b"7" * 4096] * 50, b".5 ]"]

    sent = [compactor.feed(piece) for piece in pieces]
    compactor.finish()

    assert b"".join(sent) == b'["' + b"x y\\\\" * 50_000 + b'",' + b"7" * 204_800 + b".5]"
    assert all(len(output) == len(piece) for output, piece in zip(sent[1:51], pieces[1:51], strict=True))


def test_a_large_document_in_memory_is_compacted_as_by_the_standard_library() -> None:
    chance = random.Random(4)
    rows = [{"id": row, "tags": ["a b", "é"], "at": {"x": chance.random()}} for row in range(20_000)]
    text = json.dumps(rows, indent=2, ensure_ascii=False).encode()

    assert compact(text) == json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()
    assert compact(compact(text)) == compact(text)


ROWS = [
    b'{"id":7,"note":"a b"}',
    b'{"id":8,"note":"},"}',
    b'{ "id" : 9 , "tags" : [ "x" , { } ] }',
    b'["\\",","]",{"a":[0]}]',
    b'"},{\\\\"',
    b'"\\",\\\\"',
    b"12.5",
]


def long_document(chance: random.Random) -> bytes:
    """Rows that are alike but for a few, at some depth: pieces can be cut by a guess, and now and then it is wrong."""
    rows = [chance.choice(ROWS)] * chance.randint(200, 400)
    for _ in range(chance.randint(0, 4)):
        rows[chance.randrange(len(rows))] = chance.choice(ROWS)
    opening, closing = chance.choice([(b"[", b"]"), (b'{"a":{"rows":[', b']},"b":[1,2]}'), (b"[[", b"],3]")])
    return opening + chance.choice([b",", b", ", b",\n  "]).join(rows) + closing


def in_pieces(text: bytes, size: int) -> list[bytes]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("seed", range(40))
def test_rows_that_are_alike_are_compacted_as_the_reference_does_it(seed: int) -> None:
    chance = random.Random(seed)
    text = long_document(chance)

    assert streamed(in_pieces(text, chance.randint(1100, 2500))) == Reference(text).compact()


@pytest.mark.parametrize("seed", range(120))
def test_a_mistake_among_rows_that_are_alike_is_found_wherever_it_is(seed: int) -> None:
    chance = random.Random(seed)
    text = long_document(chance)
    new = bytes(chance.choices(b'[]{},:"\\ 0', k=chance.randint(0, 3)))
    text = _mutated(text, chance.randrange(len(text)), chance.randint(0, 2), new)

    assert streamed(in_pieces(text, chance.randint(1100, 2500))) == reference(text)
