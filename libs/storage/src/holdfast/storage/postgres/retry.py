"""Trying again for a bounded time, with growing pauses and jitter."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.common.clock import SystemClock
from holdfast.storage.errors import StorageError
from holdfast.storage.postgres.fault import is_worth_retry

READ_RETRY_S = 5.0  # A database that restarts is back within this time, mostly.
PAUSE_S_FIRST = 0.02
PAUSE_S_MAX = 1.0

T = TypeVar("T")


class Backoff:
    """Pauses between attempts until `for_s` seconds have passed; for ever if that is None."""

    def __init__(self, for_s: float | None) -> None:
        self._clock = SystemClock()  # Real time: what is waited for is a real server.
        self._end_s = None if for_s is None else self._clock.monotonic_s() + for_s
        self._pause_s = PAUSE_S_FIRST

    @property
    def is_over(self) -> bool:
        return self._end_s is not None and self._clock.monotonic_s() >= self._end_s

    async def pause(self) -> None:
        """Between half and the whole of the next pause, so that many clients do not come back at once."""
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.0))
        self._pause_s = min(PAUSE_S_MAX, self._pause_s * 2)


async def retried(operation: Callable[[], Awaitable[T]], *, for_s: float) -> T:
    """The result of `operation`, run again while the database is away, for at most about `for_s` seconds."""
    backoff = Backoff(for_s)
    while True:
        try:
            return await operation()
        except StorageError as error:
            if not is_worth_retry(error) or backoff.is_over:
                raise
        await backoff.pause()
