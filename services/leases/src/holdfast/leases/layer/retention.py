"""Unused keys without a document are forgotten; the floor keeps their fencing tokens from coming back."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from holdfast.common.clock import SteadyClock
from holdfast.common.settings import PlaneSettings
from holdfast.leases.layer.records import LEASES, member_of
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.leases.layer.rules import forget_leases
from holdfast.state.layer.records import DOCUMENTS
from holdfast.storage.keys import next_key
from holdfast.storage.maintenance.janitor import STEP_RECORDS, Janitor, JanitorPace
from holdfast.storage.port import RANGE_LIMIT_MAX, Record, Store, Transaction
from holdfast.txn.layer.lifetime import is_message_there, message_of_state
from holdfast.txn.layer.port import Member

_NAME: Final = "keys"
INTERVAL_S_MIN: Final = 60.0
INTERVAL_S_MAX: Final = 3600.0


class Retention(NamedTuple):
    """How long unused keys are kept: `key_s` without a document, `document_s` with one. 0 is for ever."""

    key_s: float
    document_s: float
    pace: JanitorPace


def retention_of(settings: PlaneSettings) -> Retention:
    """What the settings say, for the leases and for the documents."""
    document_s = _shorter(settings.retention_s, settings.disk_retention_s)
    # A key without a document is not kept longer than one with a document.
    key_s = _shorter(settings.retention_keys_s, document_s)
    derived_s = min(INTERVAL_S_MAX, max(INTERVAL_S_MIN, _shorter(key_s, document_s) / 2))
    return Retention(
        key_s=key_s,
        document_s=document_s,
        pace=JanitorPace(
            interval_s=settings.disk_janitor_interval_s or derived_s,
            pause_s=settings.idle_sweep_operation_delay_s,
        ),
    )


def _shorter(one_s: float, other_s: float) -> float:
    """Of two times of which 0 is for ever."""
    return min(one_s or other_s, other_s or one_s)


class KeyRetention:
    """Walks over the leases of one store. `expire` ends a lease whose time is over, `count` hears of what was forgotten."""

    def __init__(
        self,
        store: Store,
        clock: SteadyClock,
        retention: Retention,
        *,
        expire: Callable[[Member], Awaitable[None]],
        count: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._retention_s = retention.key_s
        self._expire = expire
        self._count = count
        self._janitor = Janitor(
            store, _NAME, LEASES.bounds(), self.visit, pace=retention.pace, now_ms=clock.now_ms
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For the length of the block, if keys are forgotten at all."""
        if not self._retention_s:
            yield
            return
        async with self._janitor.running():
            yield

    async def walk(self) -> int:
        """One pass, if it is time for it; how many keys were forgotten."""
        return await self._janitor.walk()

    async def visit(self, records: Sequence[Record]) -> int:
        leases = {member_of(record.key): LEASES.decode(record) for record in records}
        now_ms = self._clock.now_ms()
        for member, lease in leases.items():
            if lease.lease_id and lease.expires_at_ms <= now_ms:
                await self._expire(member)  # Granted by a process that is gone.
        idle = [member for member, lease in leases.items() if self._is_idle(lease, now_ms)]
        if idle:
            with_document = await self._with_document(idle)
            idle = [member for member in idle if member not in with_document]
        count = 0
        for start in range(0, len(idle), STEP_RECORDS):
            count += await self._forget_step(idle[start : start + STEP_RECORDS])
        self._count(count)
        return count

    async def _forget_step(self, members: Sequence[Member]) -> int:
        now_ms = self._clock.now_ms()
        return await self._store.transact(lambda tx: self._forget(tx, members, now_ms))

    async def _with_document(self, members: Sequence[Member]) -> set[Member]:
        """Most keys have a document, and this tells without reading it; the commit looks again."""
        start, end = DOCUMENTS.key(*members[0]), next_key(DOCUMENTS.key(*members[-1]))
        found = await self._store.range(start, end, limit=RANGE_LIMIT_MAX, keys_only=True)
        return {member_of(record.key) for record in found}

    def _forget(self, tx: Transaction, members: Sequence[Member], now_ms: int) -> int:
        keys = [table.key(*member) for member in members for table in (LEASES, DOCUMENTS)]
        tx.get_many(keys)  # One round trip instead of two for each.
        forgotten: dict[Member, Lease] = {}
        for member in members:
            lease = LEASES.get(tx, *member)
            if (
                lease is None
                or not self._is_idle(lease, now_ms)
                or tx.get(DOCUMENTS.key(*member)) is not None
            ):
                continue
            place = message_of_state(member)
            if place is None or not is_message_there(tx, place):
                forgotten[member] = lease
        forget_leases(tx, forgotten)
        return len(forgotten)

    def _is_idle(self, lease: Lease, now_ms: int) -> bool:
        """It is not held, so there is no waiter, and no transaction has staged anything for it."""
        return not lease.lease_id and lease.updated_at_s + self._retention_s <= now_ms / 1000
