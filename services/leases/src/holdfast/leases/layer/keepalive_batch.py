"""Many keepalives in few commits: each is judged as if it had come alone.

Leases that belong to no transaction of several keys share a storage transaction per chunk. Those of one transaction of
several keys share one of their own, because keeping it may have to ask the coordinator, which ends the storage transaction
and runs it again.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.leases.layer import rules
from holdfast.leases.layer.errors import KeyRefusal
from holdfast.leases.layer.grant import Claim, Renewal
from holdfast.leases.layer.records import LEASES
from holdfast.storage.errors import TransactionContended
from holdfast.storage.port import Store, Transaction
from holdfast.txn.layer.port import Member

CHUNK: Final = 100
"""Renewals in one commit. The event loop does nothing else meanwhile, so this is a matter of a few milliseconds."""
TRANSACTIONS_AT_ONCE: Final = 16


Outcome = int | HoldfastError
"""The end of the lease as its holder is told of it, or why it was refused."""


class Service(Protocol):
    """What `LeaseService` does for one keepalive."""

    async def keepalive(self, member: Member, claim: Claim, ttl_s: int) -> int: ...

    def keep_transaction(
        self, tx: Transaction, txn_id: str, expires_at_ms: int, renewed: set[Member], now_ms: int
    ) -> None: ...

    def renewed(self, member: Member, expires_at_ms: int) -> int: ...


async def keep_many(
    store: Store, service: Service, renewals: Sequence[Renewal], clock: SteadyClock
) -> list[Outcome]:
    """What became of each, in their order."""
    batch = _Batch(store, service, renewals, clock)
    for start in range(0, len(renewals), CHUNK):
        # One after the other, so that other requests are served between two chunks.
        await batch.keep_chunk(range(start, min(start + CHUNK, len(renewals))))
    await batch.keep_transactions()
    return [batch.outcomes[index] for index in range(len(renewals))]


class _Batch:
    """The renewals of one call and what became of them so far, by their position."""

    def __init__(
        self, store: Store, service: Service, renewals: Sequence[Renewal], clock: SteadyClock
    ) -> None:
        self._store = store
        self._service = service
        self._clock = clock
        self._renewals = renewals
        self._txn_ids: dict[str, list[int]] = {}
        self.outcomes: dict[int, Outcome] = {}

    async def keep_chunk(self, chunk: Sequence[int]) -> None:
        """Those that stand alone now; those of transactions are noted for later."""
        now_ms = self._clock.now_ms()

        def keep(tx: Transaction) -> tuple[dict[int, int | KeyRefusal], dict[int, str]]:
            ends: dict[int, int | KeyRefusal] = {}
            txn_ids: dict[int, str] = {}
            tx.get_many([LEASES.key(*self._renewals[index].member) for index in chunk])
            for index in chunk:
                renewal = self._renewals[index]
                lease = LEASES.get(tx, *renewal.member)
                if lease is not None and lease.is_explicit and lease.lease_id == renewal.claim.lease_id:
                    txn_ids[index] = lease.txn_id
                    continue
                ends[index] = _end_ms(tx, renewal, now_ms)
            return ends, txn_ids

        try:
            ends, txn_ids = await self._store.transact(keep)
        except TransactionContended:
            await self._keep_alone(chunk)
            return
        except HoldfastError as error:
            self.outcomes.update(dict.fromkeys(chunk, error))
            return
        for index, txn_id in txn_ids.items():
            self._txn_ids.setdefault(txn_id, []).append(index)
        self._note(ends)

    async def keep_transactions(self) -> None:
        turns = asyncio.Semaphore(TRANSACTIONS_AT_ONCE)

        async def keep(txn_id: str, indexes: list[int]) -> None:
            async with turns:
                await self._keep_transaction(txn_id, indexes)

        await asyncio.gather(*(keep(txn_id, indexes) for txn_id, indexes in self._txn_ids.items()))

    async def _keep_transaction(self, txn_id: str, indexes: Sequence[int]) -> None:
        now_ms = self._clock.now_ms()

        def keep(tx: Transaction) -> dict[int, int | KeyRefusal]:
            ends = {index: _end_ms(tx, self._renewals[index], now_ms) for index in indexes}
            last_ms = max((end for end in ends.values() if isinstance(end, int)), default=0)
            if last_ms:
                renewed = {self._renewals[index].member for index, end in ends.items() if end == last_ms}
                self._service.keep_transaction(tx, txn_id, last_ms, renewed, now_ms)
            return ends

        try:
            self._note(await self._store.transact(keep))
        except TransactionContended:
            await self._keep_alone(indexes)
        except HoldfastError as error:
            self.outcomes.update(dict.fromkeys(indexes, error))

    async def _keep_alone(self, indexes: Sequence[int]) -> None:
        """One of them is fought over: the others must not wait for it."""
        for index in indexes:
            try:
                self.outcomes[index] = await self._service.keepalive(*self._renewals[index])
            except HoldfastError as error:
                self.outcomes[index] = error

    def _note(self, ends: dict[int, int | KeyRefusal]) -> None:
        for index, end in ends.items():
            if isinstance(end, int):
                self.outcomes[index] = self._service.renewed(self._renewals[index].member, end)
            else:
                self.outcomes[index] = end


def _end_ms(tx: Transaction, renewal: Renewal, now_ms: int) -> int | KeyRefusal:
    try:
        return rules.renew(tx, renewal, now_ms).expires_at_ms
    except KeyRefusal as refusal:
        return refusal
