"""RFC 8259 as regular expressions, so that checking runs at the speed of the `re` module and not of Python.

Every repetition is possessive: the grammar needs one byte of lookahead, so going back would never help, and no input
makes a pattern slower than linear.
"""

import re
from typing import Final

_WS: Final = rb"[ \t\n\r]*+"
_PLAIN: Final = rb'[^"\\\x00-\x1f]*+'
_ESCAPE: Final = rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_STRING: Final = rb'"%b(?:%b%b)*+"' % (_PLAIN, _ESCAPE, _PLAIN)
_DIGITS: Final = rb"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
# What may follow is part of a number: without it, `12` at the end of a piece could be the half of `123`.
_NUMBER: Final = rb"%b(?=[ \t\n\r,\]}])" % _DIGITS
_SCALAR: Final = rb"%b|%b|true|false|null" % (_STRING, _NUMBER)

_LEVELS: Final = 4


def _value(levels: int, ws: bytes) -> bytes:
    """A value whose containers nest a little deeper than `levels`: a pattern cannot nest without end.

    `ws` stands wherever white space may.
    """
    inner = _value(levels - 1, ws) if levels > 1 else rb"(?:%b|\[%b\]|\{%b\})" % (_SCALAR, ws, ws)
    # A comma is taken only with the promise of another item, so that one copy of `inner` does for all items.
    array = rb"\[%b(?:%b%b(?:,%b(?!\])|(?=\])))*+\]" % (ws, inner, ws, ws)
    member = rb"%b%b:%b%b" % (_STRING, ws, ws, inner)
    record = rb'\{%b(?:%b%b(?:,%b(?=")|(?=\})))*+\}' % (ws, member, ws, ws)
    return rb"(?:%b|%b|%b)" % (_SCALAR, array, record)


match_tight_document = re.compile(rb"%b(%b)%b\Z" % (_WS, _value(_LEVELS, b""), _WS)).match
"""A whole document in group 1, which has no white space outside its strings."""

match_items = re.compile(
    rb'(?:(?:":)?+(?:\[|\{":)*+(?:"|%b|true|false|null|\[\]|\{\})[\]}]*+,)*+' % _DIGITS
).match
"""Items, each with its comma, in a text without white space and with `"` for each string: right but for the nesting."""

match_white_space = re.compile(_WS).match
match_token = re.compile(rb"[\[\]{},:]|%b" % _SCALAR).match

_EXPONENT_BEGUN: Final = rb"[eE][+-]?+[0-9]*+"
match_begun_token = re.compile(
    rb'"%b(?:%b%b)*+(\\(?:u[0-9a-fA-F]{0,3}+)?+)?+' % (_PLAIN, _ESCAPE, _PLAIN)
    + rb"|(-?+(?:0|[1-9][0-9]*+)(?:%b|\.(?:[0-9]++(?:%b)?+)?+)?+|-)" % (_EXPONENT_BEGUN, _EXPONENT_BEGUN)
    + rb"|t(?:ru?+)?+|f(?:a(?:ls?+)?+)?+|n(?:ul?+)?+"
).match
"""The longest beginning of a token: group 1 is a string's last, unfinished escape, group 2 a number."""
