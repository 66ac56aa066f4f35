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
from holdfast.common.backoff import Backoff
from holdfast.common.logging import get_logger
from holdfast.state.layer.kv.errors import KvError, KvRequestTooLarge
from holdfast.state.layer.kv.records import PROGRESS, key_of
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.storage.errors import InvalidBatch, StoreClosed, TransactionContended
from holdfast.storage.port import Store, Transaction

T = TypeVar("T")
Run = Callable[[SpaceChange], T]

TOGETHER_MAX: Final = 128
CONTENDED_S_MAX: Final = 5.0

_log = get_logger("state.kv.writer")


class Extension(Protocol):
    """Rules over some of the keys, run in the very commit that changes one."""

    def complete(self, change: SpaceChange) -> Run[None] | None:
        """Called before a revision is finished: refuse it, or add to it. What is returned makes the next revision."""
        ...


class KvWriter:
    """`keys` of an operation are those that it is likely to read: a remote store fetches them at once."""

    def __init__(self, store: Store, extension: Extension | None = None) -> None:
        self._store = store
        self._is_shared = store.is_shared
        self._extension = extension
        self._queue: deque[Waiting] = deque()
        self._arrived = asyncio.Event()
        self._commits: set[asyncio.Future[Any]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if not self._is_shared:
            yield
            return
        try:
            async with background(self._commit_queued(), name="kv.writer"):
                yield
        finally:
            for one in self._queue:
                one.tell(StoreClosed("the process stops; send it to another one"))

    async def run(self, run: Run[T], *keys: bytes) -> T:
        if not self._is_shared:
            return await self._alone(run, self._extension)
        return await self._run(run, keys, self._extension)

    async def run_with(self, extension: Extension, run: Run[T]) -> T:
        """With these rules in place of those for what clients do."""
        return await self._run(run, (), extension)

    async def _run(self, run: Run[T], keys: tuple[bytes, ...], extension: Extension | None) -> T:
        if not self._is_shared:
            return await self._alone(run, extension)
        waiting = Waiting(
            run, tuple(map(key_of, keys)), extension
        )  # One that is too long is refused here, alone.
        self._queue.append(waiting)
        self._arrived.set()
        done: T = await waiting.outcome
        return done

    async def run_early(self, run: Run[T], *keys: bytes) -> T:
        """Return when what it does is handed to the log, before it is durable. In a shared store it is durable then, too: only
        the database knows whether it happened."""
        if self._is_shared:
            return await self.run(run, *keys)
        done: list[T] = []

        def noted(change: SpaceChange) -> T:
            result = run(change)
            done[:] = [result]
            return result

        commit = asyncio.ensure_future(self._alone(noted, self._extension))
        self._commits.add(commit)
        commit.add_done_callback(self._committed)
        # A local store runs it in the first step and stages it then, or in the second one if others are told of the commit.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if commit.done() or not done:
            return await asyncio.shield(commit)
        return done[0]

    def _committed(self, commit: asyncio.Future[Any]) -> None:
        self._commits.discard(commit)
        if not commit.cancelled() and (error := commit.exception()) is not None:
            _log.debug("kv.commit.failed", error=error)

    async def _alone(self, run: Run[T], extension: Extension | None) -> T:
        try:
            return await self._store.transact(lambda tx: run_one(tx, run, extension))
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
        if not together:
            return
        try:
            outcomes = await self._transact(together)
        except RefusedLate as refused:
            refused.waiting.tell(refused.error)
            await self._commit([one for one in together if one is not refused.waiting])
            return
        except InvalidBatch as error:
            if len(together) > 1:
                for one in together:
                    await self._commit([one])
                return
            outcomes = [KvRequestTooLarge(f"{KvRequestTooLarge.text}: {error.detail}")]
        except asyncio.CancelledError:
            for one in together:
                one.tell(StoreClosed("the process stops; the operation may have happened, or not"))
            raise
        except Exception as error:  # noqa: BLE001 - every caller is told, and the next ones are served
            outcomes = [error] * len(together)
        for one, outcome in zip(together, outcomes, strict=True):
            one.tell(outcome)

    async def _transact(self, together: "list[Waiting]") -> list[object]:
        """Other processes commit, too: what loses to them is tried again for some time."""
        backoff = Backoff(CONTENDED_S_MAX)
        while True:
            try:
                return await self._store.transact(lambda tx: run_all(tx, together))
            except TransactionContended:
                if backoff.is_over:
                    raise
            await backoff.pause()


class Waiting:
    """An operation whose caller waits for the next commit; `keys` are those of records."""

    __slots__ = ("extension", "keys", "outcome", "run")

    def __init__(self, run: Run[Any], keys: tuple[bytes, ...], extension: Extension | None) -> None:
        self.run = run
        self.keys = keys
        self.extension = extension
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def tell(self, outcome: object) -> None:
        if self.outcome.done():
            return
        if isinstance(outcome, Exception):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)


class RefusedLate(Exception):
    """Rules of an extension refused an operation after something was written for it: nothing of the attempt may be committed."""

    def __init__(self, waiting: Waiting, error: KvError) -> None:
        super().__init__(error.detail)
        self.waiting = waiting
        self.error = error


def run_one(tx: Transaction, run: Run[T], extension: Extension | None) -> T:
    change = SpaceChange(tx)
    result = run(change)
    complete(tx, change, extension)
    return result


def complete(tx: Transaction, change: SpaceChange, extension: Extension | None) -> None:
    """Let the extension have its say, and write the revision and the one that follows from it."""
    if not change.events:
        return
    after = None if extension is None else extension.complete(change)
    change.finish()
    if after is not None:
        following = SpaceChange(tx)
        after(following)
        following.finish()


def run_all(tx: Transaction, together: "list[Waiting]") -> list[object]:
    """Each of them, in their order, as a revision of its own; what is refused leaves no trace."""
    tx.prefetch(lambda: [PROGRESS, *(key for one in together for key in one.keys)])
    outcomes: list[object] = []
    for one in together:
        change = SpaceChange(tx)
        try:
            outcomes.append(one.run(change))
        except KvError as error:
            outcomes.append(error)
            continue
        try:
            complete(tx, change, one.extension)
        except KvError as error:
            raise RefusedLate(one, error) from error
    return outcomes
