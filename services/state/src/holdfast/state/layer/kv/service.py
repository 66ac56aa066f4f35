"""The key space of one store: what clients of the etcd API do with it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.state.layer.kv import rules, txn
from holdfast.state.layer.kv.compaction import forget_log
from holdfast.state.layer.kv.errors import KeyMissing, RevisionCompacted
from holdfast.state.layer.kv.large_range import read_large
from holdfast.state.layer.kv.lessor import KvLeases
from holdfast.state.layer.kv.operation import (
    DeleteRangeRequest,
    DeleteRangeResult,
    PutRequest,
    PutResult,
    RangeRequest,
    RangeResult,
    TxnRequest,
    TxnResult,
    WatchRequest,
)
from holdfast.state.layer.kv.records import PROGRESS, MoreThanAPage, read_progress
from holdfast.state.layer.kv.space import Space, SpaceChange
from holdfast.state.layer.kv.watch import KvHub, KvWatch
from holdfast.state.layer.kv.writer import Extension, KvWriter
from holdfast.storage.errors import TransactionContended
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.port import Store, View

REVISIONS_KEPT: Final = 10_000
COMPACT_EVERY: Final = 1_000
"""Revisions beyond those that are kept, after which they are compacted."""
VIEW_ATTEMPTS_MAX: Final = 4
"""Of a read that needs more than one round trip; what does not lose to writers is slower."""

_log = get_logger("state.kv")


class KnownProgress:
    """The revision of the key space in memory, until a commit changes it; see `Store.keep_current`."""

    kept: Container[bytes] = frozenset((PROGRESS,))

    def __init__(self) -> None:
        self.is_kept = True
        self.revision = 0
        self.last_revision = 0

    def read(self, view: View) -> int:
        revision = self.last_revision = read_progress(view).revision
        if self.is_kept:
            self.revision = revision
        return revision

    def forget(self, keys: Iterable[bytes]) -> None:
        self.revision = 0

    def forget_all(self) -> None:
        self.revision = 0


class KvService:
    """One for each process that serves the API; several may share a store."""

    def __init__(self, store: Store, clock: SteadyClock, extension: Extension | None = None) -> None:
        self._store = store
        self._writer = KvWriter(store, extension)
        self._hub = KvHub(store)
        self.leases = KvLeases(store, clock, self._revise)
        self._progress = KnownProgress()
        if not store.keep_current(self._progress):
            self._progress.is_kept = False
        self._compaction: asyncio.Task[None] | None = None
        self._compacted = 0

    @property
    def watchers(self) -> int:
        return len(self._hub)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End leases and compact the history for the length of the block."""
        progress = await self._store.view(read_progress)
        self._compacted = progress.compacted
        async with self._writer.running(), self.leases.running():
            if progress.forgotten < progress.compacted:  # A process ended while it did that.
                self._begin(partial(self._forget, progress.compacted))
            try:
                yield
            finally:
                await self._hub.close()
                if self._compaction is not None:
                    self._compaction.cancel()
                    await asyncio.gather(self._compaction, return_exceptions=True)

    @property
    def known_revision(self) -> int:
        """That of now, if it is at hand; else zero."""
        return self._progress.revision

    @property
    def last_revision(self) -> int:
        """The newest that this process has seen."""
        return self._progress.last_revision

    async def revision(self) -> int:
        return await self._store.view(self._progress.read)

    async def put(self, request: PutRequest, *, is_new: bool = False, is_early: bool = False) -> PutResult:
        """With `is_new` the key cannot be there, with `is_early` it is answered before it is durable."""
        rules.check_put(request)
        run = self._writer.run_early if is_early else self._writer.run
        keys = () if is_new else (request.key,)
        result = await run(lambda change: rules.put(change, request, is_new=is_new), *keys)
        self._revised(result.revision)
        return result

    async def range(
        self, request: RangeRequest, *, on_read: Callable[[RangeResult], None] | None = None
    ) -> RangeResult:
        """`on_read` is called while nothing changes, with what may be kept until the store says that it has changed."""
        key = request.key
        if not key:
            raise KeyMissing
        keys = () if request.range_end else (key,)

        def look(view: View) -> RangeResult:
            result = rules.range_of(Space(view, *keys, is_one_page=True), request)
            if on_read is not None:
                on_read(result)
            return result

        try:
            return await self._store.view(look, attempts_max=VIEW_ATTEMPTS_MAX)
        except (MoreThanAPage, TransactionContended):
            return await read_large(self._store, request)

    async def delete_range(self, request: DeleteRangeRequest) -> DeleteRangeResult:
        if not request.key:
            raise KeyMissing
        keys = () if request.range_end else (request.key,)
        result = await self._writer.run(lambda change: rules.delete_range(change, request), *keys)
        self._revised(result.revision)
        return result

    async def txn(self, request: TxnRequest) -> TxnResult:
        txn.check_txn(request)
        keys = txn.single_keys(request)
        if not txn.writes(request):
            return await self._read(request, keys)
        result = await self._writer.run(lambda change: txn.run(change, request), *keys)
        self._revised(result.revision)
        return result

    async def watch(self, request: WatchRequest) -> KvWatch:
        """Registered when this returns; the caller closes it."""
        return await self._hub.watch(request)

    async def compact(self, revision: int, *, physical: bool = False) -> int:
        """From now on nothing before this revision is read; with `physical`, it is gone when this returns."""
        current = await self._writer.run(lambda change: rules.compact(change.tx, revision))
        self._compacted = max(self._compacted, revision)
        if physical:
            await self._forget(revision)
        elif self._compaction is None:
            self._begin(partial(self._forget, revision))
        return current

    async def run_with(self, extension: Extension, run: Callable[[SpaceChange], None]) -> None:
        """Run a rule of somebody else's over the key space, with these rules in place of those for what clients do."""
        await self._writer.run_with(extension, run)

    async def _read(self, request: TxnRequest, keys: list[bytes]) -> TxnResult:
        try:
            return await self._store.view(
                lambda view: txn.read(Space(view, *keys), request), attempts_max=VIEW_ATTEMPTS_MAX
            )
        except TransactionContended:  # It needs more than one round trip, and others wrote in between.
            return await self._writer.run(lambda change: txn.read(change, request), *keys)

    async def _revise(self, run: Callable[[SpaceChange], bool]) -> tuple[bool, int]:

        def revise(change: SpaceChange) -> tuple[bool, int]:
            return run(change), change.revision

        result = await self._writer.run(revise)
        self._revised(result[1])
        return result

    # -- inside

    def _revised(self, revision: int) -> None:
        """The history is kept for that many revisions, whoever needs it."""
        self._progress.last_revision = max(self._progress.last_revision, revision)
        if revision - self._compacted >= REVISIONS_KEPT + COMPACT_EVERY and self._compaction is None:
            self._compacted = revision - REVISIONS_KEPT
            self._begin(partial(self._compact, self._compacted))

    def _begin(self, work: Callable[[], Awaitable[None]]) -> None:
        self._compaction = asyncio.ensure_future(self._logged(work))

    async def _logged(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except RevisionCompacted:
            return  # Another process was first.
        except HoldfastError as error:
            warn_unless_told(_log, "kv.compaction.failed", error)
        finally:
            self._compaction = None

    async def _compact(self, revision: int) -> None:
        await self._writer.run(lambda change: rules.compact(change.tx, revision))
        await self._forget(revision)

    async def _forget(self, revision: int) -> None:
        await forget_log(self._store, self._writer, revision)
