"""RFC 8259 as regular expressions, so that checking runs at the speed of the `re` module and not of Python.

Every repetition is possessive: the grammar needs one byte of lookahead, so going back would never help, and no input
makes a pattern slower than linear. A regular expression cannot nest without end; `value` writes out a few levels, and
the compactor keeps a stack for what is deeper.
"""

import re
from typing import Final

WHITE_SPACE: Final = b" \t\n\r"

_WS: Final = rb"[ \t\n\r]*+"
_PLAIN: Final = rb'[^"\\\x00-\x1f]*+'
_ESCAPE: Final = rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_STRING: Final = rb'"%b(?:%b%b)*+"' % (_PLAIN, _ESCAPE, _PLAIN)
# What may follow is part of a number: without it, `12` at the end of a piece could be the half of `123`.
_NUMBER: Final = rb"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+(?=[ \t\n\r,\]}])"
_SCALAR: Final = rb"%b|%b|true|false|null" % (_STRING, _NUMBER)

_LEVELS: Final = 3
RUN_LEVELS: Final = _LEVELS + 1
"""How many levels a pattern below may see at once: those written out, and empty containers in the innermost."""


def _value(levels: int, ws: bytes) -> bytes:
    """A value whose containers nest at most this deep; `ws` stands wherever white space may."""
    inner = _value(levels - 1, ws) if levels > 1 else rb"(?:%b|\[%b\]|\{%b\})" % (_SCALAR, ws, ws)
    # A comma is taken only with the promise of another item, so that one copy of `inner` does for all items.
    array = rb"\[%b(?:%b%b(?:,%b(?!\])|(?=\])))*+\]" % (ws, inner, ws, ws)
    member = rb"%b%b:%b%b" % (_STRING, ws, ws, inner)
    record = rb'\{%b(?:%b%b(?:,%b(?=")|(?=\})))*+\}' % (ws, member, ws, ws)
    return rb"(?:%b|%b|%b)" % (_SCALAR, array, record)


def _steps(*parts: bytes) -> bytes:
    """The parts with white space before each of them."""
    return b"".join(_WS + part for part in parts)


_VALUE: Final = _value(_LEVELS, _WS)

match_tight_document = re.compile(rb"%b(%b)%b\Z" % (_WS, _value(_LEVELS + 1, b""), _WS)).match
"""A whole document in group 1, which has no white space outside its strings."""

match_value = re.compile(_steps(_VALUE)).match
match_elements = re.compile(rb"(?:%b)*+" % _steps(b",", _VALUE)).match
"""As many further elements of an array as can be seen whole."""
match_members = re.compile(rb"(?:%b)*+" % _steps(b",", _STRING, b":", _VALUE)).match
"""As many further members of an object as can be seen whole."""

match_white_space = re.compile(_WS).match
match_token = re.compile(rb"[\[\]{},:]|%b" % _SCALAR).match

_EXPONENT_BEGUN: Final = rb"[eE][+-]?+[0-9]*+"
match_begun_token = re.compile(
    rb'"%b(?:%b%b)*+(\\(?:u[0-9a-fA-F]{0,3}+)?+)?+' % (_PLAIN, _ESCAPE, _PLAIN)
    + rb"|(-?+(?:0|[1-9][0-9]*+)(?:%b|\.(?:[0-9]++(?:%b)?+)?+)?+|-)" % (_EXPONENT_BEGUN, _EXPONENT_BEGUN)
    + rb"|t(?:ru?+)?+|f(?:a(?:ls?+)?+)?+|n(?:ul?+)?+"
).match
"""The longest beginning of a token: group 1 is a string's last, unfinished escape, group 2 a number."""
