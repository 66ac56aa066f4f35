"""Runs operations that write, each as one revision.

Every operation reads and writes the revision of the key space. On a local store the next one sees what the one before has staged.
On a shared one it would conflict with it, so what comes in while a commit is on its way is run together in the next: as many
revisions, and one round trip.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar

from holdfast.common.background import background
from holdfast.state.layer.kv.errors import KvError, KvRequestTooLarge
from holdfast.state.layer.kv.records import PROGRESS, key_of
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.storage.errors import InvalidBatch
from holdfast.storage.port import Store, Transaction

T = TypeVar("T")
Run = Callable[[SpaceChange], T]

TOGETHER_MAX: Final = 128


class Extension(Protocol):
    """Rules over some of the keys, run in the very commit that changes one."""

    def complete(self, change: SpaceChange) -> Run[None] | None:
        """Called before a revision is finished: refuse it, or add to it. What is returned makes the next revision."""
        ...


class KvWriter:
    """`keys` of an operation are those that it is likely to read: a remote store fetches them at once."""

    def __init__(self, store: Store, extension: Extension | None = None) -> None:
        self._store = store
        self._extension = extension
        self._queue: deque[Waiting] = deque()
        self._arrived = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if not self._store.is_shared:
            yield
            return
        async with background(self._commit_queued(), name="kv.writer"):
            yield

    async def run(self, run: Run[T], *keys: bytes) -> T:
        if self._store.is_shared:
            waiting = Waiting(run, keys)
            self._queue.append(waiting)
            self._arrived.set()
            done: T = await waiting.outcome
            return done
        return await self._alone(run)

    async def _alone(self, run: Run[T]) -> T:
        try:
            return await self._store.transact(lambda tx: run_one(tx, run, self._extension))
        except InvalidBatch as error:
            raise KvRequestTooLarge(f"{KvRequestTooLarge.text}: {error.detail}") from error

    async def _commit_queued(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                together = [self._queue.popleft() for _ in range(min(TOGETHER_MAX, len(self._queue)))]
                await self._commit([one for one in together if not one.outcome.cancelled()])

    async def _commit(self, together: "list[Waiting]") -> None:
        try:
            outcomes = await self._store.transact(lambda tx: run_all(tx, together, self._extension))
        except InvalidBatch as error:
            if len(together) > 1:
                for one in together:
                    await self._commit([one])
                return
            outcomes = [KvRequestTooLarge(f"{KvRequestTooLarge.text}: {error.detail}")]
        except Exception as error:  # noqa: BLE001 - every caller is told, and the next ones are served
            outcomes = [error] * len(together)
        for one, outcome in zip(together, outcomes, strict=True):
            one.tell(outcome)


class Waiting:
    """An operation whose caller waits for the next commit."""

    __slots__ = ("keys", "outcome", "run")

    def __init__(self, run: Run[Any], keys: tuple[bytes, ...]) -> None:
        self.run = run
        self.keys = keys
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def tell(self, outcome: object) -> None:
        if self.outcome.done():
            return
        if isinstance(outcome, Exception):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)


def run_one(tx: Transaction, run: Run[T], extension: Extension | None) -> T:
    change = SpaceChange(tx)
    result = run(change)
    if not change.events:
        return result
    after = None if extension is None else extension.complete(change)
    change.finish()
    if after is not None:
        following = SpaceChange(tx)
        after(following)
        following.finish()
    return result


def run_all(tx: Transaction, together: "list[Waiting]", extension: Extension | None) -> list[object]:
    """Each of them, in their order, as a revision of its own; what is refused leaves no trace."""
    tx.prefetch(lambda: [PROGRESS, *(key_of(key) for one in together for key in one.keys)])
    outcomes: list[object] = []
    for one in together:
        try:
            outcomes.append(run_one(tx, one.run, extension))
        except KvError as error:
            outcomes.append(error)
    return outcomes
