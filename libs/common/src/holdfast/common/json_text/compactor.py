"""Compaction of a JSON document that arrives in pieces, in memory bounded by the piece and the nesting.

What is expected next (`_expected`) and the open containers (`_open`) are all that is kept between two pieces, besides
the beginning of a token that a border cuts. Of that, only what decides how it may go on is kept (`_carry`): the bytes
themselves are passed on at once, so that a string or a number may be of any length.

    FIRST_ELEMENT, VALUE --value--> AFTER_ELEMENT, AFTER_MEMBER or END, by the innermost open container
    FIRST_KEY, KEY --string--> COLON --':'--> VALUE
    AFTER_ELEMENT --','--> VALUE      AFTER_MEMBER --','--> KEY      '[' --> FIRST_ELEMENT      '{' --> FIRST_KEY
"""

import codecs
import re
from typing import Final

from holdfast.common.errors import InvalidBody
from holdfast.common.json_text import bulk, completed
from holdfast.common.json_text.grammar import match_begun_token, match_token, match_white_space
from holdfast.common.json_text.white_space import without_white_space

DEPTH_MAX: Final = 10_000
"""As in Go's encoding/json, which the clients were written against."""

_VALUE: Final = "a value"
_FIRST_ELEMENT: Final = "a value or ']'"
_FIRST_KEY: Final = "a member name or '}'"
_KEY: Final = "a member name"
_COLON: Final = "':'"
_AFTER_ELEMENT: Final = "',' or ']'"
_AFTER_MEMBER: Final = "',' or '}'"
_END: Final = "the end, because a body is one JSON value"

_AFTER: Final = {ord("["): _AFTER_ELEMENT, ord("{"): _AFTER_MEMBER}
_NEXT: Final = {ord("["): _VALUE, ord("{"): _KEY}
_SCALAR_STARTS: Final = b'"-0123456789tfn'
_VALUE_STARTS: Final = frozenset(_SCALAR_STARTS + b"[{")
_ALLOWED: Final = {
    _VALUE: _VALUE_STARTS,
    _FIRST_ELEMENT: _VALUE_STARTS | {ord("]")},
    _FIRST_KEY: frozenset(b'"}'),
    _KEY: frozenset(b'"'),
    _COLON: frozenset(b":"),
    _AFTER_ELEMENT: frozenset(b",]"),
    _AFTER_MEMBER: frozenset(b",}"),
    _END: frozenset[int](),
}
# The shortest text, with `"` for each string, after which the same is expected.
_BEFORE: Final = {
    _VALUE: b"",
    _FIRST_ELEMENT: b"[",
    _FIRST_KEY: b"{",
    _KEY: b"0,",
    _COLON: b'0,"',
    _AFTER_ELEMENT: b"0",
    _AFTER_MEMBER: b"0",
}
# How a container is opened and gone on with, until the same is expected.
_BEGUN: Final = {
    ord("["): {_VALUE: b"[0,", _FIRST_ELEMENT: b"[", _AFTER_ELEMENT: b"[0"},
    ord("{"): {
        _VALUE: b'{"":',
        _FIRST_KEY: b"{",
        _KEY: b'{"":0,',
        _COLON: b'{""',
        _AFTER_MEMBER: b'{"":0',
    },
}
_OPENING: Final = {ord("["): _FIRST_ELEMENT, ord("{"): _FIRST_KEY}
_CLOSING: Final = frozenset(b"]}")


class Compactor:
    """Checks and compacts one document; the output does not depend on where the input was cut."""

    __slots__ = ("_carry", "_carry_sent_bytes", "_decoder", "_expected", "_likely", "_open", "_taken_bytes")

    def __init__(self) -> None:
        self._expected = _VALUE
        self._open = bytearray()
        self._likely = completed.LikelyCut()
        self._carry = b""
        self._carry_sent_bytes = 0
        self._taken_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def feed(self, chunk: bytes) -> bytes:
        """The compacted form of what this chunk adds; InvalidBody as soon as no continuation could be valid."""
        decoded_bytes = self._taken_bytes - len(self._decoder.getstate()[0])
        try:
            self._decoder.decode(chunk)
        except UnicodeDecodeError as error:
            position = decoded_bytes + error.start
            # A mistake before that is the one to report.
            self._compact(chunk[: max(position - self._taken_bytes, 0)])
            raise _invalid(position, "this is not UTF-8") from error
        return self._compact(chunk)

    def finish(self) -> bytes:
        """The end of the document; InvalidBody when it is not complete."""
        if self._carry in _COMPLETE_NUMBERS:  # Only the end says that no digit follows.
            self._carry = b""
            self._expect_after_value()
        if self._carry or self._expected is not _END:
            raise _invalid(self._taken_bytes, f"the text ends where {self._expected} has to be")
        return b""

    def _compact(self, chunk: bytes) -> bytes:
        text = self._carry + chunk
        sent_bytes = self._carry_sent_bytes
        self._taken_bytes += len(chunk)
        self._carry = b""
        self._carry_sent_bytes = 0
        likely, taken_bytes = self._compact_likely_items(text)
        text = text[taken_bytes:]
        compacted, taken_bytes = self._compact_items(text, is_rest=bool(likely))
        text = text[taken_bytes:]
        begun = self._take_whole_tokens(text, self._taken_bytes - len(text))
        if begun is None:
            rest = without_white_space(text)
        else:
            rest = without_white_space(text[: begun.start()]) + self._begun_token(begun)
        return b"".join([likely, compacted, rest])[sent_bytes:]

    def _compact_likely_items(self, text: bytes) -> tuple[bytes, int]:
        """Take what a guess can take, which leaves less than an item if the last pieces were like this one."""
        taken = None
        if self._open:
            begun = _BEGUN[self._open[-1]][self._expected]
            taken = self._likely.compact_items(text, begun, self._open)
        if taken is None:
            return b"", 0
        self._expected = _NEXT[self._open[-1]]
        return taken

    def _compact_items(self, text: bytes, *, is_rest: bool) -> tuple[bytes, int]:
        """Take as much of the text as can be taken at once; the rest goes token by token."""
        if self._expected is _END:
            return b"", 0
        begun = _BEGUN[self._open[-1]][self._expected] if self._open else b""
        taken = completed.compact_items(text, begun, self._open, None if is_rest else self._likely)
        if taken is not None:
            self._expected = _NEXT[self._open[-1]]
            return taken
        opened = bytearray(self._open)
        before = _BEFORE[self._expected]
        if self._expected is _VALUE:
            before = b"" if not opened else b"0," if opened[-1] == ord("[") else b'":'
        elif self._expected in (_FIRST_ELEMENT, _FIRST_KEY):
            opened.pop()  # Opened once more by `before`.
        taken = bulk.compact_items(text, before, opened, DEPTH_MAX)
        if taken is None:
            return b"", 0
        self._open = opened
        self._expected = _NEXT[opened[-1]]
        return taken

    def _take_whole_tokens(self, text: bytes, offset: int) -> re.Match[bytes] | None:
        """Take all tokens but one that may go on in the next chunk; `offset` is where the text itself starts."""
        position = 0
        while True:
            white_space = match_white_space(text, position)
            assert white_space is not None
            position = white_space.end()
            if position == len(text):
                return None
            first = text[position]
            if first not in _ALLOWED[self._expected]:
                raise _invalid(offset + position, f"expected {self._expected}")
            token = match_token(text, position)
            if token is None:
                begun = match_begun_token(text, position)
                assert begun is not None
                if begun.end() == len(text):
                    return begun
                raise _invalid(offset + begun.end(), "this cannot stand here in a string, number or literal")
            self._take(first, offset + position)
            position = token.end()

    def _take(self, first: int, position: int) -> None:
        """Take one token by its first byte, which is one of those allowed here."""
        if first in _OPENING:
            if len(self._open) == DEPTH_MAX:
                raise _invalid(position, f"containers are nested deeper than {DEPTH_MAX} levels")
            self._open.append(first)
            self._expected = _OPENING[first]
        elif first in _CLOSING:
            self._open.pop()
            self._expect_after_value()
        elif self._expected is _FIRST_KEY or self._expected is _KEY:
            self._expected = _COLON
        elif self._expected is _AFTER_MEMBER:
            self._expected = _KEY
        elif self._expected is _COLON or self._expected is _AFTER_ELEMENT:
            self._expected = _VALUE
        else:
            self._expect_after_value()

    def _expect_after_value(self) -> None:
        self._expected = _AFTER[self._open[-1]] if self._open else _END

    def _begun_token(self, begun: re.Match[bytes]) -> bytes:
        """Pass on a token that is cut by the end of its chunk, and keep what says how it may go on."""
        token, escape, number = begun[0], begun[1], begun[2]
        if number is not None:
            self._carry = _shortest_like(number)
            self._carry_sent_bytes = len(self._carry)
            return token
        if token.startswith(b'"'):
            unfinished = escape or b""
            self._carry = b'"' + unfinished
            self._carry_sent_bytes = 1
            return token[: len(token) - len(unfinished)]
        self._carry = token
        return b""


_number_form = re.compile(
    rb"(-)\Z|-?(0)\Z|-?[0-9]+(?:(\.)|(\.[0-9]+))?(?:([eE])|([eE][+-])|([eE][+-]?[0-9]+))?\Z"
)
_FORMS: Final = {1: b"-", 2: b"0", 3: b"1.", 4: b"1.1", 5: b"1e", 6: b"1e+", 7: b"1e1", None: b"1"}
_COMPLETE_NUMBERS: Final = frozenset({b"0", b"1", b"1.1", b"1e1"})


def _shortest_like(number: bytes) -> bytes:
    """The shortest beginning of a number that can go on in the same ways as this one."""
    form = _number_form.match(number)
    assert form is not None
    return _FORMS[form.lastindex]


def _invalid(position: int, problem: str) -> InvalidBody:
    return InvalidBody(f"the body is not one valid JSON value: byte {position}: {problem}")
