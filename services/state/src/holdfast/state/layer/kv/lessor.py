"""Grants, renews and ends the leases of the key space.

In a store that one process owns a renewal is written nowhere: after a restart every lease has its whole time again. In a shared
one it is a commit, because any process may end a lease, and every process knows of all of them by the change feed.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol

from holdfast.common.background import background
from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.leases.layer.expiry import Expiries
from holdfast.state.layer.kv import lease_rules
from holdfast.state.layer.kv.errors import KvLeaseExists, KvLeaseNotFound, KvRequestTooLarge
from holdfast.state.layer.kv.operation import LeaseState
from holdfast.state.layer.kv.records import LEASES
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.state.layer.records_pb2 import KvLease
from holdfast.storage.following import Follower
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.keys import next_key, unpack
from holdfast.storage.port import RANGE_LIMIT_MAX, Event, Store, Transaction, View

EXPIRE_RETRY_MS: Final = 1000
SPREAD_MS_MAX: Final = 300
"""So that not every process ends the same lease at the same moment."""
ID_ATTEMPTS_MAX: Final = 16

_log = get_logger("state.kv.lessor")

Write = Callable[[Callable[[SpaceChange], bool]], Awaitable[tuple[bool, int]]]
"""Runs an operation on the key space; returns what it does, and the revision after it."""


class EndStep(Protocol):
    """Ends a lease, with so many of its keys at most; False: there are more."""

    def __call__(self, change: SpaceChange, limit: int) -> bool: ...


class KvLeases:
    """The leases of one key space."""

    def __init__(self, store: Store, clock: SteadyClock, write: Write) -> None:
        self._store = store
        self._clock = clock
        self._write = write
        self._expiries = Expiries[int](clock, self._expire)
        self._ttls: dict[int, int] = {}
        self._is_loaded = False
        self._spread_ms = random.randint(0, SPREAD_MS_MAX) if store.is_shared else 0

    def __len__(self) -> int:
        return len(self._ttls)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Know all leases, and end those whose time is over, for the length of the block."""
        follower = Follower(
            self._store, LEASES.bounds(), on_events=self._told, resync=self._load, name="kv.leases"
        )
        async with follower, background(self._expiries.run(), name="kv.lessor"):
            with self._clock.stepping(self._expiries.look_again):
                yield

    async def grant(self, ttl_s: int, lease_id: int = 0) -> tuple[int, int]:
        """The id and the time that is granted, which has a minimum."""
        ttl_s = lease_rules.granted_ttl(ttl_s)
        if lease_id:
            await self._grant(lease_id, ttl_s)
            return lease_id, ttl_s
        for _ in range(ID_ATTEMPTS_MAX):
            lease_id = random.getrandbits(63) or 1
            try:
                await self._grant(lease_id, ttl_s)
            except KvLeaseExists:
                continue
            return lease_id, ttl_s
        raise KvLeaseExists

    def grant_within(self, tx: Transaction, lease_id: int, ttl_s: int, now_ms: int) -> None:
        """As part of a commit that does more."""
        lease_rules.grant(tx, lease_id, ttl_s, now_ms)
        tx.after_commit(lambda _: self._know(lease_id, ttl_s, now_ms + ttl_s * 1000))

    async def _grant(self, lease_id: int, ttl_s: int) -> None:
        now_ms = self._clock.now_ms()
        await self._store.transact(lambda tx: self.grant_within(tx, lease_id, ttl_s, now_ms))

    async def keep_alive(self, lease_id: int) -> int:
        """The time it lasts from now on; 0: it is over, or never was."""
        now_ms = self._clock.now_ms()
        if not self._store.is_shared:
            end_ms = self._expiries.get(lease_id)
            if end_ms is None or end_ms <= now_ms:
                return 0
            ttl_s = self._ttls[lease_id]
        else:
            ttl_s = await self._store.transact(lambda tx: lease_rules.renew(tx, lease_id, now_ms))
        if ttl_s:
            self._know(lease_id, ttl_s, now_ms + ttl_s * 1000)
        return ttl_s

    async def revoke(self, lease_id: int) -> int:
        """End it now, and delete its keys; returns the revision after that."""
        revision = await self._end(lambda change, limit: lease_rules.revoke(change, lease_id, limit))
        self._forget(lease_id)
        return revision

    async def _end(self, step: EndStep) -> int:
        """In as few revisions as there may be: what an extension adds to one may be too much for it."""
        limit = lease_rules.REVOKED_KEYS_MAX
        while True:
            try:
                is_over, revision = await self._write(partial(step, limit=limit))
            except KvRequestTooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
            else:
                if is_over:
                    return revision

    async def time_to_live(self, lease_id: int, *, with_keys: bool = False) -> LeaseState | None:
        """What is left of it; None: it is over, or never was."""

        def look(view: View) -> tuple[KvLease | None, list[bytes]]:
            lease = LEASES.get(view, lease_id)
            keys = lease_rules.attached_keys(view, lease_id) if lease is not None and with_keys else []
            return lease, keys

        lease, keys = await self._store.view(look)
        if lease is None:
            return None
        end_ms = lease.expires_at_ms if self._store.is_shared else self._expiries.get(lease_id)
        left_ms = (end_ms or 0) - self._clock.now_ms()
        return LeaseState(lease_id, left_ms // 1000, lease.ttl_s, keys) if left_ms > 0 else None

    async def ids(self) -> list[int]:
        """All that there are, soonest to end first."""
        found: list[tuple[int, int]] = []
        start, end = LEASES.bounds()
        while True:
            page = await self._store.range(start, end, limit=RANGE_LIMIT_MAX)
            for record in page:
                lease_id = _id_of(record.key)
                end_ms = None if self._store.is_shared else self._expiries.get(lease_id)
                found.append((end_ms or LEASES.decode(record).expires_at_ms, lease_id))
            if len(page) < RANGE_LIMIT_MAX:
                return [lease_id for _, lease_id in sorted(found)]
            start = next_key(page[-1].key)

    # -- what is known, and what ends

    def _know(self, lease_id: int, ttl_s: int, end_ms: int) -> None:
        self._ttls[lease_id] = ttl_s
        self._expiries.set(lease_id, end_ms + self._spread_ms)

    def _forget(self, lease_id: int) -> None:
        self._ttls.pop(lease_id, None)
        self._expiries.forget(lease_id)

    def _told(self, events: list[Event]) -> None:
        for event in events:
            lease_id = _id_of(event.key)
            if event.record is None:
                self._forget(lease_id)
            else:
                lease = LEASES.decode(event.record)
                self._know(lease_id, lease.ttl_s, lease.expires_at_ms)

    async def _load(self) -> None:
        """A lease that was over, or whose end only a process that is gone knew, has its whole time from now on: nobody could renew
        it. If there was another process, it ends what is over."""
        start, end = LEASES.bounds()
        now_ms = self._clock.now_ms()
        while True:
            page = await self._store.range(start, end, limit=RANGE_LIMIT_MAX)
            for record in page:
                lease, lease_id = LEASES.decode(record), _id_of(record.key)
                is_revived = self._store.is_shared and not self._is_loaded and lease.expires_at_ms <= now_ms
                if is_revived:
                    await self._store.transact(partial(lease_rules.revive, lease_id=lease_id, now_ms=now_ms))
                has_whole = is_revived or not self._store.is_shared
                end_ms = now_ms + lease.ttl_s * 1000 if has_whole else lease.expires_at_ms
                self._know(lease_id, lease.ttl_s, end_ms)
            if len(page) < RANGE_LIMIT_MAX:
                break
            start = next_key(page[-1].key)
        self._is_loaded = True

    async def _expire(self, lease_id: int) -> None:
        try:
            await self._end(lambda change, limit: self._end_if_over(change, lease_id, limit))
        except KvLeaseNotFound:
            self._forget(lease_id)
        except HoldfastError as error:
            warn_unless_told(_log, "kv.lease.expire.failed", error)
            self._expiries.set(lease_id, self._clock.now_ms() + EXPIRE_RETRY_MS)
        else:
            if lease_id not in self._expiries:
                self._forget(lease_id)

    def _end_if_over(self, change: SpaceChange, lease_id: int, limit: int) -> bool:
        """Whether nothing is left to do."""
        lease = LEASES.get(change.tx, lease_id)
        if lease is not None and self._store.is_shared and lease.expires_at_ms > self._clock.last_ms:
            self._know(lease_id, lease.ttl_s, lease.expires_at_ms)  # Another process kept it alive.
            return True
        return lease_rules.revoke(change, lease_id, limit)


def _id_of(key: bytes) -> int:
    lease_id = unpack(key)[1]
    assert isinstance(lease_id, int)
    return lease_id
