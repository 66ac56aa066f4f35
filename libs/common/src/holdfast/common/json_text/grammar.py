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
