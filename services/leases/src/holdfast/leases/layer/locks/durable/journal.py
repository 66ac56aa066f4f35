"""The records of locks in the store, and at which revision each was read or written last.

A commit expects that revision, so of two processes that both decide about a key only one is recorded: the other hears of a
conflict, and loads what is so.
"""

from collections.abc import Callable, Sequence

from holdfast.leases.layer.locks.durable.records import (
    FLOOR_KEY,
    FLOORS,
    HELD,
    LOCKS,
    name_of,
    record_key,
    record_of,
)
from holdfast.leases.layer.locks.records import Lock
from holdfast.leases.layer.locks.tokens import Tokens
from holdfast.leases.layer.records_pb2 import LockFloor, LockRecord
from holdfast.storage.errors import Conflict, StorageError
from holdfast.storage.port import ABSENT, RANGE_LIMIT_MAX, Batch, Record, Store


class LockJournal:
    """What one process knows of the records. `tokens` are those of its grants; they stay above all that it reads."""

    def __init__(self, store: Store, tokens: Tokens) -> None:
        self._store = store
        self._tokens = tokens
        self._revisions: dict[bytes, int] = {}
        self._doubted: set[bytes] = set()
        self._floor_revision = ABSENT

    def knows(self, name: bytes) -> bool:
        """Whether the table has what is recorded of the key. Of a store of this process alone it has everything."""
        return name in self._revisions or not (self._store.is_shared or name in self._doubted)

    @property
    def is_shared(self) -> bool:
        """Whether another process may have recorded something that the table does not know."""
        return self._store.is_shared

    def is_older(self, name: bytes, revision: int) -> bool:
        """Whether something is known of the key, and this is newer."""
        return self._revisions.get(name, revision) < revision

    def doubt(self, name: bytes) -> None:
        """What is recorded may be something else: it is loaded before the next step."""
        self._revisions.pop(name, None)
        self._doubted.add(name)

    def drop(self, name: bytes) -> None:
        """The table has nothing of the key."""
        self._revisions.pop(name, None)
        self._doubted.discard(name)

    async def load(self, name: bytes) -> LockRecord | None:
        key = record_key(name)
        found = await self._store.get_many([key, FLOOR_KEY])
        floor = found.get(FLOOR_KEY)
        if floor is not None:
            self._floor_revision = floor.mod_revision
            self._tokens.raise_to(FLOORS.decode(floor).token)
        record = found.get(key)
        self._doubted.discard(name)
        self._revisions[name] = ABSENT if record is None else record.mod_revision
        if record is None:
            return None
        message = LOCKS.decode(record)
        self._tokens.raise_to(message.token)
        return message

    async def load_all(self, is_wanted: Callable[[bytes], bool]) -> list[tuple[bytes, Record]]:
        """What is recorded of the keys that are wanted, and the floor of the tokens."""
        await self.load(b"")
        self.drop(b"")
        found: list[tuple[bytes, Record]] = []
        start, end = LOCKS.bounds(HELD)
        while records := await self._store.range(start, end, limit=RANGE_LIMIT_MAX):
            named = [(name_of(record.key), record) for record in records]
            found += [(name, record) for name, record in named if is_wanted(name)]
            start = records[-1].key + b"\x00"
        return found

    def adopt(self, name: bytes, record: Record) -> LockRecord | None:
        """Take this for what is recorded of the key; None: more is known of it already."""
        if name in self._revisions:
            return None
        message = LOCKS.decode(record)
        self._revisions[name] = record.mod_revision
        self._tokens.raise_to(message.token)
        return message

    async def record(self, lock: Lock) -> None:
        """Record who holds the slots now; raises Conflict if another process recorded something meanwhile."""
        key = record_key(lock.name)
        before = self._revisions.get(lock.name, ABSENT)
        expects = {key: before}
        if before == ABSENT and self._store.is_shared:
            expects[FLOOR_KEY] = (
                self._floor_revision
            )  # The key may have been forgotten since it was looked for.
        message = record_of(lock, self._tokens.last)
        batch = Batch(expects, puts={key: message.SerializeToString(deterministic=True)})
        self._revisions[lock.name] = await self._store.commit(batch)

    async def forget(self, names: Sequence[bytes]) -> None:
        """Delete the records of idle keys; later tokens of them stay above those before."""
        keys = {record_key(name): self._revisions.get(name, ABSENT) for name in names}
        floor = LockFloor(token=self._tokens.last).SerializeToString(deterministic=True)
        batch = Batch({**keys, FLOOR_KEY: self._floor_revision}, puts={FLOOR_KEY: floor}, deletes=set(keys))
        try:
            self._floor_revision = await self._store.commit(batch)
        except Conflict:
            for name in names:
                self.doubt(name)
            await self.load(names[0])
            raise
        except StorageError:
            for name in names:
                self.doubt(name)
            raise
        for name in names:
            self.drop(name)
