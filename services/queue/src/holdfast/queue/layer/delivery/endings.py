"""How a delivery ends without its consumer: given back unsent, out of time, out of attempts, past its deadline."""

import asyncio
from collections.abc import Callable, Sequence

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.queue.layer.delivery import freeing
from holdfast.queue.layer.delivery.transaction_binding import TransactionBinding
from holdfast.queue.layer.dispatch.dispatcher import Dispatcher
from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.dispatch.window import Entry
from holdfast.queue.layer.message import records, rules
from holdfast.queue.layer.message.changes import Changes
from holdfast.queue.layer.message.rules import Disposition
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.port import Record, Store, Transaction

RETRY_S = 1.0
GIVEN_BACK_PER_COMMIT = 100

_log = get_logger("queue.dispatcher")


class Endings:
    """Each is one commit that expects the state it was decided on; the loser of a conflict looks again."""

    def __init__(self, store: Store, clock: SteadyClock, binding: TransactionBinding) -> None:
        self._store = store
        self._clock = clock
        self._binding = binding
        self.dispatchers: Dispatchers
        self.on_deadline: Callable[[int], None]
        self._under_way: set[asyncio.Task[None]] = set()

    def follow(self, tx: Transaction, changes: Changes) -> None:
        """Have the memory of this process told of what a rule changed, once that is committed."""
        if changes.dead and failpoint.ARMED:
            failpoint.hit("queue.dlq.commit")
        if changes.messages:
            tx.after_commit(lambda revision: self._tell(changes, revision))

    def _tell(self, changes: Changes, revision: int) -> None:
        for address, message_id, place, state in changes.messages:
            if state is None:
                self.dispatchers.forget(address, message_id)
            else:
                self.dispatchers.tell(address, [Entry(message_id, place, revision, state)])
        for deadline_ms in changes.deadlines_ms:
            self.on_deadline(deadline_ms)
        if changes.dead and failpoint.ARMED:
            failpoint.hit("queue.dlq.answer")

    def expired(self, queue: Dispatcher, entry: Entry) -> bool:
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
        now_ms = self._clock.now_ms()

        def end(tx: Transaction) -> None:
            record = tx.get(entry.key)
            if record is None:
                return
            changes = Changes()
            freeing.end(
                tx,
                queue.address,
                entry.message_id,
                record,
                now_ms,
                self._binding,
                changes,
            )
            self.follow(tx, changes)

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

    async def end_by_deadline(self, entry: Record) -> int | None:
        """The TTL of a message is over; `entry` is its place in the order of deadlines. Returns when to look again."""

        now_ms = self._clock.now_ms()

        def end(tx: Transaction) -> int | None:
            changes = Changes()
            later_ms = freeing.end_by_deadline(tx, entry, now_ms, self._binding, changes)
            self.follow(tx, changes)
            return later_ms

        return await self._store.transact(end)

    async def give_back(self, address: QueueAddress, message_id: str, lease_id: str) -> None:
        """A delivery that was never sent, if it is still the one of this lease."""
        await self._give_back_all(address, [(message_id, lease_id)])

    async def _give_back_all(self, address: QueueAddress, deliveries: Sequence[tuple[str, str]]) -> None:
        now_ms = self._clock.now_ms()
        for start in range(0, len(deliveries), GIVEN_BACK_PER_COMMIT):
            part = deliveries[start : start + GIVEN_BACK_PER_COMMIT]

            def give_back(tx: Transaction, part: Sequence[tuple[str, str]] = part) -> None:
                changes = Changes()
                for message_id, lease_id in part:
                    freeing.give_back(tx, address, message_id, lease_id, now_ms, self._binding, changes)
                self.follow(tx, changes)

            await self._store.transact(give_back, in_commit_order=True)

    def undo_soon(self, queue: Dispatcher, claims: Sequence[tuple[Entry, str]]) -> None:
        """The consumer went away while the commit of these claims was under way. They stay handed out until it is known how
        that ended: an entry that was offered before would change under the next consumer."""
        self.dispatchers.spawn(self._undo(queue, claims))

    async def _undo(self, queue: Dispatcher, claims: Sequence[tuple[Entry, str]]) -> None:
        try:
            await self._give_back_all(
                queue.address, [(entry.message_id, lease_id) for entry, lease_id in claims]
            )
            # What was given back was told of; the rest was not claimed after all.
            await queue.read_again(
                [entry for entry, _ in claims if queue.window.get(entry.message_id) is entry]
            )
        except Exception as error:  # noqa: BLE001 - the edge of this task: what is handed out must not stay so
            if isinstance(error, HoldfastError):
                warn_unless_told(_log, "queue.give_back.failed", error)
            else:
                _log.error("queue.give_back.failed", exception=error)
            queue.reset()

    async def defer(self, queue: Dispatcher, entries: Sequence[Entry], until_ms: int) -> None:
        """Another caller holds what would have to be delivered with them: ready again when that is over."""

        def defer(tx: Transaction) -> None:
            changes = Changes()
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
                freeing.make_ready(tx, queue.address, entry.message_id, entry.key, later, changes)
            self.follow(tx, changes)

        await self._store.transact(defer)
