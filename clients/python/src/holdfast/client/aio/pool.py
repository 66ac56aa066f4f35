"""Connections of the asynchronous client, by the kind of call: small pools of httpx, and a bound on the calls under way.

httpcore looks at every connection and every request of a pool whenever one begins or ends, and again for each idle
connection: with hundreds of them that takes all the time there is. So a pool has few connections, the next one is opened
when the others are busy, and calls beyond the bound wait here for their turn, where waiting costs nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import httpx

from holdfast.client.wire.call import Call, Pool
from holdfast.client.wire.connection import IDLE_S_MAX, ServerConnection

SHARD_CONNECTIONS: Final = 8
_BEGIN_MAX: Final = 16
_BEGIN_S: Final = 0.05
"""A waiting call that has no answer by then waits at the server, and takes no time here."""
_IDLE_WAIT_SHARDS: Final = 8

OpenClient = Callable[[httpx.Limits], httpx.AsyncClient]


class TurnMissed(httpx.PoolTimeout):
    """The turn of a call did not come in time; nothing was sent."""


@dataclass(slots=True)
class _Shard:
    client: httpx.AsyncClient
    calls: int = 0


class Pools:
    """The client for each call; none of the four kinds can starve another."""

    def __init__(self, connection: ServerConnection, open_client: OpenClient) -> None:
        self._calls: dict[Pool, CallPool] = {
            "call": _call_pool(connection, "call", open_client),
            "wait": _call_pool(connection, "wait", open_client),
            "keepalive": _call_pool(connection, "keepalive", open_client),
        }
        # What stays open has its connection for as long as its reader likes, so no turn ends with the call.
        self._streams: dict[Pool, httpx.AsyncClient] = {
            "call": open_client(connection.limits("call")),
            "wait": open_client(connection.limits("wait")),
            "stream": open_client(connection.limits("stream")),
        }

    def client(self, call: Call, timeout_s: float | None) -> AbstractAsyncContextManager[httpx.AsyncClient]:
        """TurnMissed if the turn of the call does not come in time."""
        if call.is_stream:
            return nullcontext(self._streams[call.pool])
        return self._calls[call.pool].client(timeout_s)

    async def close(self) -> None:
        for pool in self._calls.values():
            await pool.aclose()
        for client in self._streams.values():
            await client.aclose()


def _call_pool(connection: ServerConnection, pool: Pool, open_client: OpenClient) -> "CallPool":
    def open_shard(number: int) -> httpx.AsyncClient:
        # Of waits only the first few leave their connections open: many may wait, and seldom.
        is_idle_kept = pool != "wait" or number < _IDLE_WAIT_SHARDS
        idle_max = SHARD_CONNECTIONS if is_idle_kept else 0
        limits = httpx.Limits(
            max_connections=SHARD_CONNECTIONS, max_keepalive_connections=idle_max, keepalive_expiry=IDLE_S_MAX
        )
        return open_client(limits)

    return CallPool(open_shard, connection.connections_max(pool), may_wait=pool == "wait")


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
