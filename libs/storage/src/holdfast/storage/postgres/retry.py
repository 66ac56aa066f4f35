"""Trying again for a bounded time while the database is away."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.common.backoff import Backoff
from holdfast.storage.errors import StorageError
from holdfast.storage.postgres.fault import is_worth_retry

READ_RETRY_S = 5.0  # A database that restarts is back within this time, mostly.

T = TypeVar("T")


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
