"""Whether a device syncs quickly enough for the event loop to wait for it.

Handing a group to a thread and being woken by it costs more than a quick device takes to sync it. A slow one must not hold up
other requests: what slow syncs take is watched, per sync, and decides, with some room between stopping and beginning again.
One long stall is enough to stop, and is remembered for longer than the average has room for.
"""

QUICK_S = 0.001
STOPS_AT_S = 0.001
BEGINS_AT_S = 0.0005
_WEIGHT = 1 / 64  # Of one sync in the moving average.
FORGOTTEN_S = 1e-6
STALL_S = 0.05
SYNCS_AFTER_STALL = 4096


class FsyncPolicy:
    """Fed with the time of every sync, but of quick ones while it is calm: they change nothing then. The loop may begin after
    `syncs_min` of them; None: never."""

    __slots__ = ("_slow_s", "_syncs_left", "_syncs_min", "allows_loop", "is_calm")

    def __init__(self, syncs_min: int | None) -> None:
        self._syncs_min = syncs_min
        self._syncs_left = syncs_min or 0  # Until the loop may begin.
        self._slow_s = 0.0  # What syncs took that were not quick, on average over all.
        self.allows_loop = syncs_min is not None and syncs_min <= 0
        self.is_calm = syncs_min is None or self.allows_loop

    def took(self, seconds: float) -> None:
        if self._syncs_min is None:
            return
        self._slow_s += _WEIGHT * ((0.0 if seconds < QUICK_S else min(seconds, STALL_S)) - self._slow_s)
        if self._slow_s < FORGOTTEN_S:
            self._slow_s = 0.0
        self._syncs_left -= self._syncs_left > 0
        if seconds >= STALL_S:
            self._syncs_left = SYNCS_AFTER_STALL
            self.allows_loop = False
        if self._syncs_left == 0:
            self.allows_loop = self._slow_s < (STOPS_AT_S if self.allows_loop else BEGINS_AT_S)
        self.is_calm = self.allows_loop and not self._slow_s
