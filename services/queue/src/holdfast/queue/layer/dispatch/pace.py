"""How fast deliveries may leave: an allowance that grows with time, up to one second's worth."""


class Pace:
    """Pure; the caller brings the time. No rate: no limit."""

    def __init__(self, per_s: float, now_ms: int) -> None:
        self.per_s = per_s
        self._allowed = max(1.0, per_s)
        self._at_ms = now_ms

    def allowed(self, now_ms: int) -> int | None:
        """How many may leave now; None: any number."""
        if not self.per_s:
            return None
        self._grow(now_ms)
        return int(self._allowed)

    def spend(self, count: int) -> None:
        self._allowed -= count

    def next_ms(self) -> int:
        """When the next one may leave."""
        return self._at_ms + max(0, int((1.0 - self._allowed) / self.per_s * 1000) + 1)

    def _grow(self, now_ms: int) -> None:
        grown = self._allowed + (now_ms - self._at_ms) / 1000 * self.per_s
        self._allowed = min(max(1.0, self.per_s), grown)
        self._at_ms = now_ms
