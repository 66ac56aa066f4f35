"""The locks, signals and values of one process, with what time does to them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final

from holdfast.leases.layer.locks.listening import ChannelView, Listening, together
from holdfast.leases.layer.locks.records import Outcome, Pending, Refused, Session, Tell, Waiter
from holdfast.leases.layer.locks.signals import Listener, SignalHub
from holdfast.leases.layer.locks.table import LockTable, TableLimits
from holdfast.leases.layer.locks.tokens import Tokens
from holdfast.leases.layer.locks.values import STEPS, ValueLimits, Values
from holdfast.leases.layer.locks.views import LockView, view_of

WAIT_S_MAX: Final = 1e9
LIST_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOptions:
    """How long things live, and how many there may be."""

    default_ttl_s: int = 33
    sweep_interval_s: float = 1.0
    gc_interval_s: float = 5.0
    idle_s_max: float = 60.0
    """Keys that were not used for longer are forgotten."""
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
        self.listening = Listening()
        self.values = Values(options.values)
        self.on_expired: Callable[[int], object] = lambda count: None
        self.is_stopping = False
        self.may_sweep: Callable[[], bool] = lambda: True
        self.on_ticket: Callable[[str, bytes, float, Tell], Outcome | Pending] = _no_ticket
        """Waits for the place of a ticket that this process gave."""
        self.figures: Callable[[], bytes] = bytes
        """What this process has, as the protocol tells it that has figures."""
        self._sessions = 0

    # -- sessions

    def begin_session(self, address: str = "") -> Session:
        """Numbers begin with 1 and are not used again."""
        self._sessions += 1
        return Session(self._sessions, address)

    def end_session(self, session: Session, *, keeps_leases: bool = False) -> None:
        """The client is gone: nothing is granted to it or told to it any more."""
        keeps_leases = keeps_leases or not self.options.releases_with_session
        self.table.end_session(session, self.now_s(), keeps_leases=keeps_leases)

    # -- locks and semaphores: the outcome, or a pending request, of which `tell` hears later and once

    def acquire(
        self, session: Session, key: bytes, limit: int, ttl_s: int, timeout_s: float, tell: Tell
    ) -> Outcome | Pending:
        """A slot, now or within the time."""
        found = self.table.acquire(session, key, limit, ttl_s, self.now_s(), tell if timeout_s else None)
        return self._watched(found, timeout_s) if type(found) is Waiter else found

    def enqueue(self, session: Session, key: bytes, limit: int, ttl_s: int, tell: Tell) -> Outcome | Pending:
        """A slot at once, or None: a place in the queue, which `wait` asks for."""
        return self.table.enqueue(session, key, limit, ttl_s, self.now_s())

    def wait(self, session: Session, key: bytes, timeout_s: float, tell: Tell) -> Outcome | Pending:
        """The slot of the place that `enqueue` took."""
        found = self.table.wait(session, key, self.now_s(), tell if timeout_s else None)
        return self._watched(found, timeout_s) if type(found) is Waiter else found

    @property
    def node(self) -> str:
        """The name of this process among those that share the locks; it has no blanks and no dots."""
        return ""

    def redeem(self, node: str, ticket: str, key: bytes, timeout_s: float, tell: Tell) -> Outcome | Pending:
        """The slot of a place whose session is at this node, by its ticket."""
        return self.on_ticket(ticket, key, timeout_s, tell) if node == self.node else Refused.NOT_ENQUEUED

    def release(self, session: Session, key: bytes, token: bytes, tell: Tell) -> Outcome | Pending:
        """Whether the token held a slot; any session may release it."""
        return self.table.release(key, token, self.now_s())

    def renew(self, session: Session, key: bytes, token: bytes, ttl_s: int, tell: Tell) -> Outcome | Pending:
        """Whether the lease goes on, so long from now."""
        return self.table.renew(key, token, ttl_s, self.now_s())

    def cancel(self, pending: Pending) -> None:
        """Its client does not want it any more and is not told; what it gets all the same is given back."""
        if isinstance(pending, Waiter):
            pending.tell = None
            self.table.cancel(pending, self.now_s())

    def _watched(self, waiter: Waiter, timeout_s: float) -> Outcome | Pending:
        """Until its time is over; while the service stops no request waits."""
        if self.is_stopping:
            self.table.cancel(waiter, self.now_s())
            return Refused.UNAVAILABLE
        loop = asyncio.get_running_loop()
        waiter.timer = loop.call_later(min(timeout_s, WAIT_S_MAX), self._time_out, waiter)
        return waiter

    def _time_out(self, waiter: Waiter) -> None:
        self._refuse(waiter, Refused.TIMEOUT)

    def _refuse(self, waiter: Waiter, reason: Refused) -> None:
        self.table.cancel(waiter, self.now_s())
        waiter.finish(reason)

    def begin_stop(self) -> None:
        """Waiters are told so, and no request waits from now on; what is held may still be released."""
        self.is_stopping = True
        waiting = [waiter for lock in self.table.locks for waiter in lock.waiters if waiter.tell is not None]
        for waiter in waiting:
            self._refuse(waiter, Refused.UNAVAILABLE)

    # -- signals

    def listen(self, listener: Listener, pattern: bytes, group: bytes, tell: Tell) -> Outcome | Pending:
        """Raises InvalidPattern."""
        self.signals.listen(listener, pattern, group)
        self.listening.add(listener, pattern, group, self.now_s())
        return True

    def unlisten(self, listener: Listener, pattern: bytes, group: bytes, tell: Tell) -> Outcome | Pending:
        self.signals.unlisten(listener, pattern, group)
        self.listening.remove(listener, pattern, group)
        return True

    def leave(self, listener: Listener) -> None:
        """The listener is gone."""
        self.signals.leave(listener)
        self.listening.leave(listener)

    def signal(self, channel: bytes, payload: bytes, tell: Tell) -> Outcome | Pending:
        """How many took it."""
        return self.signals.send(channel, payload)

    # -- values

    def value(self, step: str, key: bytes, arguments: Sequence[int | bytes], tell: Tell) -> Outcome | Pending:
        """What one of `STEPS` comes to."""
        return STEPS[step](self.values, self.now_s(), key, *arguments)

    # -- what there is

    def overview(self, tell: Tell) -> Outcome | Pending:
        """The figures of every process that decides about locks, each as a text of its own."""
        return [self.figures()]

    def describe(self, key: bytes) -> LockView | None:
        """What this process knows of a key."""
        lock = self.table.lock(key)
        return None if lock is None else view_of(lock, self.now_s())

    def list(self, prefix: bytes = b"", limit: int = LIST_MAX, after: bytes = b"") -> list[LockView]:
        """The keys that begin so and come after that one, in order: held, waited for or idle."""
        names = [lock.name for lock in self.table.locks if lock.name.startswith(prefix) and lock.name > after]
        found = (self.describe(name) for name in nsmallest(limit, names))
        return [view for view in found if view is not None]

    async def describe_everywhere(self, key: bytes) -> LockView | None:
        """The same of the process that decides about the key."""
        return self.describe(key)

    async def list_everywhere(
        self, prefix: bytes = b"", limit: int = LIST_MAX, after: bytes = b""
    ) -> Sequence[LockView]:
        """The same of all processes; those that do not answer are left out."""
        return self.list(prefix, limit, after)

    def channels(self, prefix: bytes = b"") -> Sequence[ChannelView]:
        """What the connections of this process listen to, of the patterns that begin so."""
        return together(self.listening.views(prefix, self.now_s()))

    async def channels_everywhere(self, prefix: bytes = b"") -> Sequence[ChannelView]:
        """The same of all processes; those that do not answer are left out."""
        return self.channels(prefix)

    def lose(self, key: bytes) -> None:
        """Another process decides about the key from now on: who waits is refused, who holds it is told that it is lost."""
        lock = self.table.lock(key)
        if lock is None:
            return
        sessions = {holder.session for holder in lock.holders.values()}
        self._refuse_all(list(lock.waiters))
        self.table.forget(key)
        for session in sessions:
            if session.on_lost is not None:
                session.on_lost()

    def _refuse_all(self, waiters: Sequence[Waiter]) -> None:
        for waiter in waiters:
            self.table.cancel(waiter, self.now_s())
        for waiter in waiters:
            if waiter.enqueued is not None:
                waiter.enqueued.waiter = None  # Its session asks for it later, and hears that it is lost.
            waiter.finish(Refused.UNAVAILABLE)

    # -- time

    def sweep(self) -> None:
        """End the leases whose time is over."""
        if ended := self.table.expire(self.now_s()):
            self.on_expired(ended)

    async def collect(self) -> None:
        """Forget what was not used for long."""
        now_s = self.now_s()
        self.table.forget_idle(now_s, self.options.idle_s_max)
        self.values.forget(now_s, self.options.idle_s_max)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Leases end and idle keys are forgotten inside this block."""
        tasks = [
            asyncio.create_task(self._sweep_on(), name="locks.sweep"),
            asyncio.create_task(self._collect_on(), name="locks.collect"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(self.options.sweep_interval_s)
            if self.may_sweep():
                self.sweep()

    async def _collect_on(self) -> None:
        while True:
            await asyncio.sleep(self.options.gc_interval_s)
            await self.collect()


def _no_ticket(ticket: str, key: bytes, timeout_s: float, tell: Tell) -> Outcome | Pending:
    return Refused.NOT_ENQUEUED
