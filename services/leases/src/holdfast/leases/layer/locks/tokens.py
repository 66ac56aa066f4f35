"""Tokens of grants: 32 hex digits that cannot be guessed, and of which a later one is always the greater."""

import os
from collections.abc import Callable
from typing import Final

_RANDOM_BYTES: Final = 8
_POOL_BYTES: Final = 4096


class Tokens:
    """16 digits that count microseconds, 16 digits of chance. `now_us` is the time of day, so tokens also rise over a restart."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.last = 0
        """The counter of the latest token."""
        self._pool = b""
        self._used_bytes = 0

    def raise_to(self, counter: int) -> None:
        """Those that follow are greater than any of this counter."""
        self.last = max(self.last, counter)

    def next(self) -> bytes:
        self.last = max(self.last + 1, self._now_us())
        if self._used_bytes == len(self._pool):
            self._pool, self._used_bytes = os.urandom(_POOL_BYTES), 0
        start = self._used_bytes
        self._used_bytes = start + _RANDOM_BYTES
        return b"%016x%s" % (self.last, self._pool[start : self._used_bytes].hex().encode())
