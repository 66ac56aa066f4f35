"""Many readers or one writer, in the order in which they came."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.client.aio.concurrency import Pending, pending
from holdfast.client.aio.locks.lock import HeldLock
from holdfast.client.errors import ClientError, InvalidArgument
from holdfast.client.locks.calls import WantedLock
from holdfast.client.locks.meeting import gate_of, readers_of
from holdfast.client.wire.flow import Channel

Acquire = Callable[[WantedLock], Awaitable[HeldLock]]


class ReadWriteLock:
    """`async with lock.read()`, `async with lock.write()`.

    All pass one gate, a lock, first come first served. A reader takes a slot of a semaphore and leaves the gate; a writer
    keeps the gate, and begins when it had all slots at once, so when every reader before it has left. No one waits for the gate with a
    slot in hand, so there is no deadlock, and no waiter is overtaken.

    At most `readers_max` read at once, and all users of a key have to name the same number. A writer makes that many calls more. It is not
    re-entrant: one that reads and asks to write waits for itself.
    """

    def __init__(
        self,
        acquire: Acquire,
        channel: Channel,
        key: str,
        *,
        readers_max: int,
        ttl_s: float,
        owner: str,
    ) -> None:
        if readers_max < 1:
            raise InvalidArgument("at least one must be able to read")
        self._acquire = acquire
        self._channel = channel
        self._key = key
        self._readers_max = readers_max
        self._ttl_s = ttl_s
        self._owner = owner

    def read(self, *, wait_s: float | None = 10.0) -> Pending[HeldLock]:
        """Hold it together with other readers."""
        return pending(lambda: self._read(wait_s))

    def write(self, *, wait_s: float | None = 10.0) -> Pending[HeldLock]:
        """Hold it alone."""
        return pending(lambda: self._write(wait_s))

    async def _read(self, wait_s: float | None) -> HeldLock:
        until_s = self._until_s(wait_s)
        async with await self._acquire(self._gate(wait_s)) as gate:
            slot = await self._acquire(self._slot(until_s))
            try:
                gate.check_held()  # Else a writer may have found all slots free before this one was taken.
            except BaseException:
                await _let_go([slot])
                raise
        return slot

    async def _write(self, wait_s: float | None) -> HeldLock:
        until_s = self._until_s(wait_s)
        gate = await self._acquire(self._gate(wait_s))
        slots: list[HeldLock] = []
        try:
            while len(slots) < self._readers_max:
                slots.append(await self._acquire(self._slot(until_s)))
            for slot in slots:
                slot.check_held()
            gate.check_held()
        except BaseException:
            await _let_go([*slots, gate])
            raise
        await _let_go(slots)  # No reader can come in: the gate is closed.
        return gate

    def _gate(self, wait_s: float | None) -> WantedLock:
        return WantedLock(key=gate_of(self._key), ttl_s=self._ttl_s, wait_s=wait_s, owner=self._owner)

    def _slot(self, until_s: float | None) -> WantedLock:
        left_s = None if until_s is None else max(0.0, until_s - self._channel.monotonic_s())
        return WantedLock(
            key=readers_of(self._key),
            limit=self._readers_max,
            ttl_s=self._ttl_s,
            wait_s=left_s,
            owner=self._owner,
        )

    def _until_s(self, wait_s: float | None) -> float | None:
        return None if wait_s is None else self._channel.monotonic_s() + wait_s


async def _let_go(locks: list[HeldLock]) -> None:
    """What cannot be released ends with its lease."""
    for lock in locks:
        with suppress(ClientError):
            await lock.release()
