"""How fast an election goes: everything follows from the time a leader's lease lasts."""

from dataclasses import dataclass
from typing import Final

_ROUND_S_MAX: Final = 5.0
_ROUND_MARGIN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ElectionTiming:
    """With a lease of 15 s: renewals every 5 s, back-off from 0.5 to 3 s, members forgotten after 45 s."""

    ttl_s: float = 15.0

    @property
    def ttl_ms(self) -> int:
        return int(self.ttl_s * 1000)

    @property
    def renew_s(self) -> float:
        return self.ttl_s / 3

    @property
    def retry_s(self) -> float:
        """After a renewal without a quorum."""
        return self.ttl_s / 6

    @property
    def round_s(self) -> float:
        """How long peers may take to answer."""
        longest_s = min(_ROUND_S_MAX, self.ttl_s * 2 / 3)
        return max(longest_s - _ROUND_MARGIN_S, longest_s / 2)

    @property
    def release_s(self) -> float:
        """A courtesy to the peers, which would find out by themselves."""
        return self.ttl_s / 15

    @property
    def skew_s(self) -> float:
        """Over this time the first tries of all nodes are spread."""
        return self.ttl_s / 30

    @property
    def member_ttl_s(self) -> float:
        return max(1.0, 3 * self.ttl_s)

    def backoff_s(self, failures: int, luck: float) -> float:
        """The pause after so many failed tries in a row; `luck` is in [0, 1)."""
        pause_s = min(self.ttl_s / 30 * 2.0 ** min(failures - 1, 10), self.ttl_s / 5)
        return pause_s * (1 + luck)
