"""Connections for one kind of calls: small pools of httpx side by side, and a bound on the calls under way.

httpcore looks at every connection and every request of a pool whenever one begins or ends, and again for each idle
connection: with hundreds of them that takes all the time there is. So a pool has few connections, the next one is opened
when the others are busy, and calls beyond the bound wait here for their turn, where waiting costs nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx

SHARD_CONNECTIONS: Final = 8
_BEGIN_MAX: Final = 16
_BEGIN_S: Final = 0.05
"""A waiting call that has no answer by then waits at the server, and takes no time here."""


class TurnMissed(Exception):
    """The turn of a call did not come in time; nothing was sent."""


@dataclass(slots=True)
class _Shard:
    client: httpx.AsyncClient
    calls: int = 0


class CallPool:
    """At most `calls_max` calls at once, first come, first served. `open_client` is given the number of the pool.

    Of calls that may wait at the server, few begin at the same time: most keys are free, so most of these are answered at
    once, on the connections that are open already.
    """

    def __init__(
        self, open_client: Callable[[int], httpx.AsyncClient], calls_max: int, *, may_wait: bool = False
    ) -> None:
        self._open_client = open_client
        self._shards: list[_Shard] = []
        self._calls = asyncio.Semaphore(calls_max)
        self._begins = asyncio.Semaphore(_BEGIN_MAX) if may_wait else None
        self._is_closed = False

    @asynccontextmanager
    async def client(self, timeout_s: float | None) -> AsyncIterator[httpx.AsyncClient]:
        """The client for one call; TurnMissed if its turn does not come in time."""
        await _acquire(self._calls, timeout_s)
        beginning: _Beginning | None = None
        shard: _Shard | None = None
        try:
            if self._begins is not None:
                await _acquire(self._begins, timeout_s)
                beginning = _Beginning(self._begins)
            if self._is_closed:
                raise RuntimeError("the client was closed while this call waited for its turn")
            shard = self._free_shard()
            shard.calls += 1
            yield shard.client
        finally:
            if shard is not None:
                shard.calls -= 1
            if beginning is not None:
                beginning.end()
            self._calls.release()

    async def aclose(self) -> None:
        self._is_closed = True
        for shard in self._shards:
            await shard.client.aclose()

    def _free_shard(self) -> _Shard:
        for shard in self._shards:
            if shard.calls < SHARD_CONNECTIONS:
                return shard
        shard = _Shard(self._open_client(len(self._shards)))
        self._shards.append(shard)
        return shard


class _Beginning:
    """A place among the calls that begin, given up by the call's end or by time, whichever is first."""

    def __init__(self, begins: asyncio.Semaphore) -> None:
        self._begins = begins
        self._timer = asyncio.get_running_loop().call_later(_BEGIN_S, self.end)
        self._is_over = False

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._begins.release()


async def _acquire(semaphore: asyncio.Semaphore, timeout_s: float | None) -> None:
    if not semaphore.locked():
        await semaphore.acquire()  # Does not wait, so it needs no timer.
        return
    try:
        async with asyncio.timeout(timeout_s):
            await semaphore.acquire()
    except TimeoutError as error:
        raise TurnMissed("too many calls at once") from error
