"""Time as a port: services take a clock as an argument, so a test can own it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

STEP_S: Final = 0.25
"""A correction from here on is a step, which timers have to hear of; a smaller one makes them late by less than this."""


def end_ms(now_ms: int, seconds: float) -> int:
    """The moment at which what begins now and lasts `seconds` ends: a whole second, rounded up.

    Ends are told in whole seconds, so they are whole seconds: what is told is what is judged.
    """
    return -(-(now_ms + int(seconds * 1000)) // 1000) * 1000


def unix_s(at_ms: int) -> int:
    """A moment as it is told; 0 stays "none". Exact for an end, the second begun for everything else."""
    return at_ms // 1000


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

    monotonic_s = staticmethod(time.monotonic)

    def wall_s(self) -> float:
        return time.time()


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
    """Unix time that neither jumps with the wall clock nor goes back: what is granted, judged and told is in this time.

    The wall clock is read once; from then on the monotonic clock moves the time on. A better source (the database
    that a store is in, the mark of an earlier process) moves it forward at once, or back by letting it stand still.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._monotonic_s = self._clock.monotonic_s
        self._offset_s = self._clock.wall_s() - self._monotonic_s()
        self._last_ms = 0
        self._on_step: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        monotonic_s = self._monotonic_s  # A local: called on `self` it would be looked up as a method first.
        now_ms = int((monotonic_s() + self._offset_s) * 1000)
        last_ms = self._last_ms
        if now_ms > last_ms:
            self._last_ms = now_ms
            return now_ms
        return last_ms

    def now_s(self) -> float:
        return max(self._monotonic_s() + self._offset_s, self._last_ms / 1000)

    @property
    def last_ms(self) -> int:
        """The latest moment that was asked for, so that anything was judged by."""
        return self._last_ms

    @property
    def lead_s(self) -> float:
        """How far this time is ahead of the machine's wall clock; below zero if it is behind."""
        return self.now_s() - self._clock.wall_s()

    def raise_to(self, at_s: float) -> None:
        """It is at least then: move forward, never back. Timers hear of a step."""
        forward_s = at_s - self._monotonic_s() - self._offset_s
        if forward_s <= 0:
            return
        self._offset_s += forward_s
        if forward_s >= STEP_S:
            for heard in list(self._on_step):
                heard()

    def slew_to(self, at_s: float, by_s_max: float) -> None:
        """It is no later than then: go back to it, by so much at most. `now_ms` stands still meanwhile."""
        back_s = self._monotonic_s() + self._offset_s - at_s
        if back_s > 0:
            self._offset_s -= min(back_s, by_s_max)

    @contextmanager
    def stepping(self, heard: Callable[[], None]) -> Iterator[None]:
        """Have `heard` called after each step forward, for the length of the block: timers have to look again."""
        self._on_step.append(heard)
        try:
            yield
        finally:
            self._on_step.remove(heard)
