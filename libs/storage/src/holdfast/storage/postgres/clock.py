"""The clock of a store on PostgreSQL: every process follows the clock of the database.

It is asked every few seconds over a connection that is there anyway; half the round trip is the uncertainty of each
answer. In between the process's own monotonic clock moves the time on. An answer that is later is followed at once, one
that is earlier by standing still a little (`SLEW`); the time of a process never goes back, and neither does that of the
store over a failover: `measure_clock` answers with the newest commit's time too.

The machine's wall clock decides nothing. It is compared with the database's, because one of the two is wrong if they
disagree: beyond the bound the process refuses to serve until they agree again.
"""

import asyncio
from datetime import UTC, datetime
from typing import Final, NamedTuple

from holdfast.common.clock import STEP_S, Clock
from holdfast.common.logging import get_logger
from holdfast.storage.errors import StorageError
from holdfast.storage.postgres.connection import Connections
from holdfast.storage.postgres.fault import retried
from holdfast.storage.store_clock import SLEW, StoreClock

MEASURE_TIMEOUT_S: Final = 5.0
FIRST_SAMPLES: Final = 3
DRIFT: Final = 0.0001
"""By how much two good oscillators may differ: added to the uncertainty for the time since the last answer."""

_MEASURE = "SELECT clock, mark FROM measure_clock($1)"

_log = get_logger("storage.clock")


class Sample(NamedTuple):
    """One answer: the database's clock and the store's mark in Unix seconds, as of a moment of the monotonic clock."""

    at_s: float
    uncertainty_s: float
    clock_s: float
    mark_s: float


class DatabaseClock(StoreClock):
    """Time as the database has it. `first` is measured before anything is judged, so it may set the time back too."""

    def __init__(self, clock: Clock, first: Sample, *, skew_s_max: float) -> None:
        super().__init__(clock)
        self._skew_s_max = skew_s_max
        self._sample = first
        self._problem: str | None = None
        self._offset_s = max(first.clock_s, first.mark_s) - first.at_s
        self.judge()

    @property
    def skew_s(self) -> float:
        return self._clock.wall_s() - self._database_s()

    @property
    def uncertainty_s(self) -> float:
        sample = self._sample
        return sample.uncertainty_s + DRIFT * (self._monotonic_s() - sample.at_s)

    @property
    def lead_s(self) -> float:
        """How far this time is ahead of the database's clock."""
        return self.now_s() - self._database_s()

    @property
    def problem(self) -> str | None:
        return self._problem

    def follow(self, sample: Sample) -> None:
        """Take an answer in."""
        elapsed_s = sample.at_s - self._sample.at_s
        self._sample = sample
        passed_s = self._monotonic_s() - sample.at_s
        now_s = self.now_s()
        latest_s = max(sample.clock_s, sample.mark_s) + passed_s
        if now_s < latest_s - sample.uncertainty_s:
            if latest_s - now_s >= STEP_S:
                _log.warn("storage.clock.stepped", forward_s=round(latest_s - now_s, 3))
            self.raise_to(latest_s)
        elif now_s > sample.clock_s + passed_s + sample.uncertainty_s:
            self.slew_to(sample.clock_s + passed_s, SLEW * elapsed_s)
        self.judge()

    def judge(self) -> None:
        """Whether the machine's clock and the database's agree well enough to serve."""
        bound_s, before = self._skew_s_max, self._problem
        skew_s, uncertainty_s = self.skew_s, self.uncertainty_s
        if not bound_s or (abs(skew_s) <= bound_s and uncertainty_s <= bound_s):
            self._problem = None
        elif abs(skew_s) > bound_s:
            is_ahead = "ahead of" if skew_s > 0 else "behind"
            self._problem = (
                f"the clock of this machine is {abs(skew_s):.1f} s {is_ahead} the database's, more than "
                f"--clock-skew-max {bound_s:g}s; set both by NTP, or set a larger bound"
            )
        else:
            self._problem = (
                f"the database's clock is known within {uncertainty_s:.1f} s only, more than "
                f"--clock-skew-max {bound_s:g}s; look at the way to the database"
            )
        if self._problem is not None and before is None:
            _log.error("storage.clock.skewed", reason=self._problem)
        elif before is not None and self._problem is None:
            _log.info("storage.clock.agrees", skew_s=round(skew_s, 3))

    def _database_s(self) -> float:
        return self._sample.clock_s + self._monotonic_s() - self._sample.at_s


async def open_clock(connections: Connections, clock: Clock, *, skew_s_max: float) -> DatabaseClock:
    """The best of a few answers."""
    samples = [
        await retried(lambda: _sample(connections, clock, None), for_s=MEASURE_TIMEOUT_S)
        for _ in range(FIRST_SAMPLES)
    ]
    first = min(samples, key=lambda sample: sample.uncertainty_s)
    return DatabaseClock(clock, first, skew_s_max=skew_s_max)


async def keep_following(
    clock: DatabaseClock, connections: Connections, machine: Clock, *, interval_s: float, url: str
) -> None:
    """Ask again and again. Ends only by cancellation."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            async with asyncio.timeout(MEASURE_TIMEOUT_S):
                sample = await _sample(connections, machine, clock.now_s())
        except (StorageError, TimeoutError):
            clock.judge()  # The database is away, and says so elsewhere; the uncertainty grows.
        else:
            clock.follow(sample)
            clock.tell_lead(url)


async def _sample(connections: Connections, clock: Clock, now_s: float | None) -> Sample:
    async with connections.use() as connection:
        now = None if now_s is None else datetime.fromtimestamp(now_s, UTC)
        sent_s = clock.monotonic_s()
        row = await connection.fetchrow(_MEASURE, now)
        received_s = clock.monotonic_s()
    assert row is not None
    return Sample((sent_s + received_s) / 2, (received_s - sent_s) / 2, row[0], row[1])
