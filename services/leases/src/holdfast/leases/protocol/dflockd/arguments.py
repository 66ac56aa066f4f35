"""What stands in the lines of a request, read as dflockd reads it."""

import re
from typing import Final

REQUEST_LINES: Final = 3
LINE_BYTES_MAX: Final = 256
_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_DIGITS_SAFE: Final = 18

_is_integer = re.compile(rb"[+-]?[0-9]+").fullmatch
_has_blank = re.compile(rb"[ \t\r\n]").search


class Malformed(Exception):
    """The request means nothing; it is answered `error`, and the connection goes on."""


def key_of(line: bytes) -> bytes:
    found = line.split()
    if len(found) == 1 and len(found[0]) == len(line):
        return line  # No white space of any kind, as in nearly all.
    if not line or _has_blank(line) is not None:
        raise Malformed
    return line


def integer(text: bytes) -> int:
    if text.isdigit() and len(text) <= _DIGITS_SAFE:
        return int(text)
    if _is_integer(text) is None:
        raise Malformed
    number = int(text)
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise Malformed
    return number


def seconds(text: bytes) -> int:
    """A timeout: 0 or more."""
    number = integer(text)
    if number < 0:
        raise Malformed
    return number


def positive(text: bytes) -> int:
    """The time of a lease, the slots of a semaphore."""
    number = integer(text)
    if number <= 0:
        raise Malformed
    return number


def ttl(text: bytes) -> int | None:
    """Seconds at the end of a text; None: that is text, too."""
    try:
        return seconds(text)
    except Malformed:
        return None


def fields(line: bytes, least: int, most: int) -> list[bytes]:
    found = line.split()
    if not least <= len(found) <= most:
        raise Malformed
    return found
