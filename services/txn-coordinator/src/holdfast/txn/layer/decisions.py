"""Decisions by name: what the endpoints of transactions do.

Each is one storage transaction that records the decision and applies it to every participant of this store. If others
lie on other stores, a round to them follows: deliver, finish. A process that dies in between leaves a record that is
due, and the sweep goes on with it.
"""

from collections.abc import Sequence
from typing import Protocol

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.leases.layer.records import held_members
from holdfast.storage.port import Store, Transaction
from holdfast.txn.layer import rules, transitions
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.errors import TxnFanoutFailed
from holdfast.txn.layer.fan_out import FanOut, NoFanOut
from holdfast.txn.layer.lifetime import is_sent
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.records import Due
from holdfast.txn.layer.records_pb2 import TxnRecord
from holdfast.txn.layer.rules import Ask, Participant, State
from holdfast.txn.layer.transitions import Outcome
from holdfast.txn.layer.watchdog import watched

ROUNDS_MAX = 4  # To those who join while a decision is delivered.


class Freer(Protocol):
    """Notifies the waiters for keys that are free now."""

    def freed(self, members: Sequence[Member]) -> None: ...


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
        now_ms = self._clock.now_ms()

        def decide(tx: Transaction) -> Outcome:
            return self._told(tx, transitions.decide(tx, txn_id, located, now_ms, self._coordinator))

        with watched(self._metrics.decide, "decide", txn_id):
            return await self._deliver(txn_id, await self._store.transact(decide))

    async def end_with_lease(self, txn_id: str, decision: Decision) -> State:
        """A lease of the transaction ends in another process, and with it the transaction."""
        now_ms = self._clock.now_ms()

        def end(tx: Transaction) -> Outcome:
            return self._told(tx, transitions.end_with_lease(tx, txn_id, decision, now_ms, self._coordinator))

        with watched(self._metrics.decide, "decide", txn_id):
            return await self._deliver(txn_id, await self._store.transact(end))

    async def apply(self, txn_id: str) -> State:
        """Apply the recorded decision, whichever it is."""
        now_ms = self._clock.now_ms()

        def apply(tx: Transaction) -> Outcome:
            return self._told(tx, transitions.apply(tx, txn_id, now_ms, self._coordinator))

        return await self._deliver(txn_id, await self._store.transact(apply))

    async def replay(self, txn_id: str, *, term: int = 0, may_end: bool = True) -> State:
        """Apply the recorded decision again; with `may_end`, a pending transaction whose time is over is rolled back."""
        now_ms = self._clock.now_ms()

        def replay(tx: Transaction) -> Outcome:
            outcome = transitions.replay(tx, txn_id, now_ms, self._coordinator, term=term, may_end=may_end)
            return self._told(tx, outcome)

        with watched(self._metrics.replay, "replay", txn_id):
            outcome = await self._store.transact(replay)
            await self._round(txn_id, outcome)
        return outcome.state

    async def overdue(self, txn_id: str) -> list[Member] | None:
        """The members on this store of a pending transaction whose time is over; None: it is not."""
        now_ms = self._clock.now_ms()
        return await self._store.transact(
            lambda tx: transitions.overdue(tx, txn_id, now_ms, self._coordinator)
        )

    async def held(self, txn_id: str) -> list[Member]:
        """The keys of this island that are leased under the transaction."""
        return await self._store.transact(lambda tx: held_members(tx, txn_id))

    async def only_sends(self, txn_id: str) -> bool:
        """Whether it sends messages from this island and has no lease here, not even one that ended."""

        def only_sends(tx: Transaction) -> bool:
            held = held_members(tx, txn_id)
            return bool(held) and all(is_sent(tx, txn_id, member) for member in held)

        return await self._store.transact(only_sends)

    async def postpone(self, due: Due) -> TxnRecord | None:
        """What is due and not this node's to end: it is due again later. None: there is nothing to do yet."""
        now_ms = self._clock.now_ms()
        return await self._store.transact(lambda tx: transitions.postpone(tx, due, now_ms, self._coordinator))

    async def handed_over(self, txn_id: str, record: TxnRecord) -> None:
        """The leader has recorded this decision and delivers it to all participants."""
        islands = {one.backend_hash for one in record.participants}
        await self._finish(txn_id, record, sorted(islands))

    async def resume(self, due: Due, *, term: int = 0) -> None:
        """For the sweep: go on with what is due. A stale entry of the order is deleted."""
        now_ms = self._clock.now_ms()

        def resume(tx: Transaction) -> Outcome:
            return self._told(tx, transitions.resume(tx, due, now_ms, self._coordinator, term=term))

        outcome = await self._store.transact(resume)
        problems = await self._round(due.txn_id, outcome)
        if outcome.state is not State.PENDING:
            self._metrics.swept("failed" if problems else "applied")

    def _told(self, tx: Transaction, outcome: Outcome) -> Outcome:
        """The waiters for the keys that are free are notified with the commit, also when its caller is gone."""
        if outcome.freed:
            tx.after_commit(lambda _: self._freer.freed(outcome.freed))
        return outcome

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
        """Deliver to every store that the decision has not reached; what was wrong with those it did not reach now either."""
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

    async def _finish(self, txn_id: str, delivered: TxnRecord, islands: Sequence[str]) -> TxnRecord | None:
        """Mark what was reached; the record that is left, if any."""
        now_ms = self._clock.now_ms()
        return await self._store.transact(
            lambda tx: transitions.finish(tx, txn_id, delivered, islands, now_ms, self._coordinator)
        )

    def located(self, participant: Participant) -> Participant:
        """What is nowhere else is here."""
        return participant._replace(backend_hash=participant.backend_hash or self.backend_hash)
