"""The leases that this process knows to be held, and the moment the next one ends.

A heap gives that moment; the dict says what is true. Keepalive and release change the dict only, and an entry of the
heap that the dict no longer agrees with is dropped or put back when its time comes. So both cost nothing then, and the
whole costs by what ends, not by what exists.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

from holdfast.common.clock import SteadyClock

SLACK_ENTRIES = 10_000

M = TypeVar("M")
"""What a lease is known by."""


class Expiries(Generic[M]):
    """`run` calls `expire` for each lease whose time is over."""

    def __init__(self, clock: SteadyClock, expire: Callable[[M], Awaitable[None]]) -> None:
        self._clock = clock
        self._expire = expire
        self._expires_at_ms: dict[M, int] = {}
        self._heap: list[tuple[int, M]] = []
        self._earlier = asyncio.Event()

    def __len__(self) -> int:
        return len(self._expires_at_ms)

    def __contains__(self, member: M) -> bool:
        return member in self._expires_at_ms

    def __iter__(self) -> Iterator[M]:
        return iter(self._expires_at_ms)

    def get(self, member: M) -> int | None:
        """The moment it ends; None: it is not known."""
        return self._expires_at_ms.get(member)

    def set(self, member: M, expires_at_ms: int) -> None:
        known_ms = self._expires_at_ms.get(member)
        self._expires_at_ms[member] = expires_at_ms
        if known_ms is not None and known_ms <= expires_at_ms:
            return  # Its entry comes up earlier and is then put back.
        if not self._heap or expires_at_ms < self._heap[0][0]:
            self._earlier.set()
        heapq.heappush(self._heap, (expires_at_ms, member))
        if len(self._heap) > 2 * len(self._expires_at_ms) + SLACK_ENTRIES:
            self._heap = [(at_ms, held) for held, at_ms in self._expires_at_ms.items()]
            heapq.heapify(self._heap)

    def forget(self, member: M) -> None:
        self._expires_at_ms.pop(member, None)

    def look_again(self) -> None:
        """The clock made a step: what was due later may be over."""
        self._earlier.set()

    async def run(self) -> None:
        while True:
            self._earlier.clear()
            due_ms = self._heap[0][0] - self._clock.now_ms() if self._heap else None
            if due_ms is None or due_ms > 0:
                await self._sleep(None if due_ms is None else due_ms / 1000)
                continue
            entry_ms, member = heapq.heappop(self._heap)
            expires_at_ms = self._expires_at_ms.get(member)
            if expires_at_ms is None:
                continue
            if expires_at_ms > entry_ms:
                heapq.heappush(self._heap, (expires_at_ms, member))
                continue
            del self._expires_at_ms[member]
            await self._expire(member)

    async def _sleep(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._earlier.wait()
        except TimeoutError:
            return
