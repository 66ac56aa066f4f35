"""One of many leads, and all can see who."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from holdfast.client.aio.concurrency import Pending, pending
from holdfast.client.aio.locks.lock import HeldLock
from holdfast.client.aio.locks.signals import Bell
from holdfast.client.aio.transport import Transport
from holdfast.client.errors import ClientError
from holdfast.client.locks.calls import LockCalls, WantedLock
from holdfast.client.locks.meeting import channel_of
from holdfast.client.locks.view import LockHolder

_LOOK_S_MIN = 0.05


class Election:
    """`async with election.campaign() as lead`: the leader holds a lock until the block ends, its lease ends, or it dies.

    Candidates lead in the order in which they came. `lead.fencing_token` grows from leader to leader.
    """

    def __init__(
        self,
        transport: Transport,
        calls: LockCalls,
        acquire: Callable[[WantedLock], Awaitable[HeldLock]],
        key: str,
        *,
        candidate: str,
        ttl_s: float,
    ) -> None:
        self._transport = transport
        self._calls = calls
        self._acquire = acquire
        self._key = key
        self._ttl_s = ttl_s
        self._channel = channel_of("election", key)
        self.candidate = candidate or calls.options.owner_or_default()

    def campaign(self, *, wait_s: float | None = None) -> Pending[HeldLock]:
        """Wait to lead, by default for ever; LeaseHeld when it takes longer."""
        return pending(lambda: self._campaign(wait_s))

    async def _campaign(self, wait_s: float | None) -> HeldLock:
        wanted = WantedLock(key=self._key, ttl_s=self._ttl_s, wait_s=wait_s, owner=self.candidate)
        lead = await self._acquire(wanted)
        with suppress(ClientError):  # Observers find out when the lease that they saw would have ended.
            await self._transport.run(self._calls.signal(self._channel, "elected"))
        return lead

    async def leader(self) -> str | None:
        """Who leads now; None if there is no leader."""
        holder = await self._holder()
        return None if holder is None else holder.owner

    async def observe(self) -> AsyncGenerator[str | None, None]:
        """Who leads now, and whenever that changes. It hears of a new leader by a signal, and that there is none when a lease ends."""
        known: int | None = -1
        async with Bell(self._transport, self._calls, self._channel) as bell:
            while True:
                holder = await self._holder()
                token = None if holder is None else holder.fencing_token
                if token != known:
                    known = token
                    yield None if holder is None else holder.owner
                look_s = self._ttl_s if holder is None else holder.lease_expires_in_s
                await bell.wait(max(_LOOK_S_MIN, look_s))

    async def _holder(self) -> LockHolder | None:
        view = await self._transport.run(self._calls.describe(self._key))
        return None if view is None or not view.holders else view.holders[0]
