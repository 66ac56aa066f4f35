"""Time that runs faster: an event loop and a clock for it, so that leases of a second end in a blink."""

import asyncio
import selectors
import time
from dataclasses import replace
from typing import Final

import pytest

from holdfast.common.clock import Clock
from holdfast.common.settings import PlaneSettings
from holdfast.storage.hosting.configured import store_options
from holdfast.storage.options import StoreOptions

SPEED: Final = 10
"""How many seconds pass in one. Faster, and a busy machine lets leases end that were to be kept."""


class _FastSelector(selectors.DefaultSelector):
    """Waits a tenth of the time it is told to."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout is None else timeout / SPEED)


class FastLoop(asyncio.SelectorEventLoop):
    """Every sleep and timeout in it is shorter by `SPEED`."""

    def __init__(self) -> None:
        super().__init__(_FastSelector())

    def time(self) -> float:
        return super().time() * SPEED


class FastClock:
    """The clock of such a loop; its wall clock jumps about, as one that is set by hand would."""

    _JUMPS_S: Final = (0, 3600, -3600, 86400)

    def wall_s(self) -> float:
        return 1_700_000_000 + self.monotonic_s() + self._JUMPS_S[int(self.monotonic_s()) % 4]

    def monotonic_s(self) -> float:
        return time.monotonic() * SPEED


class ShiftedClock:
    """The machine's clock with a lead that a test makes longer: so a lease ends without waiting for it."""

    def __init__(self) -> None:
        self.lead_s = 0.0

    def wall_s(self) -> float:
        return time.time() + self.lead_s

    def monotonic_s(self) -> float:
        return time.monotonic() + self.lead_s


def use_clock(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Stores that are opened from now on take their time from this clock."""

    def options(settings: PlaneSettings) -> StoreOptions:
        return replace(store_options(settings), clock=clock)

    monkeypatch.setattr("holdfast.storage.hosting.store_app.store_options", options)
