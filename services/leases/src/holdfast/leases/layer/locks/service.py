"""The locks, signals and values of one process, with what time does to them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from holdfast.leases.layer.locks.records import Session
from holdfast.leases.layer.locks.signals import SignalHub
from holdfast.leases.layer.locks.table import LockTable, TableLimits
from holdfast.leases.layer.locks.tokens import Tokens
from holdfast.leases.layer.locks.values import ValueLimits, Values


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOptions:
    """How long things live, and how many there may be."""

    default_ttl_s: int = 33
    sweep_interval_s: float = 1.0
    gc_interval_s: float = 5.0
    idle_s_max: float = 60.0
    """Keys that nobody used for longer are forgotten."""
    releases_with_session: bool = True
    """What a client holds ends with its connection."""
    table: TableLimits = field(default_factory=TableLimits)
    values: ValueLimits = field(default_factory=ValueLimits)


DEFAULT_OPTIONS: Final = LockOptions()


class LockService:
    """What every way to locks, from TCP or HTTP, shares."""

    def __init__(
        self, options: LockOptions = DEFAULT_OPTIONS, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = options
        self.now_s = now_s
        self.table = LockTable(Tokens(lambda: time.time_ns() // 1000).next, options.table)
        self.signals = SignalHub()
        self.values = Values(options.values)
        self.on_expired: Callable[[int], object] = lambda count: None
        self._sessions = 0

    def begin_session(self, address: str = "") -> Session:
        """Numbers begin with 1 and are not used again."""
        self._sessions += 1
        return Session(self._sessions, address)

    def end_session(self, session: Session) -> None:
        self.table.end_session(session, self.now_s(), keeps_leases=not self.options.releases_with_session)

    def sweep(self) -> None:
        """End the leases whose time is over."""
        if ended := self.table.expire(self.now_s()):
            self.on_expired(ended)

    def collect(self) -> None:
        """Forget what was not used for long."""
        now_s = self.now_s()
        self.table.forget_idle(now_s, self.options.idle_s_max)
        self.values.forget(now_s, self.options.idle_s_max)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Leases end and idle keys are forgotten inside this block."""
        tasks = [
            asyncio.create_task(_repeat(self.sweep, self.options.sweep_interval_s), name="locks.sweep"),
            asyncio.create_task(_repeat(self.collect, self.options.gc_interval_s), name="locks.collect"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _repeat(work: Callable[[], None], interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        work()
