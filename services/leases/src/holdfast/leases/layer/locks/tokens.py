"""Tokens of grants: 32 hex digits that cannot be guessed, and of which a later one is always the greater."""

import os
from collections.abc import Callable
from typing import Final

_RANDOM_DIGITS: Final = 16
_POOL_BYTES: Final = 4096


class Tokens:
    """16 digits that count microseconds, 16 digits of chance. `now_us` is the time of day, so tokens also rise over a restart."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.last = 0
        """The counter of the latest token."""
        self._pool = b""
        self._used = 0

    def raise_to(self, counter: int) -> None:
        """Those that follow are greater than any of this counter."""
        self.last = max(self.last, counter)

    def next(self) -> bytes:
        self.last = max(self.last + 1, self._now_us())
        start = self._used
        if start == len(self._pool):
            self._pool, start = os.urandom(_POOL_BYTES).hex().encode(), 0
        self._used = start + _RANDOM_DIGITS
        return b"%016x%b" % (self.last, self._pool[start : self._used])
