"""Follows what other processes on the same store do to leases: which waiters may try again, which leases end when.

Leases are ended by the process that granted them. The others know of them too, and end what is still there some time
after its end: its process may be gone. A process that serves no leases itself (the queue, which grants the leases of
messages with state) follows only what it granted: reading every lease of the store would cost it more than its own work.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast.common.clock import SteadyClock
from holdfast.leases.layer.expiry import Expiries
from holdfast.leases.layer.records import LEASES, held_range, member_of
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.leases.layer.wait_queue import WaitQueues
from holdfast.storage.following import Follower
from holdfast.storage.port import RANGE_LIMIT_MAX, Event, Store
from holdfast.txn.layer.port import Member

# Between these, so that not every process ends the same lease at the same moment.
GRACE_MS_MIN = 1000
GRACE_MS_MAX = 2000


class LeaseFollower:
    """Keeps `own`, the leases of this process, and the waiters in step with the store."""

    def __init__(
        self,
        store: Store,
        clock: SteadyClock,
        own: Expiries[Member],
        wait_queues: WaitQueues,
        on_end: Callable[[], None],
        *,
        follows_all: bool,
    ) -> None:
        self._follows_all = follows_all
        self._store = store
        self._own = own
        self._wait_queues = wait_queues
        self._on_end = on_end
        self._is_loaded = False
        self._grace_ms = random.randint(GRACE_MS_MIN, GRACE_MS_MAX)
        # Of what this process granted: an event with an older token tells nothing new.
        self._tokens: dict[Member, int] = {}
        self.remote_expiries = Expiries(clock, self._expire_remote)
        self.expire: Callable[[Member, Expiries[Member]], Awaitable[None]]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything that is held is known when the block begins."""
        follower = Follower(
            self._store,
            LEASES.bounds(),
            on_events=self._told,
            resync=self._resync,
            name="leases.follower",
            demand=self._wait_queues.demand,
        )
        async with follower:
            yield

    # -- what this process does, for a store that others share

    def granted(self, member: Member, token: int) -> None:
        self._tokens[member] = token
        self.remote_expiries.forget(member)

    def ended(self, member: Member) -> None:
        self._tokens.pop(member, None)
        self.remote_expiries.forget(member)

    # -- what the store tells

    def _told(self, events: list[Event]) -> None:
        if not self._follows_all and not self._own:
            return
        for event in events:
            member = member_of(event.key)
            if not self._follows_all and member not in self._own:
                continue
            lease = None if event.record is None else LEASES.decode(event.record)
            if lease is None:
                self._has_ended(member, event.revision)
            elif lease.fencing_token >= self._tokens.get(member, 0):
                if lease.lease_id:
                    self._is_held(member, lease)
                else:
                    self._has_ended(member, event.revision)

    def _is_held(self, member: Member, lease: Lease) -> None:
        if member in self._own and lease.fencing_token > self._tokens.get(member, lease.fencing_token):
            self._forget(member)  # Its time was over, and another process granted it anew.
        if member in self._own:
            self._own.set(member, lease.expires_at_ms)
        else:
            self.remote_expiries.set(member, lease.expires_at_ms + self._grace_ms)

    def _has_ended(self, member: Member, revision: int) -> None:
        self._forget(member)
        self._wait_queues.notify(member, revision)

    def _forget(self, member: Member) -> None:
        self._tokens.pop(member, None)
        self.remote_expiries.forget(member)
        if member in self._own:
            self._own.forget(member)
            self._on_end()

    async def _expire_remote(self, member: Member) -> None:
        await self.expire(member, self.remote_expiries)

    # -- what was not told

    async def _resync(self) -> None:
        """Read what is held, page by page. After the first time, a waiter may have missed that its key is free."""
        if not self._follows_all and not self._own:
            self._is_loaded = True
            return
        known = [*self._own, *self.remote_expiries]
        held: set[Member] = set()
        start, end = held_range()
        while records := await self._store.range(start, end, limit=RANGE_LIMIT_MAX, keys_only=True):
            members = [member_of(record.key) for record in records]
            found = await self._store.get_many([LEASES.key(*member) for member in members])
            for member in members:
                record = found.get(LEASES.key(*member))
                if not self._follows_all and member not in self._own:
                    continue
                if record is not None and (lease := LEASES.decode(record)).lease_id:
                    held.add(member)
                    self._is_held_still(member, lease)
            start = records[-1].key + b"\x00"
        for member in known:
            if member not in held:
                self._forget(member)
        self._is_loaded = True
        self._wait_queues.notify_firsts()

    def _is_held_still(self, member: Member, lease: Lease) -> None:
        if self._is_loaded:
            self._is_held(member, lease)
        else:  # This process may have granted it in an earlier life.
            self._own.set(member, lease.expires_at_ms)
