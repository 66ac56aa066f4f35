"""Connections: SQLAlchemy opens, counts and ends them; hot statements run on the asyncpg connection below.

A lane is one connection that stays checked out of SQLAlchemy's pool, because a check-out for every statement costs
more than the statement. The writer and the listener own a lane each; reads share the others.
"""

import asyncio
import logging
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol, cast

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from holdfast.storage.errors import InvalidStoreUrl, StorageError, StoreClosed, StoreUnavailable
from holdfast.storage.postgres.fault import FOREIGN_ERRORS, is_connection_lost, root_cause, translate
from holdfast.storage.postgres.url import PostgresUrl

CONNECT_TIMEOUT_S = 5
STATEMENT_TIMEOUT_S = 10
GOODBYE_TIMEOUT_S = 1
LANE_TIMEOUT_S = 10  # How long a read waits for a free connection.
FRESH_TIMEOUT_S = 2  # For a connection that only shows whether the others are to blame.

_log = logging.getLogger(__name__)

# Every statement here is a walk along an index. Plans must not depend on statistics, which are wrong while a
# table is young, nor be made anew for every call.
_SERVER_SETTINGS = {
    "application_name": "holdfast",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
# Acknowledged means durable, regardless of the database's own default.
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)

Row = Sequence[Any]


class Cursor(Protocol):
    """What is used of asyncpg's cursor."""

    async def fetch(self, n: int) -> list[Row]: ...


class RawConnection(Protocol):
    """What is used of asyncpg's connection, which has no types of its own."""

    async def fetch(self, query: str, *args: object) -> list[Row]: ...

    async def fetchrow(self, query: str, *args: object) -> Row | None: ...

    async def fetchval(self, query: str, *args: object) -> Any: ...

    async def execute(self, query: str, *args: object) -> str: ...

    async def copy_records_to_table(
        self, table_name: str, *, records: Sequence[Row], columns: Sequence[str]
    ) -> str: ...

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[None]: ...

    async def cursor(self, query: str, *args: object) -> Cursor: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    async def remove_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...

    def is_closed(self) -> bool: ...

    async def close(self, *, timeout: float) -> None: ...

    def terminate(self) -> None: ...


class Lane:
    """One connection, opened when first needed and opened again after it was lost."""

    def __init__(self, connections: "Connections") -> None:
        self._connections = connections
        self._core: AsyncConnection | None = None
        self._raw: RawConnection | None = None
        self._opened_s = 0.0

    async def raw(self) -> RawConnection:
        if self._raw is None or self._raw.is_closed():
            await self.drop()
            opened_s = asyncio.get_running_loop().time()
            self._core, self._raw = await self._connections.connect()
            self._opened_s = opened_s
        return self._raw

    async def core(self) -> AsyncConnection:
        await self.raw()
        assert self._core is not None
        return self._core

    async def drop(self) -> None:
        """End the connection without asking the server, which may be gone."""
        core, raw, self._core, self._raw = self._core, self._raw, None, None
        if raw is not None:
            raw.terminate()
        if core is not None:
            with suppress(*FOREIGN_ERRORS):
                await core.invalidate()
            with suppress(*FOREIGN_ERRORS):
                await core.close()

    def give_up(self, before_s: float) -> None:
        """End a connection that was opened before then; the caller that waits for its answer is told that it is lost."""
        if self._raw is not None and self._opened_s < before_s:
            self._raw.terminate()

    async def close(self) -> None:
        """Say goodbye to the server if it listens."""
        if self._raw is not None:
            with suppress(*FOREIGN_ERRORS):
                await self._raw.close(timeout=GOODBYE_TIMEOUT_S)
        await self.drop()


class Connections:
    """All connections of one store, and whether the database can be reached."""

    def __init__(self, url: PostgresUrl, *, connections_max: int) -> None:
        self.problem: str | None = None
        self._url = url
        shared = max(1, connections_max - 2)
        self._engine: AsyncEngine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._open,
            pool_size=shared + 2,
            max_overflow=0,
            pool_timeout=LANE_TIMEOUT_S,
        )
        self._free = asyncio.Semaphore(shared)
        self._idle: list[Lane] = []
        self._lanes: weakref.WeakSet[Lane] = weakref.WeakSet()
        self._connecting: dict[asyncio.Timeout, float] = {}
        self._opening: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    def lane(self) -> Lane:
        """A lane of the caller's own. At most two may exist: writer and listener."""
        lane = Lane(self)
        self._lanes.add(lane)
        return lane

    @asynccontextmanager
    async def use(self, on_turn: Callable[[], None] = lambda: None) -> AsyncGenerator[RawConnection, None]:
        """A shared connection for one statement or one transaction; foreign errors leave here as our own.

        `on_turn` is called when the caller need not wait for other callers any more, but for the database alone.
        """
        async with self._shared_lane() as lane:
            on_turn()
            yield await lane.raw()

    @asynccontextmanager
    async def use_core(self) -> AsyncGenerator[AsyncConnection, None]:
        """The same through SQLAlchemy, in a transaction of its own."""
        async with self._shared_lane() as lane:
            core = await lane.core()
            async with core.begin():
                yield core

    async def connect(self) -> tuple[AsyncConnection, RawConnection]:
        """A new connection, or the error that says why there is none."""
        limit = asyncio.timeout(CONNECT_TIMEOUT_S + STATEMENT_TIMEOUT_S)
        try:
            async with limit:
                self._connecting[limit] = asyncio.get_running_loop().time()
                core = await self._engine.connect()
                pooled = await core.get_raw_connection()
        except FOREIGN_ERRORS as error:
            raise self._reported(error) from root_cause(error)
        except (ValueError, OverflowError):
            # Of the driver, for parts of the URL it can't read; its text may hold the password.
            raise InvalidStoreUrl("the PostgreSQL URL has a part that is wrong, such as the port") from None
        finally:
            self._connecting.pop(limit, None)
        self.reached()
        return core, cast(RawConnection, pooled.driver_connection)

    async def fetch_alone(self, query: str, *args: object) -> list[Row]:
        """The rows by a connection that is opened for this statement alone."""
        try:
            async with asyncio.timeout(FRESH_TIMEOUT_S):
                connection: RawConnection = await self._open()
        except FOREIGN_ERRORS as error:
            raise translate(error) from error
        try:
            return await connection.fetch(query, *args)
        except FOREIGN_ERRORS as error:
            raise translate(error) from error
        finally:
            connection.terminate()

    def give_up(self, before_s: float) -> None:
        """Every connection that was opened before then is of no use, and attempts to connect that began before then start anew."""
        _log.warning(
            "connections to PostgreSQL are silent while a new one is answered; they are opened again"
        )
        for lane in self._lanes:
            lane.give_up(before_s)
        for limit, began_s in self._connecting.items():
            if began_s < before_s:
                limit.reschedule(0)

    def reached(self) -> None:
        if self.problem is not None:
            _log.info("PostgreSQL answers again")
            self.problem = None

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.gather(*(lane.close() for lane in self._idle))
        self._idle.clear()
        with suppress(*FOREIGN_ERRORS):
            await self._engine.dispose()
        if self._opening:
            await asyncio.wait(self._opening, timeout=GOODBYE_TIMEOUT_S)
        for opening in self._opening:
            opening.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    @asynccontextmanager
    async def _shared_lane(self) -> AsyncGenerator[Lane, None]:
        if self._is_closed:
            raise StoreClosed("the store is closed")
        try:
            async with asyncio.timeout(LANE_TIMEOUT_S):
                await self._free.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("all connections to PostgreSQL are busy", retry_after_s=1.0) from error
        lane = self._idle.pop() if self._idle else self.lane()
        is_good = False
        try:
            yield lane
            is_good = True
        except FOREIGN_ERRORS as error:
            is_good = not is_connection_lost(error)
            raise self._reported(error) from root_cause(error)
        except StorageError:
            is_good = True
            raise
        finally:
            try:
                # Also after a cancellation: a statement may still be running on it. A second one must not stop this.
                if not is_good:
                    await asyncio.shield(lane.drop())
                if self._is_closed:
                    await lane.close()
                else:
                    self._idle.append(lane)
            finally:
                self._free.release()

    def _reported(self, error: BaseException) -> StorageError:
        translated = translate(error)
        if isinstance(translated, StoreUnavailable) and is_connection_lost(error):
            if self.problem is None:
                _log.warning("PostgreSQL is away: %s", translated.detail)
            self.problem = translated.detail
        return translated

    async def _open(self) -> Any:
        """asyncpg that is cancelled while it connects leaves an error behind, which is logged as never seen. So it goes on."""
        opening = asyncio.ensure_future(self._open_to_the_end())
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_end_unwanted)
            raise

    async def _open_to_the_end(self) -> Any:
        connection = await asyncpg.connect(
            self._url.dsn,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=STATEMENT_TIMEOUT_S,
            server_settings={**_SERVER_SETTINGS, "search_path": self._url.schema},
        )
        await connection.execute(_DURABLE)
        return connection


def _end_unwanted(opening: "asyncio.Future[Any]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().terminate()
