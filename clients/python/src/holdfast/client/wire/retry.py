"""How long to wait before trying again, and how often."""

import random
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow from `start_s` by `factor` to `max_s`, each moved by up to `jitter_s`."""

    start_s: float
    factor: float
    max_s: float
    jitter_s: float = 0.0

    def delay_s(self, attempt: int, chance: random.Random, at_least_s: float | None = None) -> float:
        """The wait after the attempt with this number (from 0); a larger `at_least_s` of the server wins."""
        # The exponent is bounded: a wait without end would overflow a float one day.
        grown_s = min(self.max_s, self.start_s * self.factor ** min(attempt, 64))
        moved_s = max(0.0, grown_s + chance.uniform(-self.jitter_s, self.jitter_s))
        return max(moved_s, at_least_s or 0.0)


ACQUIRE_BACKOFF: Final = Backoff(start_s=1.0, factor=1.2, max_s=5.0, jitter_s=0.1)
UPDATE_BACKOFF: Final = Backoff(start_s=0.01, factor=2.0, max_s=0.5)
QUERY_BACKOFF: Final = Backoff(start_s=0.2, factor=2.0, max_s=5.0, jitter_s=0.1)
RETRIES_DEFAULT: Final = 5
