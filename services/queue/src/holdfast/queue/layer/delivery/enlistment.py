"""The queue as a resource manager: what a decision on a transaction makes of the messages it dequeued and sends."""

from collections.abc import Callable, Sequence

from holdfast.common.clock import SteadyClock
from holdfast.leases.layer.records import held_key
from holdfast.queue.layer.delivery.endings import Endings
from holdfast.queue.layer.delivery.transaction_binding import TransactionBinding
from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.dispatch.window import Entry
from holdfast.queue.layer.errors import MessageLeaseMismatch
from holdfast.queue.layer.message import records, rules, staging
from holdfast.queue.layer.message.records import TAKEN, keys_of, message_of_member
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import MessageState, StagedMessage
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Decision, Member


class Enlistment:
    """Commit acks what was dequeued and publishes what is sent; rollback gives back the one and drops the other."""

    def __init__(
        self,
        clock: SteadyClock,
        dispatchers: Dispatchers,
        endings: Endings,
        binding: TransactionBinding,
        on_deadline: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._dispatchers = dispatchers
        self._endings = endings
        self._binding = binding
        self._on_deadline = on_deadline

    def reads(self, txn_id: str, members: Sequence[Member]) -> list[bytes]:
        found = [place for member in members if (place := message_of_member(member)) is not None]
        return [key for address, message_id in found for key in _keys(txn_id, address, message_id)]

    def apply(self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member]) -> None:
        for member in members:
            found = message_of_member(member)
            if found is None:
                continue
            address, message_id = found
            staged = staging.read(tx, txn_id, address, message_id)
            state = None if staged is not None else TAKEN.get(tx, *address, message_id)
            if staged is not None:
                self._end_staged(tx, txn_id, address, message_id, staged, decision)
            elif decision is Decision.COMMIT:
                self._commit(tx, txn_id, address, message_id, state)
            elif state is not None and state.txn_id == txn_id:
                self._roll_back(tx, address, message_id, state)
            tx.delete(held_key(txn_id, member))

    def keep(self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        """The deliveries of the transaction belong to it from now on, also the one that minted its id, and live until
        then at least; their ETag stays, nobody of them asked for it."""
        last_ms = 0
        for member in members:
            found = message_of_member(member)
            state = None if found is None else TAKEN.get(tx, *found[0], found[1])
            if found is None or state is None or state.txn_id != txn_id:
                continue
            if not state.is_enlisted and state.expires_at_ms <= self._clock.now_ms():
                tx.delete(held_key(txn_id, member))  # Its time was over before anybody joined it.
                continue
            if not state.is_enlisted or state.expires_at_ms < expires_at_ms:
                state.is_enlisted = True
                state.expires_at_ms = max(state.expires_at_ms, expires_at_ms)
                self._write(tx, *found, state)
            last_ms = max(last_ms, state.expires_at_ms)
        return last_ms

    def _end_staged(
        self,
        tx: Transaction,
        txn_id: str,
        address: QueueAddress,
        message_id: str,
        staged: StagedMessage,
        decision: Decision,
    ) -> None:
        if decision is Decision.ROLLBACK:
            staging.drop(tx, txn_id, address, message_id)
            return
        place, ready = staging.publish(tx, txn_id, address, message_id, staged, self._clock.now_ms())
        tx.after_commit(
            lambda revision: self._dispatchers.tell(address, [Entry(message_id, place, revision, ready)])
        )
        if ready.deadline_ms:
            tx.after_commit(lambda _: self._on_deadline(ready.deadline_ms))

    def _commit(
        self,
        tx: Transaction,
        txn_id: str,
        address: QueueAddress,
        message_id: str,
        state: MessageState | None,
    ) -> None:
        keys = keys_of(address)
        if state is None and tx.get(keys.message(message_id)) is None:
            return  # Acked already.
        if state is None or state.txn_id != txn_id or state.expires_at_ms <= self._clock.now_ms():
            raise MessageLeaseMismatch("the transaction no longer holds this message; it stays in its queue")
        records.remove(tx, keys, message_id, keys.taken(message_id), state)
        self._binding.forget_state(tx, address, message_id, state)
        tx.after_commit(lambda _: self._dispatchers.forget(address, message_id))

    def _roll_back(
        self, tx: Transaction, address: QueueAddress, message_id: str, state: MessageState
    ) -> None:
        now_ms = self._clock.now_ms()
        is_lapsed = state.expires_at_ms <= now_ms
        ready = rules.requeued(
            state,
            visible_at_ms=state.expires_at_ms if is_lapsed else now_ms,
            last_error=rules.ROLLBACK_ERROR,
            is_failure=is_lapsed,
        )
        self._endings.free(tx, address, message_id, ready)

    def _write(self, tx: Transaction, address: QueueAddress, message_id: str, state: MessageState) -> None:
        place = records.take(tx, keys_of(address), message_id, keys_of(address).taken(message_id), state)
        tx.after_commit(
            lambda revision: self._dispatchers.tell(address, [Entry(message_id, place, revision, state)])
        )


def _keys(txn_id: str, address: QueueAddress, message_id: str) -> tuple[bytes, ...]:
    keys = keys_of(address)
    return keys.taken(message_id), keys.message(message_id), keys.sent(txn_id, message_id)
