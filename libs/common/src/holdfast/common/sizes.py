"""Durations (`30s`, `1h30m`) and sizes (`100MB`, `64MiB`) as people write them, to numbers and back."""

import math
import re
from typing import Final

_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION_UNITS_S: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_DURATION_S_MAX = 2**63 / 1e9  # What 64 bits of nanoseconds hold: 292 years.
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)", re.IGNORECASE)
_SIZE_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{f"{letter}{suffix}": 1000 ** (i + 1) for i, letter in enumerate("kmgtp") for suffix in ("", "b")},
    **{f"{letter}{suffix}": 1024 ** (i + 1) for i, letter in enumerate("kmgtp") for suffix in ("i", "ib")},
}
_SIZE_SHOWN: Final[dict[str, int]] = {
    **{f"{letter}B": 1000 ** (i + 1) for i, letter in enumerate("kMGTP")},
    **{f"{letter}iB": 1024 ** (i + 1) for i, letter in enumerate("KMGTP")},
}
_SIZE_BYTES_MAX = 2**63 - 1
_TEXT_CHARS_MAX = 64

DURATION_EXPECTED = "a duration such as 30s, 5m0s, 1h30m, 250ms or a number of seconds"
SIZE_EXPECTED = "a size such as 100MB, 64MiB or a number of bytes"


def parse_duration_s(value: object) -> float:
    """Seconds of a Go-style duration; a bare number is seconds already."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected {DURATION_EXPECTED}")
    seconds = _duration_text_s(value.strip()) if isinstance(value, str) else float(value)
    if not abs(seconds) <= _DURATION_S_MAX:  # Also refuses what is not a number.
        raise ValueError(f"expected {DURATION_EXPECTED}, at most 292 years")
    return seconds


def _duration_text_s(text: str) -> float:
    sign, digits = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if not digits or len(text) > _TEXT_CHARS_MAX:
        raise ValueError(f"expected {DURATION_EXPECTED}")
    if re.fullmatch(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+", digits):
        return sign * float(digits)
    parts = list(_DURATION_PART.finditer(digits))
    if "".join(part.group() for part in parts) != digits:
        raise ValueError(f"expected {DURATION_EXPECTED}")
    # fsum: 1m0.1s is 60.1, not 60.10000000000001.
    return sign * math.fsum(float(part[1]) * _DURATION_UNITS_S[part[2]] for part in parts)


def format_duration(seconds: float) -> str:
    """The Go way: `0s`, `250ms`, `1.5s`, `5m0s`, `1h30m0s`."""
    nanoseconds = round(abs(seconds) * 1e9)
    sign = "-" if seconds < 0 and nanoseconds else ""
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < 1_000_000_000:
        unit, size = next((u, n) for u, n in (("ms", 10**6), ("µs", 10**3), ("ns", 1)) if nanoseconds >= n)
        return f"{sign}{_decimal(nanoseconds, size)}{unit}"
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, 10**9)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    fraction = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def parse_size_bytes(value: object) -> int:
    """Bytes of a humanized size: `MB` counts in thousands, `MiB` in 1024s; a bare number is bytes already."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected {SIZE_EXPECTED}")
    match = _SIZE.fullmatch(str(value).strip()) if len(str(value)) <= _TEXT_CHARS_MAX else None
    unit_bytes = _SIZE_UNITS.get(match[2].lower()) if match else None
    if match is None or unit_bytes is None:
        raise ValueError(f"expected {SIZE_EXPECTED}")
    whole, _, fraction = match[1].partition(".")
    # In integers: 8.1PB has more digits than a float keeps.
    size_bytes: int = int(whole or 0) * unit_bytes + int(fraction or 0) * unit_bytes // 10 ** len(fraction)
    if size_bytes > _SIZE_BYTES_MAX:
        raise ValueError(f"expected {SIZE_EXPECTED}, below 8EiB")
    return size_bytes


def format_size(size_bytes: int) -> str:
    """The shortest exact way: `64MiB`, `100MB`, `1234B`; reading it back gives the same number."""
    exact = [f"{size_bytes}B"]
    for unit, unit_bytes in _SIZE_SHOWN.items():
        if size_bytes and size_bytes % unit_bytes == 0:
            exact.append(f"{size_bytes // unit_bytes}{unit}")
    return min(exact, key=len)
