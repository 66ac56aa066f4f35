"""Decisions by name: what the endpoints of transactions do, each in one storage transaction."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.storage.layers import held_members
from holdfast.storage.layers_pb2 import TxnMarker, TxnRecord
from holdfast.storage.lifetime import last_lease_ends_ms
from holdfast.storage.port import Store, Transaction
from holdfast.storage.resource import Member
from holdfast.txn import rules
from holdfast.txn.coordinator import Coordinator
from holdfast.txn.errors import TxnFanoutFailed, TxnNotFound, TxnPending
from holdfast.txn.records import RECORDS, Due, put_record
from holdfast.txn.rules import Ask, Participant, State


class Freer(Protocol):
    """Who tells the waiters of keys that these are free."""

    def freed(self, members: Sequence[Member]) -> None: ...


class Decisions:
    """Over one store and its coordinator."""

    def __init__(self, store: Store, coordinator: Coordinator, clock: SteadyClock, freer: Freer) -> None:
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._freer = freer

    @property
    def backend_hash(self) -> str:
        return self._coordinator.backend_hash

    async def decide(self, txn_id: str, ask: Ask) -> State:
        """Record what is asked for, if it may be, and apply it; returns what is recorded."""
        located = ask._replace(participants=[self._located(one) for one in ask.participants])

        async def decide(tx: Transaction) -> State:
            record, marker = await self._coordinator.known(tx, txn_id)
            outcome = rules.recorded(record, marker, located)
            if isinstance(outcome, TxnMarker):
                return rules.state_of(outcome)
            is_decided = record is not None and rules.state_of(record) is not State.PENDING
            return await self._advance(tx, txn_id, outcome, is_decided=is_decided)

        state = await self._store.transact(decide)
        if failpoint.ARMED:
            failpoint.hit("txn.decide.answer")
        return await self._reached_all(txn_id, state)

    async def apply(self, txn_id: str) -> State:
        """Apply what is recorded, without a word on what it should be."""

        async def apply(tx: Transaction) -> State:
            record, marker = await self._coordinator.known(tx, txn_id)
            if record is None:
                return _marked(marker)
            if rules.state_of(record) is State.PENDING:
                raise TxnPending("transaction decision not recorded")
            return await self._advance(tx, txn_id, record, is_decided=True)

        return await self._reached_all(txn_id, await self._store.transact(apply))

    async def replay(self, txn_id: str) -> State:
        """Apply what is recorded again; a pending transaction whose time is over is rolled back."""

        async def replay(tx: Transaction) -> State:
            record, marker = await self._coordinator.known(tx, txn_id)
            if record is None:
                return _marked(marker)
            if rules.state_of(record) is State.PENDING:
                if await self.lives_until_ms(tx, txn_id, record) > self._clock.now_ms():
                    return State.PENDING
                record.state = State.ROLLBACK
            return await self._advance(tx, txn_id, record, is_decided=True)

        return await self._store.transact(replay)

    async def resume(self, due: Due) -> None:
        """For the sweep: go on with what is due. A stale entry of the order goes."""

        async def resume(tx: Transaction) -> None:
            record = await RECORDS.get(tx, due.txn_id)
            if record is None or record.due_at_ms != due.at_ms:
                tx.delete(due.key)
                return
            now_ms = self._clock.now_ms()
            is_decided = rules.state_of(record) is not State.PENDING
            if not is_decided:
                until_ms = await self.lives_until_ms(tx, due.txn_id, record)
                if until_ms > now_ms:
                    put_record(tx, due.txn_id, record, due_at_ms=until_ms)
                    return
                record.state = State.ROLLBACK
            rules.merge_participants(record, self._coordinator.located(await held_members(tx, due.txn_id)))
            await self._advance(tx, due.txn_id, record, is_decided=is_decided)

        await self._store.transact(resume)

    async def lives_until_ms(self, tx: Transaction, txn_id: str, record: TxnRecord) -> int:
        """A pending transaction lives as long as the last lease of it, or as it was told to."""
        held = await held_members(tx, txn_id)
        return max(record.expires_at_ms, await last_lease_ends_ms(tx, txn_id, held))

    async def _advance(self, tx: Transaction, txn_id: str, record: TxnRecord, *, is_decided: bool) -> State:
        freed = rules.local_members(record, self.backend_hash)
        state = await self._coordinator.advance(tx, txn_id, record, is_decided=is_decided)
        if state is not State.PENDING:
            tx.after_commit(lambda _: self._freer.freed(freed))
        return state

    async def _reached_all(self, txn_id: str, state: State) -> State:
        """The decision stands; whoever asked for it is told if it has not reached everybody yet."""
        record = None if state is State.PENDING else await RECORDS.get(self._store, txn_id)
        if record is None or rules.is_applied(record):
            return state
        missing = sorted({one.backend_hash for one in record.participants if not one.is_applied})
        raise TxnFanoutFailed(
            f"{state} is recorded and is tried again: "
            + ", ".join(f"({one}): no endpoint" for one in missing)
        )

    def _located(self, participant: Participant) -> Participant:
        return participant._replace(backend_hash=participant.backend_hash or self.backend_hash)


def _marked(marker: TxnMarker | None) -> State:
    if marker is None:
        raise TxnNotFound("no such transaction")
    return rules.state_of(marker)
