"""What a client has for locks and signals."""

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from holdfast.client.aio.concurrency import Pending, pending, run_until
from holdfast.client.aio.locks.barrier import Barrier
from holdfast.client.aio.locks.election import Election
from holdfast.client.aio.locks.lock import HeldLock
from holdfast.client.aio.locks.locks import Locks
from holdfast.client.aio.locks.read_write import ReadWriteLock
from holdfast.client.aio.locks.signals import SignalStream
from holdfast.client.aio.renewer import Renewer
from holdfast.client.aio.transport import Transport
from holdfast.client.locks.calls import WAIT_S_DEFAULT, LockCalls, WantedLock
from holdfast.client.locks.meeting import READERS_MAX_DEFAULT
from holdfast.client.options import ClientOptions
from holdfast.client.session.lease import TTL_S_DEFAULT
from holdfast.client.wire.flow import Channel

P = ParamSpec("P")
T = TypeVar("T")


class LockMethods:
    """Locks are not leases: they have no document and no transaction, cost less, and end with the server unless it keeps them."""

    locks: Locks
    _lock_calls: LockCalls
    _lock_transport: Transport

    def _open_locks(
        self, transport: Transport, channel: Channel, options: ClientOptions, renewer: Renewer
    ) -> None:
        self._lock_transport = transport
        self._lock_calls = LockCalls(channel, options)
        self.locks = Locks(transport, self._lock_calls, renewer)

    def lock(
        self,
        key: str,
        *,
        ttl_s: float = TTL_S_DEFAULT,
        wait_s: float | None = WAIT_S_DEFAULT,
        owner: str = "",
    ) -> Pending[HeldLock]:
        """Hold a key alone: `async with client.lock("jobs") as lock`. Waits up to `wait_s` (None: for ever, 0: not at all), then LeaseHeld."""
        return self.semaphore(key, 1, ttl_s=ttl_s, wait_s=wait_s, owner=owner)

    def semaphore(
        self,
        key: str,
        limit: int,
        *,
        ttl_s: float = TTL_S_DEFAULT,
        wait_s: float | None = WAIT_S_DEFAULT,
        owner: str = "",
    ) -> Pending[HeldLock]:
        """Hold one of `limit` slots of a key: `async with client.semaphore("gpus", 4) as slot`. All users name the same limit."""
        wanted = WantedLock(key=key, limit=limit, ttl_s=ttl_s, wait_s=wait_s, owner=owner)
        return pending(lambda: self.locks.acquire(wanted))

    def rwlock(
        self,
        key: str,
        *,
        readers_max: int = READERS_MAX_DEFAULT,
        ttl_s: float = TTL_S_DEFAULT,
        owner: str = "",
    ) -> ReadWriteLock:
        """Many readers or one writer: `async with client.rwlock("config").read()`, or `.write()`."""
        return ReadWriteLock(
            self.locks.acquire,
            self._lock_calls.channel,
            key,
            readers_max=readers_max,
            ttl_s=ttl_s,
            owner=owner,
        )

    def barrier(
        self,
        key: str,
        parties: int,
        *,
        ttl_s: float = TTL_S_DEFAULT,
        owner: str = "",
        round_number: int = 0,
    ) -> Barrier:
        """Go on together: `await client.barrier("start", 3).wait()` returns when three wait."""
        return Barrier(
            self._lock_transport,
            self._lock_calls,
            self.locks.acquire,
            key,
            parties,
            ttl_s=ttl_s,
            owner=owner,
            round_number=round_number,
        )

    def election(self, key: str, *, candidate: str = "", ttl_s: float = TTL_S_DEFAULT) -> Election:
        """One leads: `async with client.election("scheduler").campaign() as lead`; others `observe()`."""
        return Election(
            self._lock_transport,
            self._lock_calls,
            self.locks.acquire,
            key,
            candidate=candidate,
            ttl_s=ttl_s,
        )

    def signals(self, pattern: str, *, group: str = "") -> SignalStream:
        """Listen: `async with client.signals("orders.*") as signals`, then `async for signal in signals`.

        Of the listeners of a pattern with the same `group`, one gets each signal.
        """
        return SignalStream(self._lock_transport, self._lock_calls, pattern, group)

    async def signal(self, channel: str, payload: str) -> int:
        """Send to all listeners of this moment; how many took it. Nothing is kept for others."""
        return await self._lock_transport.run(self._lock_calls.signal(channel, payload))

    def locked(
        self,
        key: str,
        *,
        ttl_s: float = TTL_S_DEFAULT,
        wait_s: float | None = WAIT_S_DEFAULT,
        owner: str = "",
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """`@client.locked("nightly")`: the function runs while the key is held.

        When the lock is lost, a call that runs is cancelled, and LeaseLost raised.
        """

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            @functools.wraps(function)
            async def locked(*arguments: P.args, **keywords: P.kwargs) -> T:
                async with self.lock(key, ttl_s=ttl_s, wait_s=wait_s, owner=owner) as held:
                    return await run_until(
                        held.lost, lambda: function(*arguments, **keywords), lambda: held.lost_because
                    )

            return locked

        return decorate
