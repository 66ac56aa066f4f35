"""Decisions by name: what the endpoints of transactions do.

Each is one storage transaction that records the decision and applies it to every participant of this store. If others
lie on other stores, a round to them follows: deliver, finish. A process that dies in between leaves a record that is
due, and the sweep goes on with it.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.leases.layer.records import held_members
from holdfast.storage.port import Store, Transaction
from holdfast.txn.layer import rules
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.errors import TxnFanoutFailed, TxnNotFound, TxnPending
from holdfast.txn.layer.fan_out import FanOut, NoFanOut
from holdfast.txn.layer.lifetime import is_sent, last_lease_ends_ms
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.records import RECORDS, Due, put_record
from holdfast.txn.layer.records_pb2 import TxnMarker, TxnRecord
from holdfast.txn.layer.rules import Ask, Participant, State
from holdfast.txn.layer.watchdog import watched

ROUNDS_MAX = 4  # To those who join while a decision is delivered.


class Freer(Protocol):
    """Who tells the waiters of keys that these are free."""

    def freed(self, members: Sequence[Member]) -> None: ...


class Outcome(NamedTuple):
    """What is recorded after a step, and the record if it is not over yet."""

    state: State
    record: TxnRecord | None = None


class Decisions:
    """Over one store and its coordinator."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        clock: SteadyClock,
        freer: Freer,
        fan_out: FanOut | None = None,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._metrics = coordinator.metrics
        self._clock = clock
        self._freer = freer
        self._fan_out: FanOut = fan_out or NoFanOut()

    @property
    def backend_hash(self) -> str:
        return self._coordinator.backend_hash

    async def decide(self, txn_id: str, ask: Ask) -> State:
        """Record what is asked for, if it may be, and apply it; returns what is recorded."""
        located = ask._replace(participants=[self.located(one) for one in ask.participants])

        def decide(tx: Transaction) -> Outcome:
            record, marker = self._coordinator.known(tx, txn_id)
            found = rules.recorded(record, marker, located)
            if isinstance(found, TxnMarker):
                return Outcome(rules.state_of(found))
            is_decided = record is not None and rules.state_of(record) is not State.PENDING
            return self._advance(tx, txn_id, found, is_decided=is_decided)

        with watched(self._metrics.decide, "decide", txn_id):
            return await self._deliver(txn_id, await self._store.transact(decide))

    async def settle(self, txn_id: str, decision: Decision) -> State:
        """A lease of the transaction ends in another process, and with it the transaction."""

        def settle(tx: Transaction) -> Outcome:
            record, marker = self._coordinator.known(tx, txn_id)
            if record is None:
                return Outcome(State(decision.value) if marker is None else rules.state_of(marker))
            freed = rules.local_members(record, self.backend_hash)
            state = self._coordinator.follow(tx, txn_id, record, decision)
            tx.after_commit(lambda _: self._freer.freed(freed))
            return Outcome(state, record)

        with watched(self._metrics.decide, "decide", txn_id):
            return await self._deliver(txn_id, await self._store.transact(settle))

    async def apply(self, txn_id: str) -> State:
        """Apply what is recorded, without a word on what it should be."""

        def apply(tx: Transaction) -> Outcome:
            record, marker = self._coordinator.known(tx, txn_id)
            if record is None:
                return _marked(marker)
            if rules.state_of(record) is State.PENDING:
                raise TxnPending("transaction decision not recorded")
            return self._advance(tx, txn_id, record, is_decided=True)

        return await self._deliver(txn_id, await self._store.transact(apply))

    async def replay(self, txn_id: str, *, term: int = 0, may_end: bool = True) -> State:
        """Apply what is recorded again; a pending transaction whose time is over is rolled back by who `may_end` it."""

        def replay(tx: Transaction) -> Outcome:
            record, marker = self._coordinator.known(tx, txn_id)
            if record is None:
                return _marked(marker)
            is_decided = rules.state_of(record) is not State.PENDING
            if not is_decided:
                if not may_end or not self._is_over(tx, txn_id, record):
                    return Outcome(State.PENDING)
                record.state = State.ROLLBACK
            record.term = max(record.term, term)
            return self._advance(tx, txn_id, record, is_decided=is_decided)

        with watched(self._metrics.replay, "replay", txn_id):
            outcome = await self._store.transact(replay)
            await self._round(txn_id, outcome)
        return outcome.state

    async def overdue(self, txn_id: str) -> list[Member] | None:
        """Who takes part here in a pending transaction whose time is over; None: it is not."""

        def overdue(tx: Transaction) -> list[Member] | None:
            record, _ = self._coordinator.known(tx, txn_id)
            if record is None or rules.state_of(record) is not State.PENDING:
                return None
            is_over = self._is_over(tx, txn_id, record)
            return rules.local_members(record, self.backend_hash) if is_over else None

        return await self._store.transact(overdue)

    async def held(self, txn_id: str) -> list[Member]:
        """Who holds a lease of the transaction on this island."""
        return await self._store.transact(lambda tx: held_members(tx, txn_id))

    async def only_sends(self, txn_id: str) -> bool:
        """Whether it sends messages from this island and has no lease here, not even one that ended."""

        def only_sends(tx: Transaction) -> bool:
            held = held_members(tx, txn_id)
            return bool(held) and all(is_sent(tx, txn_id, member) for member in held)

        return await self._store.transact(only_sends)

    async def postpone(self, due: Due) -> TxnRecord | None:
        """What is due and not this node's to end: it is due again later. None: there is nothing to do yet."""

        def postpone(tx: Transaction) -> TxnRecord | None:
            record = RECORDS.get(tx, due.txn_id)
            if record is None or record.due_at_ms != due.at_ms:
                tx.delete(due.key)
                return None
            if rules.state_of(record) is State.PENDING:
                until_ms = self.lives_until_ms(tx, due.txn_id, record)
                if until_ms > self._clock.now_ms():
                    put_record(tx, due.txn_id, record, due_at_ms=until_ms)
                    return None
            self._coordinator.postpone(tx, due.txn_id, record)
            return record

        return await self._store.transact(postpone)

    async def handed_over(self, txn_id: str, record: TxnRecord) -> None:
        """The leader has recorded this decision and brings it to everybody."""
        islands = {one.backend_hash for one in record.participants}
        await self._finish(txn_id, record, sorted(islands))

    async def resume(self, due: Due, *, term: int = 0) -> None:
        """For the sweep: go on with what is due. A stale entry of the order goes."""
        metrics = self._metrics

        def resume(tx: Transaction) -> Outcome:
            record = RECORDS.get(tx, due.txn_id)
            if record is None or record.due_at_ms != due.at_ms:
                tx.delete(due.key)
                return Outcome(State.PENDING)
            is_decided = rules.state_of(record) is not State.PENDING
            if not is_decided:
                until_ms = self.lives_until_ms(tx, due.txn_id, record)
                if until_ms > self._clock.now_ms():
                    put_record(tx, due.txn_id, record, due_at_ms=until_ms)
                    return Outcome(State.PENDING)
                record.state = State.ROLLBACK
                tx.after_commit(lambda _: metrics.swept("pending_expired"))
            record.term = max(record.term, term)
            rules.hold(record, self._coordinator.located(held_members(tx, due.txn_id)))
            return self._advance(tx, due.txn_id, record, is_decided=is_decided)

        outcome = await self._store.transact(resume)
        problems = await self._round(due.txn_id, outcome)
        if outcome.state is not State.PENDING:
            metrics.swept("failed" if problems else "applied")

    def lives_until_ms(self, tx: Transaction, txn_id: str, record: TxnRecord) -> int:
        """A pending transaction lives as long as the last lease of it, or as it was told to."""
        held = held_members(tx, txn_id)
        return max(record.expires_at_ms, last_lease_ends_ms(tx, txn_id, held))

    def _is_over(self, tx: Transaction, txn_id: str, record: TxnRecord) -> bool:
        return self.lives_until_ms(tx, txn_id, record) <= self._clock.now_ms()

    def _advance(self, tx: Transaction, txn_id: str, record: TxnRecord, *, is_decided: bool) -> Outcome:
        freed = rules.local_members(record, self.backend_hash)
        state = self._coordinator.advance(tx, txn_id, record, is_decided=is_decided)
        if state is not State.PENDING:
            tx.after_commit(lambda _: self._freer.freed(freed))
        return Outcome(state, record)

    # -- after the commit

    async def _deliver(self, txn_id: str, outcome: Outcome) -> State:
        """The decision stands; its caller is told if it has not reached every store yet."""
        if failpoint.ARMED:
            failpoint.hit("txn.recorded")
        problems = await self._round(txn_id, outcome)
        if problems:
            raise TxnFanoutFailed(f"{outcome.state} is recorded and is tried again: {', '.join(problems)}")
        return outcome.state

    async def _round(self, txn_id: str, outcome: Outcome) -> list[str]:
        """To everybody whom a decision has not reached; what was wrong with those it did not reach now either."""
        record = outcome.record
        for _ in range(ROUNDS_MAX):
            if record is None or outcome.state is State.PENDING or rules.is_applied(record):
                return []
            delivered = await self._fan_out.deliver(txn_id, record)
            if failpoint.ARMED:
                failpoint.hit("txn.delivered")
            if delivered.reached:
                record = await self._finish(txn_id, record, delivered.reached)
                if failpoint.ARMED:
                    failpoint.hit("txn.finished")
            if delivered.problems:
                return delivered.problems
        return ["others join faster than the decision is delivered"]

    async def _finish(self, txn_id: str, brought: TxnRecord, islands: Sequence[str]) -> TxnRecord | None:
        """Mark what was reached; the record that is left, if any."""

        def finish(tx: Transaction) -> TxnRecord | None:
            record = RECORDS.get(tx, txn_id)
            if record is None:
                return None
            rules.mark_brought(record, brought, islands)
            self._coordinator.finish(tx, txn_id, record)
            return record

        return await self._store.transact(finish)

    def located(self, participant: Participant) -> Participant:
        """What is nowhere else is here."""
        return participant._replace(backend_hash=participant.backend_hash or self.backend_hash)


def _marked(marker: TxnMarker | None) -> Outcome:
    if marker is None:
        raise TxnNotFound("no such transaction")
    return Outcome(rules.state_of(marker))
