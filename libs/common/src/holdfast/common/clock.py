"""Time as a port: services take a clock as an argument, so a test can own it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time tells people and other processes; monotonic time measures. Never mix the two."""

    def wall_s(self) -> float:
        """Seconds since the Unix epoch; may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()


class FakeClock:
    """A clock that moves only when told; wall and monotonic time may be moved apart."""

    def __init__(self, wall_s: float = 1_700_000_000.0, monotonic_s: float = 1_000.0) -> None:
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s

    def wall_s(self) -> float:
        return self._wall_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Let time pass: both clocks move on."""
        assert seconds >= 0, "time does not go back; use jump_wall for a clock that is set"
        self._wall_s += seconds
        self._monotonic_s += seconds

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP would."""
        self._wall_s += seconds


class SteadyClock:
    """Unix time that does not jump: the wall clock read once, moved on by the monotonic one.

    What this process grants until some moment it also judges by this clock, so setting the wall clock neither
    shortens nor prolongs anything.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._offset_s = self._clock.wall_s() - self._clock.monotonic_s()

    def now_ms(self) -> int:
        return int((self._clock.monotonic_s() + self._offset_s) * 1000)

    def wall_s(self) -> float:
        """What people and other machines call now."""
        return self._clock.wall_s()
