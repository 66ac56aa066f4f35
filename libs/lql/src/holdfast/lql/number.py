"""Numbers as the language reads and writes them: Go's float syntax in, plain shortest decimals out."""

import math
import re
from decimal import Decimal, InvalidOperation

_DIGITS = r"[0-9]++(?:_[0-9]++)*+"
_FLOAT = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_INTEGER = re.compile(r"[+-]?[0-9]++")
_INFINITE = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE | re.ASCII)
_EXACT_MAX = 2**53
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_INT64_DIGITS_MAX = 19
# A double has at most this many digits before its point; CPython refuses to convert far longer texts.
_INTEGER_CHARACTERS_MAX = 400


def parse_float(text: str) -> float | None:
    """The double a text stands for; None if it is no number or out of range. Infinities and NaN are no numbers."""
    if _FLOAT.fullmatch(text) is None:
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def is_infinite(text: str) -> bool:
    """Texts that Go reads as infinity or NaN, which JSON cannot carry."""
    return _INFINITE.fullmatch(text) is not None


def parse_integer(text: str) -> int | None:
    """A decimal integer within 64 bits, with any number of leading zeros."""
    if _INTEGER.fullmatch(text) is None or len(text.lstrip("+-").lstrip("0")) > _INT64_DIGITS_MAX:
        return None
    value = int(text.lstrip("+-").lstrip("0") or "0") * (-1 if text.startswith("-") else 1)
    return value if _INT64_MIN <= value <= _INT64_MAX else None


def parse_bound(text: str) -> int | float | None:
    """A number to compare with: integers stay exact, all else is a double."""
    value = parse_float(text)
    if value is None:
        return None
    if _INTEGER.fullmatch(text) and len(text) <= _INTEGER_CHARACTERS_MAX:
        return int(text)
    return tidy_bound(value)


def tidy_bound(value: float) -> int | float:
    """A double that is a whole number, as an integer as long as no digit is made up."""
    return int(value) if value.is_integer() and abs(value) < _EXACT_MAX else value


def plain_decimal(value: float) -> str:
    """The shortest digits that give this double again, without an exponent: 1000, 0.0000001, -0."""
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def exact(text: str) -> Decimal | None:
    """The value of a JSON number, all digits counting; None if its exponent is beyond what can be compared."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def exact_bound(bound: int | float) -> Decimal:
    # Through repr, so that 0.1 means the decimal that was written and not the double nearest to it.
    return Decimal(bound) if isinstance(bound, int) else Decimal(repr(bound))


def exact_text(text: str) -> Decimal | None:
    """The value of a string that reads as a number, else None."""
    return exact(text) if parse_float(text) is not None else None


def json_number(value: int | float) -> str:
    """A number as JSON: doubles that are whole numbers without a point."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return plain_decimal(value)
    return repr(value)
