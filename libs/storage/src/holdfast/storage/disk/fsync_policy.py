"""Whether a device syncs quickly enough for the event loop to wait for it.

Handing one small record to a thread and being woken by it costs more than a quick device takes to sync it. A slow one
must not hold up everybody else, so trust is earned by many quick syncs in a row and lost by a single slow one.
"""

QUICK_S = 0.001


class FsyncPolicy:
    """Fed with the time of every sync. `syncs_min` quick ones in a row earn it; None: nothing."""

    __slots__ = ("_quick_syncs", "_syncs_min", "is_earned")

    def __init__(self, syncs_min: int | None) -> None:
        self._syncs_min = syncs_min
        self._quick_syncs = 0
        self.is_earned = syncs_min is not None and syncs_min <= 0

    def took(self, seconds: float) -> None:
        self._quick_syncs = self._quick_syncs + 1 if seconds < QUICK_S else 0
        self.is_earned = self._syncs_min is not None and self._quick_syncs >= self._syncs_min
