"""How a delivery ends without its consumer: given back unsent, out of time, out of attempts, past its deadline."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.queue.layer.delivery.transaction_binding import TransactionBinding
from holdfast.queue.layer.dispatch.dispatcher import Dispatcher
from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.dispatch.window import Entry
from holdfast.queue.layer.message import records, rules
from holdfast.queue.layer.message.records import MESSAGES, TAKEN, deadline_of, keys_of
from holdfast.queue.layer.message.rules import Disposition
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import DeadLetterRecord, MessageState, QueueMessage
from holdfast.storage.port import Record, Store, Transaction
from holdfast.storage.trouble import warn_unless_told
from holdfast.txn.layer.port import Decision

RETRY_S = 1.0

_log = get_logger("queue.dispatcher")


class Endings:
    """Each is one commit that expects the state it was decided on; the loser of a conflict looks again."""

    def __init__(self, store: Store, clock: SteadyClock, binding: TransactionBinding) -> None:
        self._store = store
        self._clock = clock
        self._binding = binding
        self.dispatchers: Dispatchers
        self.on_dead: Callable[[], None] = lambda: None
        self._under_way: set[asyncio.Task[None]] = set()

    def lapsed(self, queue: Dispatcher, entry: Entry) -> bool:
        """Whether a message whose lease ran out may simply be delivered again; if not, it is ended soon."""
        if (
            not entry.state.is_enlisted
            and rules.disposition(entry.state, self._clock.now_ms()) is Disposition.READY
        ):
            return True
        self.end_soon(queue, entry)
        return False

    def end_soon(self, queue: Dispatcher, entry: Entry) -> None:
        """It may not be delivered any more."""
        task = self.dispatchers.spawn(self._end(queue, entry))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def finished(self, address: QueueAddress) -> None:
        """Return when everything whose time is over by now has been ended."""
        (await self.dispatchers.loaded(address)).pump()
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def _end(self, queue: Dispatcher, entry: Entry) -> None:
        def end(tx: Transaction) -> None:
            record = tx.get(entry.key)
            if record is not None:
                self._end_in(tx, queue.address, entry.message_id, record)

        try:
            await self._store.transact(end)
            if queue.window.get(entry.message_id) is entry:
                await queue.read_again([entry])  # It was not to be ended after all, or is gone already.
        except HoldfastError as error:
            warn_unless_told(_log, "queue.end.failed", error)
            self.dispatchers.spawn(self._end_later(queue, entry))

    async def _end_later(self, queue: Dispatcher, entry: Entry) -> None:
        await asyncio.sleep(RETRY_S)
        if queue.window.get(entry.message_id) is entry:
            self.end_soon(queue, entry)

    def _end_in(self, tx: Transaction, address: QueueAddress, message_id: str, record: Record) -> None:
        """It is past its deadline, out of attempts, or out of time within a transaction, which ends with it."""
        state = TAKEN.decode(record)
        now_ms = self._clock.now_ms()
        if rules.is_held(state, now_ms):
            return
        if state.is_enlisted:
            self._binding.decide(tx, state.txn_id, Decision.ROLLBACK)
            return
        disposition = rules.disposition(state, now_ms)
        if disposition is not Disposition.READY:
            self._binding.release_state(tx, address, message_id, state, Decision.ROLLBACK)
            self._put_away(tx, address, message_id, record.key, state, disposition)

    def _put_away(
        self,
        tx: Transaction,
        address: QueueAddress,
        message_id: str,
        place: bytes,
        state: MessageState,
        disposition: Disposition,
    ) -> None:
        """To the dead letters, or nowhere."""
        message = MESSAGES.get(tx, *address, message_id) if disposition is Disposition.DEAD else None
        if message is not None:
            self._bury(tx, address, message_id, place, message, state)
        else:
            records.remove(tx, keys_of(address), message_id, place, state)
            self._binding.forget_state(tx, address, message_id, state)
        tx.after_commit(lambda _: self._put_away_committed(address, message_id))

    def _put_away_committed(self, address: QueueAddress, message_id: str) -> None:
        self.dispatchers.forget(address, message_id)
        if failpoint.ARMED:
            failpoint.hit("queue.dlq.answer")

    def _bury(
        self,
        tx: Transaction,
        address: QueueAddress,
        message_id: str,
        place: bytes,
        message: QueueMessage,
        state: MessageState,
    ) -> None:
        """Its attempts are used up: what it carries and where it stood move to the dead letters."""
        if failpoint.ARMED:
            failpoint.hit("queue.dlq.commit")
        now_ms = self._clock.now_ms()
        dead = MessageState()
        dead.CopyFrom(state)
        dead.failure_attempts = rules.failures(state, now_ms)
        dead.last_error = _max_attempts_error(now_ms)
        letter = DeadLetterRecord(message=message, state=dead, dead_at_ms=now_ms)
        records.bury(tx, keys_of(address), message_id, place, letter)
        tx.after_commit(lambda _: self.on_dead())

    async def end_by_deadline(self, entry: Record) -> int | None:
        """The TTL of a message is over; `entry` is its place in the order of deadlines. Returns when to look again."""
        _, address, message_id = deadline_of(entry.key)
        keys = keys_of(address)

        def end(tx: Transaction) -> int | None:
            place = tx.get(entry.value) or tx.get(keys.taken(message_id))
            tx.delete(entry.key)
            if place is None:
                return None
            state = TAKEN.decode(place)
            if rules.is_held(state, self._clock.now_ms()):
                # Its holder may still ack it; when that time is over too, it goes.
                tx.put(keys.deadline(state.expires_at_ms, message_id), entry.value)
                return state.expires_at_ms
            if state.is_enlisted:
                self._binding.decide(tx, state.txn_id, Decision.ROLLBACK)
            else:
                self._put_away(tx, address, message_id, place.key, state, Disposition.GONE)
            return None

        return await self._store.transact(end)

    async def give_back(self, address: QueueAddress, message_id: str, lease_id: str) -> None:
        """A delivery that was never sent, if it is still the one of this lease."""

        def give_back(tx: Transaction) -> None:
            # Read with its message, so that the store checks both behind a claim that may still be on its way there.
            tx.get(keys_of(address).message(message_id))
            state = TAKEN.get(tx, *address, message_id)
            if state is not None and state.lease_id == lease_id:
                records.leave(tx, keys_of(address), message_id, state)
                state.is_enlisted = False  # The lease on its state does not stay with the transaction either.
                self._binding.release_state(tx, address, message_id, state, Decision.ROLLBACK)
                self.free(tx, address, message_id, rules.given_back(state))

        await self._store.transact(give_back)

    def free(self, tx: Transaction, address: QueueAddress, message_id: str, ready: MessageState) -> None:
        """It was taken and is nobody's now: ready at its time, unless it may not be delivered any more."""
        keys = keys_of(address)
        disposition = rules.disposition(ready, self._clock.now_ms())
        if disposition is not Disposition.READY:
            self._put_away(tx, address, message_id, keys.taken(message_id), ready, disposition)
            return
        self._make_ready(tx, address, message_id, keys.taken(message_id), ready)

    async def defer(self, queue: Dispatcher, entries: Sequence[Entry], until_ms: int) -> None:
        """Another caller holds what would have to be delivered with them: ready again when that is over."""

        def defer(tx: Transaction) -> None:
            for entry in entries:
                record = tx.get(entry.key)
                if record is None or record.mod_revision != entry.revision:
                    continue
                later = rules.requeued(
                    entry.state,
                    visible_at_ms=until_ms,
                    last_error=entry.state.last_error,
                    is_failure=bool(entry.state.lease_id),
                )
                records.leave(tx, queue.keys, entry.message_id, entry.state)
                self._make_ready(tx, queue.address, entry.message_id, entry.key, later)

        await self._store.transact(defer)

    def _make_ready(
        self, tx: Transaction, address: QueueAddress, message_id: str, place: bytes, ready: MessageState
    ) -> None:
        tx.delete(place)
        key = records.make_ready(tx, keys_of(address), message_id, ready)
        tx.after_commit(
            lambda revision: self.dispatchers.tell(address, [Entry(message_id, key, revision, ready)])
        )


def _max_attempts_error(now_ms: int) -> bytes:
    time = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return b'{"reason":"max_attempts_exceeded","time_rfc3339":"%b"}' % time.encode()
