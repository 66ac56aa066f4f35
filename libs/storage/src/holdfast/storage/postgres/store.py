"""The store on PostgreSQL: wiring of reads, group commits, watches, blobs and the tasks behind them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from holdfast.common.background import background
from holdfast.common.clock import SystemClock
from holdfast.storage.errors import InvalidBatch, StoreReadOnly
from holdfast.storage.fetched import Fetched, Missing
from holdfast.storage.hosting.trouble import WriteTrouble
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import EMPTY, Batch, Demand, Derived, HistoryPage, Record, Snapshot, SnapshotRecord
from holdfast.storage.postgres.blob import PostgresBlobs
from holdfast.storage.postgres.clock import keep_following, open_clock
from holdfast.storage.postgres.compaction import Compactor, repeat
from holdfast.storage.postgres.connection import Connections, Row
from holdfast.storage.postgres.fault import READ_RETRY_S, read_only, retried, translate
from holdfast.storage.postgres.feed.cache import RecordCache
from holdfast.storage.postgres.feed.follower import Follower
from holdfast.storage.postgres.feed.listener import Listener
from holdfast.storage.postgres.feed.redis_hints import RedisHints, open_redis_hints
from holdfast.storage.postgres.group import Committed, GroupCommitter
from holdfast.storage.postgres.group_fetch import GroupFetcher
from holdfast.storage.postgres.migration import OPEN_RETRY_S, migrate
from holdfast.storage.postgres.missing import fetch_parts
from holdfast.storage.postgres.past import PostgresPast
from holdfast.storage.postgres.snapshot import restore, take_snapshot
from holdfast.storage.postgres.url import parse_url
from holdfast.storage.store_clock import StoreClock
from holdfast.storage.transact import TransactMixin, check_batch, check_range_limit
from holdfast.storage.watch import HubWatch

CACHE_POLLS_MISSED_MAX = 3  # A feed that is silent for longer may have stopped: the cache is not read then.
CHECK_TIMEOUT_S = 2.0
FULL_SHOWN_S = 10.0  # How long a failed write makes the store unready; then others may try again.
_IS_READ_ONLY = "SELECT current_setting('transaction_read_only')::bool"
_INT64_MAX = (1 << 63) - 1
_COLUMNS = "key, value, create_revision, mod_revision, version"
_KEY_COLUMNS = "key, ''::bytea, create_revision, mod_revision, version"
_GET = f"SELECT {_COLUMNS} FROM records WHERE key = $1"
_GET_MANY = f"SELECT {_COLUMNS} FROM records WHERE key = ANY ($1::bytea[])"


def _range_query(*, has_end: bool, reverse: bool, keys_only: bool = False) -> str:
    return (
        f"SELECT {_KEY_COLUMNS if keys_only else _COLUMNS} FROM records "
        f"WHERE key >= $1 {'AND key < $3' if has_end else ''} ORDER BY key {'DESC' if reverse else ''} LIMIT $2"
    )


class PostgresStore(TransactMixin):
    """The `Store` of the port."""

    def __init__(
        self,
        url: str,
        connections: Connections,
        committer: GroupCommitter,
        follower: Follower,
        cache: RecordCache,
        clock: StoreClock,
        options: StoreOptions,
        *,
        trouble: WriteTrouble,
        redis_hints: RedisHints | None = None,
    ) -> None:
        self._url = url
        self._trouble = trouble
        self._connections = connections
        self._committer = committer
        self._follower = follower
        self._cache = cache
        self._redis_hints = redis_hints
        self._clock = clock
        self._compactor = Compactor(connections, clock, options)
        self._fetcher = GroupFetcher(self._rows)
        self._past = PostgresPast(self._rows, follower.compacted)
        self._blobs = PostgresBlobs(connections, clock)
        self._is_sealed = options.keyring is not None

    # -- what it is

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def blobs(self) -> PostgresBlobs:
        return self._blobs

    @property
    def clock(self) -> StoreClock:
        return self._clock

    @property
    def revision(self) -> int:
        return self._follower.revision

    @property
    def compacted_revision(self) -> int:
        return self._follower.compacted_revision

    @property
    def problem(self) -> str | None:
        return self._connections.problem

    def figures(self) -> dict[str, float]:
        committer = self._committer
        return {
            "revision": self.revision,
            "commits": committer.commits,
            "conflicts": committer.conflicts,
            "syncs": committer.groups,  # Each is one database transaction.
            "watches": self._follower.watches,
            **self._cache.figures(),
            **self._blobs.removals.figures(),
            **({} if self._redis_hints is None else self._redis_hints.figures()),
        }

    def keep_current(self, derived: Derived) -> bool:
        return False

    async def check(self) -> None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S), self._connections.use() as connection:
                is_read_only = await connection.fetchval(_IS_READ_ONLY)
        except TimeoutError as error:
            raise translate(error) from error
        self._connections.reached()
        if is_read_only:
            self._trouble.began(read_only())
            raise read_only()
        self._check_trouble()

    def _check_trouble(self) -> None:
        """A database that says it may write is believed about that, and about a full disk only after a while."""
        error = self._trouble.error
        if isinstance(error, StoreReadOnly):
            self._trouble.end()
        elif error is not None and self._trouble.failed_s_ago() < FULL_SHOWN_S:
            raise error

    # -- reads: one statement each, so each is as of one revision

    async def get(self, key: bytes, *, at_revision: int | None = None) -> Record | None:
        if at_revision is not None:
            return await self._past.get(key, at_revision)
        rows = await self._rows(_GET, key)
        return Record(*rows[0]) if rows else None

    async def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        return {row[0]: Record(*row) for row in await self._rows(_GET_MANY, list(keys))}

    async def range(
        self,
        start: bytes,
        end: bytes | None,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        at_revision: int | None = None,
    ) -> list[Record]:
        check_range_limit(limit)
        if at_revision is not None:
            return await self._past.range(
                start, end, limit=limit, reverse=reverse, keys_only=keys_only, at_revision=at_revision
            )
        query = _range_query(has_end=end is not None, reverse=reverse, keys_only=keys_only)
        bounds = (start, limit) if end is None else (start, limit, end)
        return [Record(*row) for row in await self._rows(query, *bounds)]

    # -- reads of a transaction: what is cached, and what was fetched for it

    def _begin(self) -> Fetched:
        return Fetched(self._cache)

    async def _fetch(self, missing: Missing, fetched: Fetched) -> None:
        if not missing.ranges:
            records, revision = await self._fetcher.fetch(missing.keys)
            fetched.take(records)
            if fetched.is_kept:
                self._cache.fetched(records, revision)
            return
        parts = await fetch_parts(missing, self._rows)
        fetched.take(parts.records, parts.ranges, parts.revision)
        if fetched.is_kept:
            self._cache.fetched(parts.records, parts.revision)
            for read, found in parts.ranges.items():
                if read.is_expected and len(found) < read.limit:
                    self._cache.fetched_range(read.start, read.end, found, parts.revision)

    async def close_fetches(self) -> None:
        """No transaction reads any more."""
        await self._fetcher.close()

    async def _rows(self, query: str, *args: object) -> list[Row]:
        async def attempt() -> list[Row]:
            async with self._connections.use() as connection:
                return await connection.fetch(query, *args)

        return await retried(attempt, for_s=READ_RETRY_S)

    # -- writes

    async def commit(self, batch: Batch) -> int:
        check_batch(batch, is_sealed=self._is_sealed)
        _check_revisions(batch)
        return await self._committer.commit(batch)

    async def compact(self, revision: int | None = None) -> int:
        compacted_revision = await self._compactor.compact(revision)
        self._follower.compacted(compacted_revision)
        return compacted_revision

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        return take_snapshot(self._connections)

    async def restore(self, revision: int, pages: AsyncIterable[Sequence[SnapshotRecord]]) -> None:
        await restore(self._connections, revision, pages)
        self._follower.restored(revision)
        self._follower.compacted(revision)

    # -- watches

    def watch(
        self,
        start: bytes,
        end: bytes | None,
        *,
        after: int | None = None,
        with_previous: bool = False,
        demand: Demand | None = None,
        foreign_only: bool = False,
    ) -> HubWatch:
        return self._follower.watch(
            start, end, after, with_previous=with_previous, demand=demand, foreign_only=foreign_only
        )

    async def history(self, start: bytes, end: bytes | None, *, after: int) -> HistoryPage:
        return await self._follower.past(start, end, after)


@asynccontextmanager
async def open_postgres(url: str, options: StoreOptions) -> AsyncGenerator[PostgresStore, None]:
    """The store at `postgres://user:password@host/database?schema=holdfast`, its schema brought up to date."""
    parsed = parse_url(url)
    async with AsyncExitStack() as stack:
        connections = Connections(parsed, connections_max=options.postgres_pool_max)
        stack.push_async_callback(connections.close)
        await retried(lambda: migrate(connections, parsed.schema), for_s=OPEN_RETRY_S)
        async with connections.use() as connection:
            row = await connection.fetchrow("SELECT id, revision, compacted_revision FROM store")
        assert row is not None, "the migration wrote it"
        store_id, revision, compacted_revision = row

        cache = RecordCache(
            size_bytes_max=options.postgres_cache_bytes_max,
            revision=revision,
            lag_s_max=CACHE_POLLS_MISSED_MAX * options.postgres_poll_interval_s,
        )
        follower = Follower(
            connections, cache, options, revision=revision, compacted_revision=compacted_revision
        )
        stack.callback(follower.close)
        clock, following = await _open_clock(connections, options, parsed.shown)
        listener = Listener(
            connections.lane(),
            parsed.schema,
            clock,
            on_notice=follower.noticed,
            is_wanted=lambda: follower.is_awaited,
        )
        follower.on_awaited = listener.demand_began
        redis_hints = None
        if options.redis_url is not None:
            redis_hints = await stack.enter_async_context(
                open_redis_hints(options.redis_url, store_id, follower.noticed)
            )
        trouble = WriteTrouble(parsed.shown)
        committer = GroupCommitter(
            connections.lane(),
            listener_id=listener.id,
            clock=clock,
            batches_max=options.group_batches_max,
            outcome_timeout_s=options.outcome_timeout_s,
            on_commit=_told(follower, redis_hints),
            trouble=trouble,
        )
        store = PostgresStore(
            parsed.shown,
            connections,
            committer,
            follower,
            cache,
            clock,
            options,
            trouble=trouble,
            redis_hints=redis_hints,
        )
        await stack.enter_async_context(
            background(
                follower.run(),
                listener.run(),
                *following,
                *([] if redis_hints is None else [redis_hints.publish(), redis_hints.listen()]),
                repeat(store.compact, interval_s=options.compact_interval_s, name="compaction"),
                repeat(store.blobs.touch, interval_s=options.blob_free_interval_s, name="use of blobs"),
                repeat(
                    lambda: store.blobs.free(grace_s=options.blob_free_grace_s),
                    interval_s=options.blob_free_interval_s,
                    name="release of blobs",
                ),
                repeat(
                    lambda: store.blobs.sweep(grace_s=options.blob_sweep_grace_s),
                    interval_s=options.blob_sweep_interval_s,
                    name="blob sweep",
                ),
                name="postgres.store",
            )
        )
        stack.push_async_callback(committer.close)
        stack.push_async_callback(store.close_fetches)
        yield store


async def _open_clock(
    connections: Connections, options: StoreOptions, url: str
) -> tuple[StoreClock, list[Coroutine[None, None, None]]]:
    """The time of the store, and what keeps it right. A clock that is not the machine's is a test's: it is the time."""
    machine = options.clock
    if not isinstance(machine, SystemClock):
        return StoreClock(machine), []
    clock = await open_clock(connections, machine, skew_s_max=options.clock_skew_s_max)
    clock.tell_lead(url)
    interval_s = options.postgres_clock_interval_s
    return clock, [keep_following(clock, connections, machine, interval_s=interval_s, url=url)]


def _told(follower: Follower, redis_hints: RedisHints | None) -> Callable[[int, Sequence[Committed]], None]:
    """What hears of each commit of this process."""
    if redis_hints is None:
        return follower.committed

    def committed(revision: int, batches: Sequence[Committed]) -> None:
        follower.committed(revision, batches)
        redis_hints.committed(revision)

    return committed


def _check_revisions(batch: Batch) -> None:
    """The driver refuses what does not fit into its bigint, and would refuse the whole group with it."""
    ranges = (one.revision for one in batch.expect_ranges if one.revision != EMPTY)
    if any(not 0 <= revision <= _INT64_MAX for revision in (*batch.expects.values(), *ranges)):
        raise InvalidBatch("an expected revision is between 0 and 2^63 - 1")
