"""How a delivery ends without its consumer: given back unsent, out of time, out of attempts, past its deadline."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock
from holdfast.common.logging import get_logger
from holdfast.queue import records, rules
from holdfast.queue.dispatcher import Dispatcher
from holdfast.queue.dispatchers import Dispatchers
from holdfast.queue.messages import QueueAddress
from holdfast.queue.records import MESSAGES, TAKEN, Writes, keys_of
from holdfast.queue.rules import Fate
from holdfast.queue.window import Entry
from holdfast.storage.errors import Conflict, StorageError
from holdfast.storage.layers_pb2 import DeadLetterRecord, MessageState, QueueMessage
from holdfast.storage.port import Record, Store, Transaction

ATTEMPTS_MAX = 16

_log = get_logger("queue.dispatcher")


class Endings:
    """Each is one commit that expects the state it was decided on; whoever loses looks again."""

    def __init__(self, store: Store, clock: SteadyClock) -> None:
        self._store = store
        self._clock = clock
        self.dispatchers: Dispatchers
        self.on_dead: Callable[[], None] = lambda: None
        self._under_way: set[asyncio.Task[None]] = set()

    def lapsed(self, queue: Dispatcher, entry: Entry) -> bool:
        """Whether a message whose lease ran out may simply be delivered again; if not, it is ended soon."""
        if rules.fate(entry.state, self._clock.now_ms()) is Fate.READY:
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
        try:
            for _ in range(ATTEMPTS_MAX):
                record = await self._store.get(entry.key)
                if record is None or await self._ended(queue, entry, record):
                    return
        except StorageError as error:
            _log.warn("queue.end.failed", reason=error.detail)
            queue.reset()

    async def _ended(self, queue: Dispatcher, entry: Entry, record: Record) -> bool:
        """False: somebody else was faster."""
        state = TAKEN.decode(record)
        now_ms = self._clock.now_ms()
        fate = rules.fate(state, now_ms)
        if rules.is_held(state, now_ms) or fate is Fate.READY:
            queue.tell([Entry(entry.message_id, record.key, record.mod_revision, state)])
            return True
        message = await self.message(queue.address, entry.message_id) if fate is Fate.DEAD else None
        writes = Writes()
        writes.expect(record.key, record.mod_revision)
        if message is None:
            records.remove(writes, queue.keys, entry.message_id, record.key, state)
        else:
            self.bury(writes, queue.address, entry.message_id, record.key, message, state)
        try:
            await self._store.commit(writes.batch)
        except Conflict:
            return False
        self.dispatchers.forget(queue.address, entry.message_id)
        if failpoint.ARMED:
            failpoint.hit("queue.dlq.answer")
        return True

    async def message(self, address: QueueAddress, message_id: str) -> QueueMessage | None:
        return await MESSAGES.get(self._store, *address, message_id)

    def bury(
        self,
        writer: records.Writer,
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
        records.bury(writer, keys_of(address), message_id, place, letter)
        self.on_dead()

    async def give_back(self, address: QueueAddress, message_id: str, lease_id: str) -> None:
        """A delivery that was never sent, if it is still the one of this lease."""

        async def give_back(tx: Transaction) -> None:
            state = await TAKEN.get(tx, *address, message_id)
            if state is not None and state.lease_id == lease_id:
                await self.free(tx, address, message_id, rules.given_back(state))

        await self._store.transact(give_back)

    async def free(
        self, tx: Transaction, address: QueueAddress, message_id: str, ready: MessageState
    ) -> None:
        """It was taken and is nobody's now: ready at its time, unless it may not be delivered any more."""
        keys = keys_of(address)
        fate = rules.fate(ready, self._clock.now_ms())
        message = await MESSAGES.get(tx, *address, message_id) if fate is Fate.DEAD else None
        if fate is Fate.READY:
            place = records.put_back(tx, keys, message_id, ready)
            tx.after_commit(
                lambda revision: self.dispatchers.tell(address, [Entry(message_id, place, revision, ready)])
            )
            return
        if message is None:
            records.remove(tx, keys, message_id, keys.taken(message_id), ready)
        else:
            self.bury(tx, address, message_id, keys.taken(message_id), message, ready)
        tx.after_commit(lambda _: self.dispatchers.forget(address, message_id))


def _max_attempts_error(now_ms: int) -> bytes:
    time = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return b'{"reason":"max_attempts_exceeded","time_rfc3339":"%b"}' % time.encode()
