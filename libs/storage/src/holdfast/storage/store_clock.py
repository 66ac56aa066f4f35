"""The time of a store: one for everything that is granted, judged and told over it, in whichever process.

A store that one process owns begins at the machine's wall clock, or at the latest moment that the store knows of if
that is later: time does not go back over a restart. A store on a database follows the clock of the database
(`postgres/clock.py`).
"""

from typing import Final

from holdfast.common.clock import Clock, SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger

SLEW: Final = 0.005
"""A time that is ahead runs slower by this share: an hour is made up for in eight days, a lease lasts 0.5 % longer."""

LEAD_S_TOLD: Final = 1.0

_log = get_logger("storage.clock")


class ClockSkewed(HoldfastError):
    """The clocks of this machine and of the store disagree by more than the bound."""

    code, status = "clock_skew", 503


class StoreClock(SteadyClock):
    """As a local store has it; one on a database adds what it measured."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._has_told_lead = False
        self._has_told_lag = False

    @property
    def skew_s(self) -> float:
        """The machine's wall clock minus the clock that the store follows."""
        return -self.lead_s

    @property
    def uncertainty_s(self) -> float:
        """By how much the store's time may differ from the clock that it follows, as far as that is measured."""
        return 0.0

    @property
    def problem(self) -> str | None:
        """Why nothing may be served by this clock, or None."""
        return None

    def check(self) -> None:
        """Refuse to serve while the clock has a problem."""
        problem = self.problem
        if problem is not None:
            raise ClockSkewed(problem, retry_after_s=1.0)

    def note(self) -> str:
        """For people: the figures in short."""
        return f"skew {self.skew_s:.3f} s, uncertainty {self.uncertainty_s:.3f} s"

    def come_back(self, elapsed_s: float) -> None:
        """A time that is ahead of the machine's clock runs slower until it is not."""
        self.slew_to(self._clock.wall_s(), SLEW * elapsed_s)

    def tell_lead(self, of: str) -> None:
        """Say once, with cause and cure, that the store's time is ahead of the clock of the machine."""
        lead_s = self.lead_s
        if lead_s < LEAD_S_TOLD or self._has_told_lead:
            return
        self._has_told_lead = True
        _log.warn(
            "storage.clock.ahead",
            store=of,
            lead_s=round(lead_s, 3),
            cause="the machine's clock went back since the store was last used, or was ahead then",
            cure="set the clock right; the store's time goes on from where it was and comes back to the "
            f"clock by {SLEW:.1%} of the time that passes",
        )

    def tell_lag(self, of: str) -> None:
        """Say once that the machine's clock was set forward while the store was open."""
        if self.lead_s > -LEAD_S_TOLD or self._has_told_lag:
            return
        self._has_told_lag = True
        _log.warn(
            "storage.clock.behind",
            store=of,
            lag_s=round(-self.lead_s, 3),
            cause="the machine's clock was set forward while the store was open; what is held keeps its length",
            cure="restart the process to follow the clock; what is held then ends by it",
        )
