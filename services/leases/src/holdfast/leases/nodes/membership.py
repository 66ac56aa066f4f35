"""Which nodes decide about locks, as every one of them sees it alike.

A node announces itself by a record that it renews. A node that finds a record that has ended deletes it; only then others take its place:

    unknown --announce--> waiting --serves_from--> serving --leave, or another node deletes its record--> gone
    serving --it can neither renew nor read for a while--> frozen --it renewed its record, which was still there--> serving
    frozen --its record is gone--> unknown: what it held in memory may have another holder

A frozen node decides nothing and forgets nothing. A newcomer serves no key before every other node has read of it or is frozen, since
each serves only for so long after it has read all records.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from holdfast.common.errors import HoldfastError
from holdfast.common.ids import new_xid
from holdfast.common.upstream.rendezvous import home, seed_of
from holdfast.leases.layer.records_pb2 import LockNode
from holdfast.leases.nodes.records import (
    NODE,
    NODES,
    NODES_MAX,
    Member,
    member_of,
    member_of_event,
)
from holdfast.storage.following import Follower
from holdfast.storage.port import Demand, Event, Store, Transaction

RENEWALS: Final = 4
"""So many while an announcement lasts."""
GUARD_MS: Final = 250
"""Clocks of one store differ by less: who takes over begins so much later, who ends stops so much earlier."""
_ANNOUNCE_MS: Final = 500
"""An announcement that takes longer to be recorded is made anew, with more time."""
_PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0)


class Membership:
    """What this process knows of all nodes, itself included. `on_change` is called when homes or nodes may have changed, and when
    this node is frozen or no longer is; `on_loss` before it begins anew."""

    def __init__(
        self,
        store: Store,
        ttl_s: float,
        *,
        joins_at_once: bool,
        on_change: Callable[[], None],
        on_loss: Callable[[], None],
    ) -> None:
        self.id = new_xid()
        self.is_frozen = True
        self._store = store
        self._ttl_ms = int(ttl_s * 1000)
        self._join_ms = min(1000, self._ttl_ms) if joins_at_once else self._ttl_ms
        self._on_change = on_change
        self._on_loss = on_loss
        self._address = ""
        self._is_announced = False
        """Whether it is known when the announcement was recorded: the others must have had the time to read it."""
        self._members: dict[str, Member] = {}
        self._read_at_ms = 0
        """All records were read no earlier than this."""
        self._spares_until_ms = 0
        """When this node comes back from an outage, the others may, too: until then no other node takes its place."""
        self._serving: list[Member] = []
        self._seeds: list[bytes] = []
        self._valid_until_ms = -1
        self._timer: asyncio.TimerHandle | None = None
        self._told_last: object = None

    @property
    def others(self) -> list[Member]:
        """All other nodes that are announced."""
        return [member for member in self._members.values() if member.id != self.id]

    def home(self, affinity: bytes) -> Member | None:
        """Who decides; None: that can't be told now."""
        self.look()
        if self.is_frozen or not self._serving:
            return None
        return self._serving[home(self._seeds, affinity)] if len(self._serving) > 1 else self._serving[0]

    def is_mine(self, affinity: bytes) -> bool:
        """Whether this node is home, and decides already."""
        member = self.home(affinity)
        return member is not None and member.id == self.id and member.is_ready

    def look(self) -> None:
        """Let what is known be of now."""
        if self._store.clock.now_ms() >= self._valid_until_ms:
            self._look()

    # -- the life of the announcement

    @asynccontextmanager
    async def running(self, address: str) -> AsyncIterator[None]:
        """This node is announced inside this block."""
        self._address = address
        # Without an answer the process begins all the same, frozen; the first renewal announces it.
        with suppress(HoldfastError):
            await self._announce()
        follower = Follower(
            self._store,
            NODES.bounds(NODE),
            on_events=self._told,
            resync=self._read,
            name="locks.nodes",
            demand=Demand(),  # No request waits for it: to be told of every commit at once would cost more than it is worth.
        )
        async with follower:
            renewing = asyncio.create_task(self._renew_on(), name="locks.announce")
            try:
                yield
            finally:
                renewing.cancel()
                with suppress(asyncio.CancelledError):
                    await renewing
        if self._timer is not None:
            self._timer.cancel()
        with suppress(HoldfastError):  # Else it ends by itself.
            await self._store.transact(lambda tx: NODES.delete(tx, NODE, self.id))

    async def _announce(self) -> None:
        """As a newcomer: home of nothing until all others know, unless there are none."""
        slack_ms = _ANNOUNCE_MS
        self._is_announced = False
        while True:
            begun_ms = self._store.clock.now_ms()
            await self._store.transact(partial(self._join, begun_ms, slack_ms), attempts_max=50)
            if self._store.clock.now_ms() - begun_ms <= slack_ms:
                break
            slack_ms *= 2
        self._is_announced = True
        await self._read()

    def _join(self, now_ms: int, slack_ms: int, tx: Transaction) -> None:
        """Others can't come or go unnoticed meanwhile: the whole range is expected."""
        start, end = NODES.bounds(NODE)
        rows = [NODES.row(record) for record in tx.range(start, end, limit=NODES_MAX, expected=True)]
        members = [member_of(row) for row in rows if row.parts[-1] != self.id]
        for member in members:
            if member.ends_at_ms <= now_ms:
                NODES.delete(tx, NODE, member.id)
        is_alone = all(member.ends_at_ms <= now_ms for member in members)
        wait_ms = -GUARD_MS if is_alone else self._join_ms + slack_ms + 2 * GUARD_MS
        serves_from_ms = now_ms + wait_ms
        NODES.put(tx, self._message(serves_from_ms, now_ms), NODE, self.id)

    async def _renew(self) -> None:
        """For as long again, if no other node has taken its place; else as a newcomer."""

        now_ms = self._store.clock.now_ms()

        def renew(tx: Transaction) -> bool:
            mine = NODES.get(tx, NODE, self.id)
            if mine is None:
                return False
            if mine.ends_at_ms <= now_ms:
                self._spares_until_ms = now_ms + self._ttl_ms
            NODES.put(tx, self._message(mine.serves_from_ms, now_ms), NODE, self.id)
            return True

        if not self._is_announced or not await self._store.transact(renew):
            self._members.pop(self.id, None)
            self._look()
            self._on_loss()
            await self._announce()
            return
        await self._read()
        await self._remove_ended()

    def _message(self, serves_from_ms: int, now_ms: int) -> LockNode:
        ends_at_ms = now_ms + self._ttl_ms
        return LockNode(address=self._address, serves_from_ms=serves_from_ms, ends_at_ms=ends_at_ms)

    async def _remove_ended(self) -> None:
        """Take the place of those that were not heard of."""
        now_ms = self._store.clock.now_ms()
        if now_ms < self._spares_until_ms:
            return
        ended = [member.id for member in self.others if member.ends_at_ms <= now_ms]
        if not ended:
            return

        def remove(tx: Transaction) -> None:
            for name in ended:
                found = NODES.get(tx, NODE, name)
                if found is not None and found.ends_at_ms <= now_ms:
                    NODES.delete(tx, NODE, name)

        await self._store.transact(remove)
        await self._read()

    async def _renew_on(self) -> None:
        while True:
            await asyncio.sleep(self._ttl_ms / 1000 / RENEWALS)
            # The store tells of its trouble itself; this node is frozen then. One call that hangs is not waited for.
            with suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(self._ttl_ms / 1000):
                    await self._renew()

    async def look_again(self) -> None:
        """A node can't be reached: it may have left just now."""
        for pause_s in _PAUSES_S:
            await asyncio.sleep(pause_s)
            with suppress(HoldfastError):
                await self._read()

    # -- what is read and told

    async def _read(self) -> None:
        read_at_ms = self._store.clock.now_ms()
        rows = await NODES.fetch_range(self._store, NODE, limit=NODES_MAX)
        self._members = {member.id: member for member in map(member_of, rows)}
        self._read_at_ms = read_at_ms
        self._look()

    def _told(self, events: list[Event]) -> None:
        for event in events:
            name, member = member_of_event(event)
            if member is None:
                self._members.pop(name, None)
            else:
                self._members[name] = member
        self._look()

    def _look(self) -> None:
        """Who serves now, and until when that is so."""
        now_ms = self._store.clock.now_ms()
        mine = self._members.get(self.id)
        frozen_at_ms = 0
        if mine is not None and self._is_announced:
            frozen_at_ms = min(mine.ends_at_ms, self._read_at_ms + self._ttl_ms) - GUARD_MS
        self.is_frozen = now_ms >= frozen_at_ms
        self._serving = self._serving_at(now_ms)
        self._seeds = [seed_of(member.id) for member in self._serving]
        self._watch_time(now_ms, frozen_at_ms)
        told = self.is_frozen, [(one.id, one.is_ready) for one in self._serving], set(self._members)
        if told != self._told_last:
            self._told_last = told
            self._on_change()

    def _watch_time(self, now_ms: int, frozen_at_ms: int) -> None:
        begins = (member.serves_from_ms + late for member in self._members.values() for late in (0, GUARD_MS))
        moments = [moment for moment in (*begins, frozen_at_ms) if moment > now_ms]
        self._valid_until_ms = min(moments, default=now_ms + self._ttl_ms)
        if self._timer is not None:
            self._timer.cancel()
        delay_s = (self._valid_until_ms - now_ms + 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _serving_at(self, now_ms: int) -> list[Member]:
        """In an order that all agree on; itself a moment later than the others see it."""
        found = []
        for member in sorted(self._members.values(), key=lambda member: member.id):
            if member.serves_from_ms > now_ms:
                continue
            is_early = member.id == self.id and member.serves_from_ms + GUARD_MS > now_ms
            found.append(replace(member, is_ready=False) if is_early else member)
        return found
