"""Leases of the key space: keys that are put with one end with it."""

from collections.abc import AsyncIterator

from holdfast.client.aio.transport import Transport
from holdfast.client.kv.calls import KvCalls
from holdfast.client.kv.view import KvLease, KvLeaseState


class KvLeases:
    """`client.kv.leases`. None is renewed unless `keep_alive` or `keep` is asked to."""

    def __init__(self, transport: Transport, calls: KvCalls) -> None:
        self._transport = transport
        self._calls = calls

    async def grant(self, ttl_s: int, lease_id: int = 0) -> KvLease:
        """A lease for so many seconds; the server finds an id unless one is given."""
        return await self._transport.run(self._calls.grant(ttl_s, lease_id))

    async def keep_alive(self, lease_id: int) -> int:
        """Its time begins anew; gives it in seconds. NotFound if there is no such lease (any more)."""
        return await self._transport.run(self._calls.keep_alive(lease_id))

    async def keep(self, lease_id: int) -> AsyncIterator[int]:
        """`keep_alive` now and whenever a third of its time is over, for as long as it is iterated."""
        ttl_s = await self.keep_alive(lease_id)
        while True:
            yield ttl_s
            ttl_s = await self._transport.run(self._calls.keep_on(lease_id, ttl_s))

    async def revoke(self, lease_id: int) -> int:
        """End it, and delete its keys, all in one revision."""
        return await self._transport.run(self._calls.revoke(lease_id))

    async def time_to_live(self, lease_id: int, *, keys: bool = False) -> KvLeaseState:
        """What is left of it, on demand with its keys; `is_over` if there is no such lease (any more)."""
        return await self._transport.run(self._calls.time_to_live(lease_id, keys=keys))

    async def list(self) -> tuple[int, ...]:
        """The ids of all leases."""
        return await self._transport.run(self._calls.lease_ids())
