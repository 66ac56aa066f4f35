"""Group commit: while one group is on its way to the database, the next one gathers.

SEND --answer--> DONE
SEND --connection lost--> SEND again, same commit id: the database answers what it answered before, if it did
SEND --refused, and never lost before--> failed, nothing happened
… until the time for that is over --> OutcomeUnknown
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

from holdfast.common import failpoint
from holdfast.common.backoff import Backoff
from holdfast.common.clock import SteadyClock
from holdfast.common.ids import uuid7_at
from holdfast.storage.errors import (
    BlobNotFound,
    Conflict,
    OutcomeUnknown,
    StorageError,
    StoreClosed,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.storage.hosting.trouble import WriteTrouble
from holdfast.storage.port import Batch
from holdfast.storage.postgres.connection import Lane, Row
from holdfast.storage.postgres.fault import FOREIGN_ERRORS, is_connection_lost, is_worth_retry, translate
from holdfast.storage.postgres.plan import GroupPlan

_log = logging.getLogger(__name__)

PENDING_BATCHES_MAX = 100_000
REFUSED = -1  # In the place of a revision.
_SEND_RETRY_S = 5.0  # For a group that was never sent, so that its outcome is certain.


class Committed(NamedTuple):
    batch: Batch
    revision: int


class _Pending(NamedTuple):
    batch: Batch
    answer: asyncio.Future[int]


class GroupCommitter:
    """Owns the writing lane. `on_commit` hears the newest revision, and each batch of the group that was committed with its
    own, before any caller gets its answer."""

    def __init__(
        self,
        lane: Lane,
        *,
        listener_id: uuid.UUID,
        clock: SteadyClock,
        batches_max: int,
        outcome_timeout_s: float,
        on_commit: Callable[[int, Sequence[Committed]], None],
        trouble: WriteTrouble,
    ) -> None:
        self._trouble = trouble
        self._lane = lane
        self._listener_id = listener_id
        self._clock = clock
        self._batches_max = batches_max
        self._outcome_timeout_s = outcome_timeout_s
        self._on_commit = on_commit
        self._pending: deque[_Pending] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._is_closed = False
        self.groups = 0
        self.commits = 0
        self.conflicts = 0

    async def commit(self, batch: Batch) -> int:
        if self._is_closed:
            raise StoreClosed("the store is closed")
        if len(self._pending) >= PENDING_BATCHES_MAX:
            raise StoreUnavailable("too many commits wait for PostgreSQL", retry_after_s=1.0)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(batch, answer))
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name="postgres.commit")
        return await answer

    async def close(self) -> None:
        """Take no more, finish what was taken."""
        self._is_closed = True
        if self._runner is not None:
            await self._runner
        await self._lane.close()

    async def _run(self) -> None:
        group: list[_Pending] = []
        try:
            while self._pending:
                plan, group = self._gather()
                if group:
                    await self._commit(plan, group)
        finally:
            self._runner = None
            # A waiter is left only if this task was cancelled from outside, or has a bug: then none may hang.
            for waiting in (*group, *self._pending):
                waiting.answer.cancel()
            self._pending.clear()

    def _gather(self) -> tuple[GroupPlan, list[_Pending]]:
        plan, group = GroupPlan(), list[_Pending]()
        while self._pending and len(group) < self._batches_max:
            waiting = self._pending[0]
            if not waiting.answer.done():  # Else its caller has gone, and nothing was sent yet.
                if not plan.add(waiting.batch):
                    break
                group.append(waiting)
            self._pending.popleft()
        return plan, group

    async def _commit(self, plan: GroupPlan, group: list[_Pending]) -> None:
        try:
            row = await self._send(plan)
        except StorageError as error:
            if isinstance(error, StoreFull | StoreReadOnly):
                self._trouble.began(error)
            for waiting in group:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error.copy_for_caller())
            return
        revision, revisions, conflicts, missing_blobs = row
        if self._trouble.error is not None:
            self._trouble.end()
        answered = zip(group, revisions, strict=True)
        self._on_commit(revision, [Committed(one.batch, at) for one, at in answered if at != REFUSED])
        self.groups += 1
        for place, waiting in enumerate(group):
            if waiting.answer.done():
                continue
            if revisions[place] != REFUSED:
                self.commits += 1
                waiting.answer.set_result(revisions[place])
            else:
                self.conflicts += 1
                waiting.answer.set_exception(_refusal(place, conflicts, missing_blobs))

    async def _send(self, plan: GroupPlan) -> Row:
        at_ms = self._clock.now_ms()
        commit_id = uuid.UUID(uuid7_at(at_ms))
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        arguments = (self._listener_id, at, *plan.arguments())
        query = _commit_group_query(2 + len(arguments))
        may_have_happened = False
        backoff = Backoff(_SEND_RETRY_S)
        while True:
            was_lost = may_have_happened
            try:
                connection = await self._lane.raw()
                may_have_happened = True
                row = await connection.fetchrow(query, commit_id, was_lost, *arguments)
                if failpoint.ARMED:
                    failpoint.hit("postgres.answer")
            except FOREIGN_ERRORS as error:
                problem = translate(error)
                if is_connection_lost(error):
                    await self._lane.drop()
                    _log.warning("PostgreSQL went away during a commit; asking again how %s ended", commit_id)
                    if not was_lost:
                        backoff = Backoff(self._outcome_timeout_s)
                else:
                    may_have_happened = was_lost
            except StorageError as error:
                problem = error
            else:
                assert row is not None
                return row
            if not may_have_happened and not is_worth_retry(problem):
                raise problem
            if backoff.is_over:
                raise _unknown(problem) if may_have_happened else problem
            await backoff.pause()


@cache
def _commit_group_query(argument_count: int) -> str:
    places = ", ".join(f"${n}" for n in range(1, argument_count + 1))
    return f"SELECT revision, revisions, conflicts, missing_blobs FROM commit_group({places})"


def _refusal(
    place: int, conflicts: list[bytes | None] | None, missing_blobs: list[str | None] | None
) -> StorageError:
    """Why one batch failed alone."""
    if conflicts is not None and (key := conflicts[place]) is not None:
        return Conflict(key)
    blob_id = missing_blobs[place] if missing_blobs is not None else None
    return BlobNotFound(f"blob {blob_id} was never finished, or was swept; write it again")


def _unknown(problem: StorageError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"PostgreSQL went away during a commit and did not come back in time: {problem.detail}; "
        "read the keys to see whether it happened",
        retry_after_s=5.0,
    )
