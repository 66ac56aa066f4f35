"""Logs steps that take unusually long while they still run, not only when they are over."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.common.logging import get_logger
from holdfast.common.telemetry.metrics import Timing

THRESHOLD_S: Final = 10.0

_log = get_logger("txn.coordinator")


@contextmanager
def watched(
    timing: Timing, operation: str, txn_id: str = "", *, threshold_s: float = THRESHOLD_S
) -> Iterator[None]:
    """A block that is timed, and warned of once if it does not end in time."""

    def warn() -> None:
        _log.warn(
            f"txn.{operation}.watchdog",
            txn_id=txn_id,
            elapsed_ms=int(threshold_s * 1000),
            threshold_ms=int(threshold_s * 1000),
        )

    timer = asyncio.get_running_loop().call_later(threshold_s, warn)
    try:
        with timing.observed():
            yield
    finally:
        timer.cancel()
