"""Group fetch: the keys that transactions miss are read by few statements; while some are on their way, the next one gathers.

Each caller's keys are read by one statement, so what it gets is of one moment.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, cast

from holdfast.storage.errors import StorageError, StoreClosed, StoreUnavailable
from holdfast.storage.port import Record
from holdfast.storage.postgres.connection import Row

STATEMENTS_MAX = 2  # At once: one that hangs, or that is large, does not hold up all others.
STATEMENT_KEYS_MAX = 1000
PENDING_FETCHES_MAX = 100_000

# Also if none of them exists: what is not there is known as of a revision, too.
_GET_MANY_AT = (
    "SELECT s.revision, r.key, r.value, r.create_revision, r.mod_revision, r.version "
    "FROM store s LEFT JOIN records r ON r.key = ANY ($1::bytea[])"
)


class FetchedRecords(NamedTuple):
    """What the database had of some keys (None: nothing) as of a revision."""

    records: dict[bytes, Record | None]
    revision: int


class _PendingFetch(NamedTuple):
    keys: Sequence[bytes]
    answer: asyncio.Future[FetchedRecords]


class GroupFetcher:
    """Used until `close`. `rows` runs a statement on a connection of its own, with the retries of a read."""

    def __init__(self, rows: Callable[[str, list[bytes]], Awaitable[list[Row]]]) -> None:
        self._rows = rows
        self._pending: deque[_PendingFetch] = deque()
        self._runners: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def fetch(self, keys: Sequence[bytes]) -> FetchedRecords:
        if self._is_closed:
            raise StoreClosed("the store is closed")
        if len(self._pending) >= PENDING_FETCHES_MAX:
            raise StoreUnavailable("too many reads wait for PostgreSQL", retry_after_s=1.0)
        answer: asyncio.Future[FetchedRecords] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingFetch(keys, answer))
        if len(self._runners) < STATEMENTS_MAX:
            self._runners.add(asyncio.create_task(self._run(), name="postgres.fetch"))
        return await answer

    async def close(self) -> None:
        """Callers that still wait are cancelled."""
        self._is_closed = True
        for runner in self._runners:
            runner.cancel()
        await asyncio.gather(*self._runners, return_exceptions=True)

    async def _run(self) -> None:
        group: list[_PendingFetch] = []
        try:
            while group := self._gather():
                await self._answer(group)
        finally:
            # Here, not when the task is done: what is asked for in between would never be read.
            self._runners.discard(cast("asyncio.Task[None]", asyncio.current_task()))
            # Something is left only if this task was cancelled from outside, or has a bug: then none may hang.
            for waiting in (*group, *(() if self._runners else self._pending)):
                waiting.answer.cancel()

    def _gather(self) -> list[_PendingFetch]:
        group: list[_PendingFetch] = []
        count = 0
        while self._pending and (not group or count + len(self._pending[0].keys) <= STATEMENT_KEYS_MAX):
            waiting = self._pending.popleft()
            if not waiting.answer.done():  # Else its caller has gone.
                group.append(waiting)
                count += len(waiting.keys)
        return group

    async def _answer(self, group: list[_PendingFetch]) -> None:
        keys = dict.fromkeys(key for waiting in group for key in waiting.keys)
        try:
            rows = await self._rows(_GET_MANY_AT, list(keys))
        except StorageError as error:
            for waiting in group:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error.copy_for_caller())
            return
        revision = rows[0][0]
        found = {row[1]: Record(*row[1:]) for row in rows if row[1] is not None}
        for waiting in group:
            if not waiting.answer.done():
                records = {key: found.get(key) for key in waiting.keys}
                waiting.answer.set_result(FetchedRecords(records, revision))
