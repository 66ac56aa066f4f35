"""Dead letters: looked at, driven back into their queue, or thrown away."""

from collections.abc import Sequence

from holdfast.common.clock import SteadyClock
from holdfast.queue.layer.delivery import freeing
from holdfast.queue.layer.delivery.endings import Endings
from holdfast.queue.layer.delivery.transaction_binding import TransactionBinding
from holdfast.queue.layer.message.changes import Changes
from holdfast.queue.layer.message.records import DEAD, keys_of
from holdfast.queue.layer.message.rules import dead_letter_view
from holdfast.queue.layer.message.types import DeadLetter, QueueAddress
from holdfast.queue.layer.records_pb2 import DeadLetterRecord
from holdfast.storage.keys import unpack
from holdfast.storage.port import RANGE_LIMIT_MAX, Store, Transaction

PAGE_LETTERS = 50  # As many as fit into one commit when each carries as much as a record may.


class DeadLetters:
    """The messages that used up their attempts."""

    def __init__(
        self,
        store: Store,
        clock: SteadyClock,
        endings: Endings,
        binding: TransactionBinding,
    ) -> None:
        self._store = store
        self._clock = clock
        self._endings = endings
        self._binding = binding

    async def list(self, address: QueueAddress, limit: int, after: str = "") -> list[DeadLetter]:
        """In order of message id, from behind `after` on."""
        await self._endings.finished(address)
        listed: list[DeadLetter] = []
        start = keys_of(address).dead(after) + b"\x00" if after else None
        while len(listed) < limit:
            count_max = min(PAGE_LETTERS, limit - len(listed))
            rows = await DEAD.fetch_range(self._store, *address, limit=count_max, start=start)
            listed += [dead_letter_view(address, str(row.parts[-1]), row.message) for row in rows]
            if len(rows) < count_max:
                break
            start = rows[-1].record.key + b"\x00"
        return listed

    async def redrive(self, address: QueueAddress, ids: Sequence[str] | None, limit: int) -> int:
        """Back into the queue with a fresh count of failures; None: the oldest `limit`. Returns how many."""
        return sum([await self._redrive(address, page) for page in await self._pages(address, ids, limit)])

    async def purge(self, address: QueueAddress, ids: Sequence[str] | None, limit: int) -> int:
        """Away for ever; None: the oldest `limit`. Returns how many."""
        return sum([await self._purge(address, page) for page in await self._pages(address, ids, limit)])

    async def _pages(
        self, address: QueueAddress, ids: Sequence[str] | None, limit: int
    ) -> Sequence[Sequence[str]]:
        if ids is None:
            await self._endings.finished(address)
            start, end = DEAD.bounds(*address)
            found = await self._store.range(
                start, end, limit=max(1, min(limit, RANGE_LIMIT_MAX)), keys_only=True
            )
            ids = [str(unpack(record.key)[-1]) for record in found]
        chosen = ids[:limit]
        return [chosen[start : start + PAGE_LETTERS] for start in range(0, len(chosen), PAGE_LETTERS)]

    async def _redrive(self, address: QueueAddress, ids: Sequence[str]) -> int:
        now_ms = self._clock.now_ms()

        def redrive(tx: Transaction) -> int:
            changes = Changes()
            letters = self._read(tx, address, ids)
            for message_id, letter in letters.items():
                freeing.redrive(tx, address, message_id, letter, now_ms, changes)
            self._endings.follow(tx, changes)
            return len(letters)

        return await self._store.transact(redrive)

    async def _purge(self, address: QueueAddress, ids: Sequence[str]) -> int:
        now_ms = self._clock.now_ms()

        def purge(tx: Transaction) -> int:
            letters = self._read(tx, address, ids)
            for message_id, letter in letters.items():
                tx.delete(keys_of(address).dead(message_id))
                self._binding.forget_state(tx, address, message_id, letter.state, now_ms)
            return len(letters)

        return await self._store.transact(purge)

    def _read(
        self, tx: Transaction, address: QueueAddress, ids: Sequence[str]
    ) -> dict[str, DeadLetterRecord]:
        keys = {message_id: keys_of(address).dead(message_id) for message_id in ids}
        found = tx.get_many(list(keys.values()))
        return {message_id: DEAD.decode(found[key]) for message_id, key in keys.items() if key in found}
