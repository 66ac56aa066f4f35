"""The last seconds of a server: leases may still be used and released, new ones are refused."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from holdfast.common.clock import Clock, SystemClock
from holdfast.common.errors import Draining, ShutdownDraining
from holdfast.common.logging import get_logger
from holdfast.common.telemetry.metrics import Registry

SHARE_OF_BUDGET: Final = 0.8
_CHECK_EVERY_S: Final = 0.25

_log = get_logger("server.shutdown.controller")

Result = TypeVar("Result")


def drain_window_s(drain_grace_s: float, shutdown_timeout_s: float) -> float:
    """How long a drain may take: the rest of the shutdown budget, which is without limit if it is 0, is for closing connections."""
    if not shutdown_timeout_s:
        return drain_grace_s
    return max(0.0, min(drain_grace_s, shutdown_timeout_s * SHARE_OF_BUDGET))


class Drain:
    """Whether this server is draining, and for how long it still will."""

    def __init__(self, *, active_leases: Callable[[], int] | None = None, clock: Clock | None = None) -> None:
        self.active_leases: Callable[[], int] = active_leases or (lambda: 0)
        self.is_draining = False
        self._clock: Clock = clock or SystemClock()
        self._ends_at_s = 0.0
        self._changed = asyncio.Event()
        self.lease_ended: Callable[[], None] = self._changed.set
        """A lease was released or expired: look again whether any is left."""
        self._at_begin: list[Callable[[], None]] = []
        self._begun_with = 0
        self._left_over = 0
        self._elapsed_s = 0.0

    def register(self, registry: Registry) -> None:
        """Show the drain in the metrics; its figures stay at zero until there is one."""
        name = "holdfast.shutdown.drain"
        registry.gauge(
            f"{name}.active_leases",
            "Leases held when the drain began.",
            callback=lambda: float(self._begun_with),
        )
        registry.gauge(
            f"{name}.remaining_leases", "Leases held when it ended.", callback=lambda: float(self._left_over)
        )
        registry.gauge(
            f"{name}.elapsed_seconds", "How long it took.", unit="s", callback=lambda: self._elapsed_s
        )

    def remaining_s(self) -> float:
        """Seconds left of the window; 0 when not draining."""
        return max(0.0, self._ends_at_s - self._clock.monotonic_s()) if self.is_draining else 0.0

    def refuse_new_work(self) -> None:
        """Raise ShutdownDraining while draining: acquire and dequeue call this first."""
        if self.is_draining:
            raise ShutdownDraining(
                "server is draining existing leases", retry_after_s=max(1.0, self.remaining_s())
            )

    def at_begin(self, callback: Callable[[], None]) -> None:
        """Call this when the drain begins: for streams, which would never end by themselves."""
        self._at_begin.append(callback)

    def begin(self, window_s: float) -> None:
        """Refuse new work from now on."""
        self.is_draining = True
        self._ends_at_s = self._clock.monotonic_s() + window_s
        for callback in self._at_begin:
            callback()

    def cut_short(self) -> None:
        """End the window now; what is left is not waited for."""
        self._ends_at_s = self._clock.monotonic_s()
        self._changed.set()

    async def run(self, window_s: float) -> None:
        """Begin, and wait until no lease is left or the window is over."""
        self.begin(window_s)
        active = self._begun_with = self.active_leases()
        if window_s <= 0 or active == 0:
            _log.info("shutdown.drain.skip", active_leases=active, grace_period=window_s)
            return
        started_s = self._clock.monotonic_s()
        _log.info(
            "shutdown.drain.begin",
            active_leases=active,
            grace_period=window_s,
            force_release=False,
            notify_clients=True,
        )
        remaining = self._left_over = await self._wait_until_free()
        self._elapsed_s = self._clock.monotonic_s() - started_s
        _log.info(
            "shutdown.drain.complete",
            active_leases=active,
            released=max(0, active - remaining),
            forced_releases=0,
            remaining=remaining,
            elapsed=round(self._elapsed_s, 3),
        )

    async def _wait_until_free(self) -> int:
        """Leases tell when they end; the short wait is for those that expire without an event."""
        while (remaining := self.active_leases()) > 0 and self.remaining_s() > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(min(_CHECK_EVERY_S, self.remaining_s())):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return remaining


class Waits:
    """Waits that end when the server begins to drain."""

    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        self._open: set[asyncio.Timeout] = set()
        self._told: set[Callable[[], None]] = set()
        drain.at_begin(self._end)

    async def until_drain(self, awaited: Awaitable[Result]) -> Result:
        """The result, or Draining. What is awaited is cancelled then."""
        limit = asyncio.timeout(0 if self._drain.is_draining else None)
        try:
            async with limit:
                self._open.add(limit)
                return await awaited
        except TimeoutError:
            if limit.expired():
                raise Draining from None
            raise
        finally:
            self._open.discard(limit)

    @contextmanager
    def told(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` when the drain begins, or at once if it has; for what waits many times, and knows how to stop itself."""
        if self._drain.is_draining:
            end()
        self._told.add(end)
        try:
            yield
        finally:
            self._told.discard(end)

    def _end(self) -> None:
        for end in list(self._told):
            end()
        now_s = asyncio.get_running_loop().time()
        for limit in self._open:
            limit.reschedule(now_s)
