# Generated from aio/locks/methods.py by generate_sync.py: change that, then run `make sync-client`.
"""What a client has for locks and signals."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from holdfast.client.locks.calls import WAIT_S_DEFAULT, LockCalls, WantedLock
from holdfast.client.locks.meeting import READERS_MAX_DEFAULT
from holdfast.client.options import ClientOptions
from holdfast.client.session.lease import TTL_S_DEFAULT
from holdfast.client.sync.concurrency import pending, run_until
from holdfast.client.sync.locks.barrier import Barrier
from holdfast.client.sync.locks.election import Election
from holdfast.client.sync.locks.lock import HeldLock
from holdfast.client.sync.locks.locks import Locks
from holdfast.client.sync.locks.read_write import ReadWriteLock
from holdfast.client.sync.locks.signals import SignalStream
from holdfast.client.sync.renewer import Renewer
from holdfast.client.sync.transport import Transport
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
    ) -> HeldLock:
        """Hold a key alone: `with client.lock("jobs") as lock`. Waits up to `wait_s` (None: for ever, 0: not at all), then LeaseHeld."""
        return self.semaphore(key, 1, ttl_s=ttl_s, wait_s=wait_s, owner=owner)

    def semaphore(
        self,
        key: str,
        limit: int,
        *,
        ttl_s: float = TTL_S_DEFAULT,
        wait_s: float | None = WAIT_S_DEFAULT,
        owner: str = "",
    ) -> HeldLock:
        """Hold one of `limit` slots of a key: `with client.semaphore("gpus", 4) as slot`. All users name the same limit."""
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
        """Many readers or one writer: `with client.rwlock("config").read()`, or `.write()`."""
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
        """Go on together: `client.barrier("start", 3).wait()` returns when three wait."""
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
        """One leads: `with client.election("scheduler").campaign() as lead`; others `observe()`."""
        return Election(
            self._lock_transport,
            self._lock_calls,
            self.locks.acquire,
            key,
            candidate=candidate,
            ttl_s=ttl_s,
        )

    def signals(self, pattern: str, *, group: str = "") -> SignalStream:
        """Listen: `with client.signals("orders.*") as signals`, then `for signal in signals`.

        Of the listeners of a pattern with the same `group`, one gets each signal.
        """
        return SignalStream(self._lock_transport, self._lock_calls, pattern, group)

    def signal(self, channel: str, payload: str) -> int:
        """Send to all listeners of this moment; how many took it. Nothing is kept for others."""
        return self._lock_transport.run(self._lock_calls.signal(channel, payload))

    def locked(
        self,
        key: str,
        *,
        ttl_s: float = TTL_S_DEFAULT,
        wait_s: float | None = WAIT_S_DEFAULT,
        owner: str = "",
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """`@client.locked("nightly")`: the function runs while the key is held.

        A thread can't be cancelled: when the lock is lost, LeaseLost is raised at the end of the call.
        """

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            @functools.wraps(function)
            def locked(*arguments: P.args, **keywords: P.kwargs) -> T:
                with self.lock(key, ttl_s=ttl_s, wait_s=wait_s, owner=owner) as held:
                    return run_until(
                        held.lost, lambda: function(*arguments, **keywords), lambda: held.lost_because
                    )

            return locked

        return decorate
