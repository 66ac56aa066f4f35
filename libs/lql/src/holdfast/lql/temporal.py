"""Dates and times: what counts as one, how two compare, and how an instant is written."""

import re
from dataclasses import dataclass

NANOS_PER_S = 1_000_000_000
S_PER_DAY = 86_400

_LITERAL = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,30}))?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_NANO_DIGITS = 9
# The calendar repeats after 400 years; 1970-01-01 is this many days after 0000-03-01. Python's has no year 0.
_CYCLE_DAYS, _EPOCH = 146_097, 719_468
_LITERAL_CHARACTERS_MIN, _LITERAL_CHARACTERS_MAX = 10, 64


@dataclass(frozen=True, slots=True)
class Temporal:
    """An instant, or a day (`is_date`: then the instant is its midnight in UTC). `day` is that of its own offset.

    The order is that of instants; `equals` is what the language calls equal, `==` is all members.
    """

    instant_ns: int
    day: int
    is_date: bool
    has_zone: bool

    def __lt__(self, other: "Temporal") -> bool:
        return self.instant_ns < other.instant_ns

    def __le__(self, other: "Temporal") -> bool:
        return self.instant_ns <= other.instant_ns

    def __gt__(self, other: "Temporal") -> bool:
        return self.instant_ns > other.instant_ns

    def __ge__(self, other: "Temporal") -> bool:
        return self.instant_ns >= other.instant_ns

    def equals(self, other: "Temporal") -> bool:
        """As instants; if either side is only a date, as calendar days."""
        if self.is_date or other.is_date:
            return self.day == other.day
        return self.instant_ns == other.instant_ns


def parse_temporal(text: str) -> Temporal | None:
    """`YYYY-MM-DD`, RFC 3339, or RFC 3339 without a zone (UTC then); None for everything else."""
    if not _LITERAL_CHARACTERS_MIN <= len(text) <= _LITERAL_CHARACTERS_MAX:
        return None
    match = _LITERAL.fullmatch(text)
    if match is None:
        return None
    year, month, day_of_month, hour, minute, second, fraction, zone = match.groups()
    day = _day(int(year), int(month), int(day_of_month))
    if day is None:
        return None
    if hour is None:
        return Temporal(day * S_PER_DAY * NANOS_PER_S, day, is_date=True, has_zone=False)
    offset_s = _offset_s(zone or "Z")
    if int(hour) > 23 or int(minute) > 59 or int(second) > 59 or offset_s is None:
        return None
    local_s = day * S_PER_DAY + int(hour) * 3600 + int(minute) * 60 + int(second)
    nanos = int((fraction or "0")[:_NANO_DIGITS].ljust(_NANO_DIGITS, "0"))
    return Temporal((local_s - offset_s) * NANOS_PER_S + nanos, day, is_date=False, has_zone=zone is not None)


def _day(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the calendar without an end, in which every year starts in March."""
    if not (1 <= month <= 12 and 1 <= day <= _days_of(year, month)):
        return None
    shifted = year - 1 if month <= 2 else year
    cycle, year_of_cycle = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return (
        cycle * _CYCLE_DAYS
        + year_of_cycle * 365
        + year_of_cycle // 4
        - year_of_cycle // 100
        + day_of_year
        - _EPOCH
    )


def _days_of(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _civil(day: int) -> tuple[int, int, int]:
    """The other way round: year, month and day of a day number."""
    cycle, day_of_cycle = divmod(day + _EPOCH, _CYCLE_DAYS)
    year_of_cycle = (
        day_of_cycle - day_of_cycle // 1460 + day_of_cycle // 36_524 - day_of_cycle // 146_096
    ) // 365
    day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle // 4 - year_of_cycle // 100)
    march_month = (5 * day_of_year + 2) // 153
    month = march_month + 3 if march_month < 10 else march_month - 9
    year = cycle * 400 + year_of_cycle + (1 if month <= 2 else 0)
    return year, month, day_of_year - (153 * march_month + 2) // 5 + 1


def _offset_s(zone: str) -> int | None:
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        return None
    return (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)


def utc_midnight(instant_ns: int, *, days_before: int = 0) -> Temporal:
    """The day of an instant, or one before it."""
    day = instant_ns // (S_PER_DAY * NANOS_PER_S) - days_before
    return Temporal(day * S_PER_DAY * NANOS_PER_S, day, is_date=False, has_zone=True)


def instant(instant_ns: int) -> Temporal:
    return Temporal(instant_ns, instant_ns // (S_PER_DAY * NANOS_PER_S), is_date=False, has_zone=True)


def format_utc(instant_ns: int) -> str | None:
    """RFC 3339 in UTC, the fraction without trailing zeros; None outside the years 0000 to 9999."""
    seconds, nanos = divmod(instant_ns, NANOS_PER_S)
    day, second_of_day = divmod(seconds, S_PER_DAY)
    year, month, day_of_month = _civil(day)
    if not 0 <= year <= 9999:
        return None
    fraction = f".{nanos:09d}".rstrip("0").rstrip(".")
    clock = f"{second_of_day // 3600:02d}:{second_of_day // 60 % 60:02d}:{second_of_day % 60:02d}"
    return f"{year:04d}-{month:02d}-{day_of_month:02d}T{clock}{fraction}Z"
