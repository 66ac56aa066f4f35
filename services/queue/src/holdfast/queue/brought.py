"""Decisions that the coordinator brings from another process."""

from collections.abc import Sequence

from holdfast.common.clock import SteadyClock
from holdfast.queue.service import QueueService
from holdfast.storage.lifetime import is_message_lost
from holdfast.storage.port import Store, Transaction
from holdfast.storage.resource import Decision, Member


class BroughtDecisions:
    """Each is one storage transaction of this process."""

    def __init__(self, store: Store, queue: QueueService, clock: SteadyClock) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock

    async def apply(self, txn_id: str, decision: Decision, members: Sequence[Member]) -> bool:
        """What is decided cannot be refused any more: a message whose time ran out meanwhile goes back to its queue."""

        def apply(tx: Transaction) -> bool:
            now_ms = self._clock.now_ms()
            for member in members:
                is_lost = is_message_lost(tx, txn_id, member, now_ms)
                self._queue.apply(tx, txn_id, Decision.ROLLBACK if is_lost else decision, [member])
            return True

        return await self._store.transact(apply)

    async def keep(self, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        return await self._store.transact(lambda tx: self._queue.keep(tx, txn_id, expires_at_ms, members))
