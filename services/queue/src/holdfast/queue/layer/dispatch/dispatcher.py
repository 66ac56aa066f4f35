"""The dispatcher of one queue: hands what is ready to the waiting consumers, first come, first served.

It only says who may try to take what; the commit of the claim decides. Everything here is a cache of the store, filled
page by page, told of each commit of this process, and emptied when in doubt.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from holdfast.common.clock import SteadyClock
from holdfast.queue.layer.dispatch.pages import Pages
from holdfast.queue.layer.dispatch.window import Entry, Order, Window
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.records import keys_of
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import MessageState, QueuePolicy
from holdfast.storage.errors import StorageError
from holdfast.storage.port import Store

WINDOW_PAGES = 4
RETRY_S = 1.0


class DispatcherHost(Protocol):
    """What a dispatcher needs of the service around it."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it on; the stop of the service waits for it."""
        ...

    def expired(self, dispatcher: "Dispatcher", entry: Entry) -> bool:
        """The lease ran out. True: it may be delivered again; False: it will be told what became of it."""
        ...


class Waiter:
    """One waiting consumer: up to `count_max` entries, by the future, when its turn comes."""

    __slots__ = ("count_max", "turn")

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.turn: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()


class Dispatcher:
    """The window on one queue, its wait queue of consumers, and one timer."""

    def __init__(
        self,
        address: QueueAddress,
        store: Store,
        clock: SteadyClock,
        host: DispatcherHost,
        limits: QueueLimits,
    ) -> None:
        self.address = address
        self.keys = keys_of(address)
        self.window = Window(WINDOW_PAGES * limits.page_entries)
        self.policy = QueuePolicy()
        self.is_loaded = False
        self.consumers = 0  # Waiting, or with a stream.
        self.watchers: set[Callable[[], None]] = set()
        self._is_shared = store.is_shared
        self._pages = Pages(store, address, limits.page_entries)
        self._clock = clock
        self._host = host
        self._limits = limits
        self._waiters: dict[Waiter, None] = {}
        self._rate = DeliveryRate(0.0, clock.now_ms())
        self._loading = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._is_reading_on = False
        self._has_missed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    @property
    def waiting_consumers(self) -> int:
        return len(self._waiters)

    @property
    def is_idle(self) -> bool:
        return not (self.consumers or self.watchers or self._loading.locked() or self._reading.locked())

    @property
    def is_full(self) -> bool:
        """As many are out as may be."""
        return self.window.out >= self._limits.out_max

    # -- the store

    async def load(self) -> None:
        """Read what is out, and the first of what is ready."""
        async with self._loading:
            while not self.is_loaded:
                window = self.window
                self.set_policy(await self._pages.policy())
                async for page in self._pages.taken():
                    self._add_all(window, page)
                await self._read_ready(window)
                self.is_loaded = (
                    window is self.window
                )  # Else there was a reset meanwhile, and this one is no more.
        self.pump()

    def reset(self) -> None:
        """Memory may be wrong: read again. The consumers keep their places."""
        forgotten = self.window
        self.window = Window(WINDOW_PAGES * self._limits.page_entries)
        self.is_loaded = False
        forgotten.end_streams()
        if self._waiters or self.watchers:
            self._host.spawn(self._load_again())

    async def _load_again(self) -> None:
        """For the waiting consumers, which would not ask a second time."""
        while not self.is_loaded:
            try:
                await self.load()
            except StorageError:
                await asyncio.sleep(RETRY_S)

    async def read_again(self, entries: Sequence[Entry]) -> None:
        """Another claim was faster, or the outcome of a commit is unknown: see what became of these."""
        if not entries:
            return
        latest = await self._pages.latest(entries)
        for entry in entries:
            if self.window.get(entry.message_id) is entry:  # Else something newer was told meanwhile.
                self.window.forget(entry.message_id)
        self.tell(latest)

    def set_policy(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self._rate = DeliveryRate(policy.deliveries_per_s, self._clock.now_ms())

    async def look_in_store(self) -> bool:
        """Nothing is ready here; another process may have sent what this one was not told of yet. Whether it has."""
        if not self._is_shared or self.policy.is_paused or self.window.head() is not None:
            return False
        async with self._reading:
            await self._read_ready(self.window)
        self.pump()
        return self.window.head() is not None

    async def _read_ready(self, window: Window) -> None:
        """One page of each priority: what a page shows of a priority is all of it but for the last one in it."""
        page = await self._pages.ready()
        while page:
            self._add_all(window, page)
            if len(page) < self._pages.size:
                return
            last = page[-1].order
            window.set_horizon(last)
            page = await self._pages.ready(after_priority=last.priority)

    async def _read_behind(self, horizon: Order) -> None:
        """The next page of one priority."""
        window = self.window  # After a reset the page is of no use: the new one has horizons of its own.
        self._has_missed = False
        page = await self._pages.ready_behind(horizon)
        window.lift_horizon(horizon.priority)
        self._add_all(window, page)
        if len(page) == self._pages.size or self._has_missed:
            window.set_horizon(page[-1].order if page else horizon)

    def _add_all(self, window: Window, entries: Sequence[Entry]) -> None:
        now_ms = self._clock.now_ms()
        for entry in entries:
            window.add(entry, now_ms)

    # -- what commits of this process tell

    def tell(self, entries: Sequence[Entry]) -> None:
        """These are ready or taken now."""
        self._has_missed = True  # A page that is being read may be older than these, and they lie behind it.
        self._add_all(self.window, entries)
        self.pump()

    def taken(self, entry: Entry, key: bytes, state: MessageState, revision: int) -> None:
        """What was handed out is claimed, until its lease is over."""
        self.window.taken(entry, key, state, revision)
        self.set_timer()

    def forget(self, message_id: str) -> None:
        """It is gone from this queue."""
        self.window.forget(message_id)
        if self._waiters or self.watchers:
            self.pump()

    def put_back(self, entries: Sequence[Entry]) -> None:
        """They were handed out and not taken."""
        for entry in entries:
            self.window.offer(entry)
        self.pump()

    # -- consumers

    async def take(self, count_max: int) -> list[Entry]:
        """What is ready now, unless others wait already; may be nothing."""
        if self._waiters:
            return []
        self._advance()
        entries: list[Entry] = []
        while len(entries) < count_max:
            if not self.is_loaded or self.window.gap(self._clock.now_ms()) is not None:
                await self._close_gaps_holding(entries)
                if self._waiters and not entries:
                    return []
            more = self._pop(count_max - len(entries))
            if not more:
                break
            entries += more
        self.set_timer()
        self._tell_watchers()
        return entries

    async def _close_gaps_holding(self, entries: Sequence[Entry]) -> None:
        try:
            await self._close_gaps()
        except BaseException:  # On any error: those that were popped already must not be lost.
            self.put_back(entries)
            raise

    async def head(self) -> Entry | None:
        """The message that would leave next, also if it has to be read first."""
        self._advance()
        await self._close_gaps()
        self.set_timer()  # Watchers hear of the next one, also without a waiting consumer.
        return self.window.head()

    def join(self, count_max: int) -> Waiter:
        waiter = Waiter(count_max)
        self._waiters[waiter] = None
        if not self.is_loaded:
            self._host.spawn(self._load_again())
        self.pump()
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """It has what it waited for, or gave up; what it was handed in that moment goes to the next one."""
        self._waiters.pop(waiter, None)
        if waiter.turn.cancelled() or not waiter.turn.done():
            waiter.turn.cancel()
        elif waiter.turn.exception() is None:
            self.put_back(waiter.turn.result())

    def pump(self) -> None:
        """Hand out what is ready, and have the timer call again when the next one is."""
        if not self.is_loaded:
            return
        self._advance()
        while self._waiters:
            if self.window.gap(self._clock.now_ms()) is not None:
                self._read_on_soon()
                break
            waiter = next(iter(self._waiters))
            if waiter.turn.done():
                del self._waiters[waiter]
                continue
            entries = self._pop(waiter.count_max)
            if not entries:
                break
            del self._waiters[waiter]
            waiter.turn.set_result(entries)
        self.set_timer()
        self._tell_watchers()

    def _tell_watchers(self) -> None:
        for changed in self.watchers:
            changed()

    def _read_on_soon(self) -> None:
        if not self._is_reading_on:
            self._is_reading_on = True
            self._host.spawn(self._read_on())

    async def _read_on(self) -> None:
        try:
            await self._close_gaps()
        except StorageError:
            self.reset()
        finally:
            self._is_reading_on = False
        self.pump()

    async def _close_gaps(self) -> None:
        async with self._reading:
            while True:
                if not self.is_loaded:
                    await self.load()
                horizon = self.window.gap(self._clock.now_ms())
                if horizon is None:
                    return
                await self._read_behind(horizon)
                self._advance()

    def _pop(self, count_max: int) -> list[Entry]:
        if self.policy.is_paused:
            return []
        count_max = min(count_max, self._limits.out_max - self.window.out)
        allowed = self._rate.allowed(self._clock.now_ms())
        if allowed is not None:
            count_max = min(count_max, allowed)
        now_ms = self._clock.now_ms()
        entries: list[Entry] = []
        while len(entries) < count_max and self.window.gap(now_ms) is None:
            entry = self.window.pop()
            if entry is None:
                break
            entries.append(entry)
        if allowed is not None:
            self._rate.spend(len(entries))
        return entries

    def _advance(self) -> None:
        for entry in self.window.advance(self._clock.now_ms()):
            if self._host.expired(self, entry):
                self.window.offer(entry)

    # -- time

    def set_timer(self) -> None:
        """Have `pump` called when time makes something ready."""
        due_ms = self.window.next_due_ms(self._clock.now_ms())
        is_paced = self._rate.allowed(self._clock.now_ms()) == 0
        if self._waiters and is_paced and self.window.head() is not None:
            next_ms = self._rate.next_ms()
            due_ms = next_ms if due_ms is None else min(due_ms, next_ms)
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            return  # A timer that comes too early sets the right one.
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, due_ms - self._clock.now_ms()) / 1000
        self._timer_ms = due_ms
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.pump()

    def clock_stepped(self) -> None:
        """The timer was set by the time before; what it waits for may be due."""
        self.close()
        self.pump()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class DeliveryRate:
    """Pure; the caller brings the time. No rate: no limit."""

    def __init__(self, per_s: float, now_ms: int) -> None:
        self.per_s = per_s
        self._allowed = max(1.0, per_s)
        self._at_ms = now_ms

    def allowed(self, now_ms: int) -> int | None:
        """How many may leave now; None: any number."""
        if not self.per_s:
            return None
        self._grow(now_ms)
        return int(self._allowed)

    def spend(self, count: int) -> None:
        self._allowed -= count

    def next_ms(self) -> int:
        """When the next one may leave."""
        return self._at_ms + max(0, int((1.0 - self._allowed) / self.per_s * 1000) + 1)

    def _grow(self, now_ms: int) -> None:
        grown = self._allowed + (now_ms - self._at_ms) / 1000 * self.per_s
        self._allowed = min(max(1.0, self.per_s), grown)
        self._at_ms = now_ms
