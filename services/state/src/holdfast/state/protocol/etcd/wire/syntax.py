"""What is wrong with a text that is not JSON, in the words of Go's encoding/json: clients of etcd know those."""

import re
from typing import Final

SCANNED_BYTES_MAX: Final = 64 * 1024
"""The scan is in Python; a longer text is told what the parser says of it."""
_UNEXPECTED_END: Final = "unexpected EOF"

_space = re.compile(rb"[ \t\r\n]*").match
_string = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+').match
_digits = re.compile(rb"[0-9]*").match
_HEX_DIGITS: Final = frozenset(b"0123456789abcdefABCDEF")
_DIGITS: Final = frozenset(b"0123456789")
_BRACE: Final = ord("}")
_CLOSERS: Final = {ord("{"): _BRACE, ord("["): ord("]")}
_LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}


class _Fault(Exception):
    """Where the scan ended, as text."""


def fault_of(text: bytes, error: Exception) -> str:
    """`error` is what the parser said; it stands for what Go would have let pass, such as deep nesting."""
    if len(text) <= SCANNED_BYTES_MAX:
        try:
            _scan(text)
        except _Fault as fault:
            return str(fault)
    return f"invalid JSON: {error}"


def _scan(text: bytes) -> None:
    """One value and nothing behind it; raises what is found wrong first. No recursion: the text says how deep it nests."""
    closers = bytearray()
    position = _skip(text, 0)
    while True:
        if closers and closers[-1] == _BRACE:
            position = _after_name(text, position)
        found = _at(text, position)
        if found in _CLOSERS:
            closers.append(_CLOSERS[found])
            position = _skip(text, position + 1)
            if _at(text, position) != closers[-1]:
                continue
        else:
            position = _skip(text, _scalar(text, position, found))
        position = _after_values(text, position, closers)
        if not closers:
            break
    if position < len(text):
        raise _fault(text[position], "after top-level value")


def _after_values(text: bytes, position: int, closers: bytearray) -> int:
    """Where the next value or member begins, behind the ends of all that end here."""
    while closers:
        found = _at(text, position)
        if found == ord(","):
            return _skip(text, position + 1)
        if found != closers[-1]:
            is_object = closers[-1] == _BRACE
            raise _fault(found, "after object key:value pair" if is_object else "after array element")
        closers.pop()
        position = _skip(text, position + 1)
    return position


def _after_name(text: bytes, position: int) -> int:
    found = _at(text, position)
    if found != ord('"'):
        raise _fault(found, "looking for beginning of object key string")
    position = _skip(text, _after_string(text, position))
    found = _at(text, position)
    if found != ord(":"):
        raise _fault(found, "after object key")
    return _skip(text, position + 1)


def _scalar(text: bytes, position: int, found: int) -> int:
    if found == ord('"'):
        return _after_string(text, position)
    if found == ord("-") or found in _DIGITS:
        return _after_number(text, position, found)
    literal = _LITERALS.get(found)
    if literal is None:
        raise _fault(found, "looking for beginning of value")
    for offset, expected in enumerate(literal):
        found = _at(text, position + offset)
        if found != expected:
            raise _fault(found, f"in literal {literal.decode()} (expecting {chr(expected)!r})")
    return position + len(literal)


def _after_string(text: bytes, position: int) -> int:
    matched = _string(text, position)
    assert matched is not None, "the caller has seen the quote"
    position = matched.end()
    found = _at(text, position)
    if found == ord('"'):
        return position + 1
    if found == ord("\\"):
        raise _bad_escape(text, position + 1)
    raise _fault(found, "in string literal")


def _bad_escape(text: bytes, position: int) -> _Fault:
    found = _at(text, position)
    if found != ord("u"):
        return _fault(found, "in string escape code")
    position += 1
    while (found := _at(text, position)) in _HEX_DIGITS:
        position += 1
    return _fault(found, "in \\u hexadecimal character escape")


def _after_number(text: bytes, position: int, found: int) -> int:
    if found == ord("-"):
        position += 1
        found = _at(text, position)
        if found not in _DIGITS:
            raise _fault(found, "in numeric literal")
    position = position + 1 if found == ord("0") else _after_digits(text, position)
    if text[position : position + 1] == b".":
        position = _digits_from(text, position + 1, "after decimal point in numeric literal")
    if text[position : position + 1] in (b"e", b"E"):
        position += 1
        if text[position : position + 1] in (b"+", b"-"):
            position += 1
        position = _digits_from(text, position, "in exponent of numeric literal")
    return position


def _digits_from(text: bytes, position: int, context: str) -> int:
    found = _at(text, position)
    if found not in _DIGITS:
        raise _fault(found, context)
    return _after_digits(text, position)


def _after_digits(text: bytes, position: int) -> int:
    matched = _digits(text, position)
    return position if matched is None else matched.end()


def _skip(text: bytes, position: int) -> int:
    matched = _space(text, position)
    return position if matched is None else matched.end()


def _at(text: bytes, position: int) -> int:
    if position >= len(text):
        raise _Fault(_UNEXPECTED_END)
    return text[position]


def _fault(found: int, context: str) -> _Fault:
    return _Fault(f"invalid character {_quoted(found)} {context}")


def _quoted(found: int) -> str:
    """As Go quotes a byte: as the character with this number."""
    letter = chr(found)
    if letter == "'":
        return r"'\''"
    if letter == '"':
        return "'\"'"
    if letter == "\\":
        return r"'\\'"
    short = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
    if letter in short:
        return f"'{short[letter]}'"
    if letter.isprintable():
        return f"'{letter}'"
    return f"'\\x{found:02x}'" if found < 0x80 else f"'\\u{found:04x}'"
