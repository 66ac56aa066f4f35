"""Writes that fail: told once in the log when that begins, and once when it is over; readiness asks here.

A detail of ours reads "cause; cure", and the log has the two apart.
"""

import time
from collections.abc import Callable
from typing import Final

from holdfast.common.errors import HoldfastError
from holdfast.common.logging import Logger, get_logger
from holdfast.storage.errors import StorageError, StoreFull, StoreReadOnly

SAME_EPISODE_S: Final = 60.0
"""What comes back sooner is the same trouble: an upload that does not fit makes room again when it is refused."""

_log = get_logger("storage.backend.core")


def warn_unless_told(log: Logger, msg: str, error: HoldfastError, **fields: object) -> None:
    """For work that is tried again and again: what the store has told of itself is not told by each of its users."""
    tell = log.debug if isinstance(error, StoreFull | StoreReadOnly) else log.warn
    tell(msg, reason=error.detail, **fields)


class WriteTrouble:
    """The episode of one store in which writes fail. Used on the event loop only."""

    __slots__ = (
        "_began_s",
        "_ended_s",
        "_failed_s",
        "_is_told",
        "_last_code",
        "_monotonic_s",
        "_url",
        "error",
    )

    def __init__(self, url: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._monotonic_s = monotonic_s
        self._began_s = self._failed_s = self._ended_s = 0.0
        self._last_code = ""
        self._is_told = False
        self.error: StorageError | None = None

    def began(self, error: StorageError) -> None:
        """A write failed. Only the first one of an episode is told, and one that fails for another reason."""
        before, self.error = self.error, error
        self._failed_s = self._monotonic_s()
        if before is None:
            self._began_s = self._failed_s
            self._is_told = False
        if error.code != self._last_code or (before is None and not self._was_over_just_now()):
            self._is_told = True
            cause, _, cure = error.detail.partition("; ")
            _log.error("storage.writes.failing", store=self._url, code=error.code, cause=cause, cure=cure)
        self._last_code = error.code

    def _was_over_just_now(self) -> bool:
        return self._began_s - self._ended_s < SAME_EPISODE_S

    def failed_s_ago(self) -> float:
        """When a write failed last."""
        return self._monotonic_s() - self._failed_s

    def end(self) -> None:
        """Writes go on."""
        error, self.error = self.error, None
        if error is None:
            return
        self._ended_s = self._monotonic_s()
        if self._is_told:
            lasted_s = round(self._ended_s - self._began_s, 3)
            _log.info("storage.writes.resumed", store=self._url, code=error.code, lasted_s=lasted_s)
