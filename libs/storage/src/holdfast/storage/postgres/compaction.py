"""Keeping the tables small: old history, old commit ids, listeners that are gone, blobs that nothing refers to."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from holdfast.common.clock import SteadyClock
from holdfast.storage.errors import StorageError, check_compactable
from holdfast.storage.options import StoreOptions
from holdfast.storage.postgres.connection import Connections
from holdfast.storage.postgres.tables import CHANGES, COMMITS, LISTENERS, STORE

COMMIT_IDS_AGE_S_MAX = 3600.0  # Far longer than any process asks after an outcome.
LISTENER_SILENT_S_MAX = 60.0  # As in `register_listener`.
REVISIONS_PER_DELETE = 5_000  # A short transaction each, so that nothing waits long for its locks.

_log = logging.getLogger(__name__)


class Compactor:
    """Drops what no reader may ask for any more. Several processes may do so at once."""

    def __init__(self, connections: Connections, clock: SteadyClock, options: StoreOptions) -> None:
        self._connections = connections
        self._clock = clock
        self._options = options

    async def compact(self, revision: int | None = None) -> int:
        """Up to `revision`, or what is beyond the bounds; the oldest revision that can be read then."""
        before, compacted_revision = await (
            self._advance() if revision is None else self._advance_to(revision)
        )
        for first in range(before, compacted_revision, REVISIONS_PER_DELETE):
            upto = min(first + REVISIONS_PER_DELETE, compacted_revision)
            async with self._connections.use_core() as connection:
                await connection.execute(sa.delete(CHANGES).where(CHANGES.c.revision <= upto))
        async with self._connections.use_core() as connection:
            await connection.execute(sa.delete(COMMITS).where(COMMITS.c.commit_id < self._oldest_commit_id()))
            # Ended without a goodbye: every commit would go on to notify them.
            await connection.execute(
                sa.delete(LISTENERS).where(LISTENERS.c.seen_at < self._ago(LISTENER_SILENT_S_MAX))
            )
        return compacted_revision

    async def _advance(self) -> tuple[int, int]:
        """Move the mark first: from then on no reader is served what is about to be deleted."""
        async with self._connections.use_core() as connection:
            revision, before = (
                await connection.execute(sa.select(STORE.c.revision, STORE.c.compacted_revision))
            ).one()
            aged_revision = await self._aged_revision(connection, before)
            compacted_revision = max(aged_revision, revision - self._options.history_revisions_max)
            if compacted_revision > before:
                await self._mark(connection, compacted_revision)
        return before, compacted_revision

    async def _advance_to(self, asked_revision: int) -> tuple[int, int]:
        async with self._connections.use_core() as connection:
            # The lock is for two that compact at once: the second one is told that it was done before.
            positions = sa.select(STORE.c.revision, STORE.c.compacted_revision).with_for_update(
                key_share=True
            )
            revision, before = (await connection.execute(positions)).one()
            check_compactable(asked_revision, newest=revision, compacted=before)
            await self._mark(connection, asked_revision)
        return before, asked_revision

    async def _mark(self, connection: AsyncConnection, compacted_revision: int) -> None:
        newest = (
            sa.select(CHANGES.c.at)
            .order_by(CHANGES.c.revision.desc(), CHANGES.c.seq.desc())
            .limit(1)
            .scalar_subquery()
        )
        await connection.execute(
            sa.update(STORE)
            .where(STORE.c.compacted_revision < compacted_revision)
            .values(
                compacted_revision=compacted_revision,
                # The time of the newest commit may go with the history; the store's must not go back to before it.
                clock_at=sa.func.greatest(STORE.c.clock_at, newest),
            )
        )

    async def _aged_revision(self, connection: AsyncConnection, before: int) -> int:
        """The newest revision that is known to be too old. One without a change has no row, so no age of its own."""
        kept = sa.select(CHANGES.c.revision).where(CHANGES.c.revision > before)
        since = self._ago(self._options.history_age_s_max)
        # From the old end on: this walks only over what is about to be deleted.
        young = kept.where(CHANGES.c.at > since)
        first_young = await connection.scalar(young.order_by(CHANGES.c.revision).limit(1))
        # The age is asked for again: a commit may have come between the two statements.
        aged = kept.where(CHANGES.c.at <= since)
        if first_young is not None:
            aged = aged.where(CHANGES.c.revision < first_young)
        last_aged = await connection.scalar(aged.order_by(CHANGES.c.revision.desc()).limit(1))
        return before if last_aged is None else last_aged

    def _ago(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(self._clock.now_s(), UTC) - timedelta(seconds=seconds)

    def _oldest_commit_id(self) -> uuid.UUID:
        """Commit ids are UUIDv7: 48 bits of milliseconds lead, in the time of the store as well."""
        return uuid.UUID(int=(self._clock.now_ms() - int(COMMIT_IDS_AGE_S_MAX * 1000)) << 80)


async def repeat(action: Callable[[], Awaitable[object]], *, interval_s: float, name: str) -> None:
    """Run `action` every `interval_s`; the first failure in a row is logged, and the next turn tries again."""
    is_failing = False
    while True:
        await asyncio.sleep(interval_s)
        try:
            await action()
        except StorageError as error:
            if not is_failing:
                _log.warning("%s failed, will try again every %g s: %s", name, interval_s, error.detail)
            is_failing = True
        else:
            is_failing = False
