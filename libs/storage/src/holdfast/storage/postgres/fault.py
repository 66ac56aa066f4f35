"""The one place where errors of asyncpg, SQLAlchemy and the socket become errors of the port."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg
from sqlalchemy.exc import SQLAlchemyError

from holdfast.common.backoff import Backoff
from holdfast.storage.errors import (
    InvalidBatch,
    InvalidStoreUrl,
    StorageError,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

# What the driver, the pool and the socket raise. A TimeoutError is an OSError too.
FOREIGN_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    SQLAlchemyError,
    OSError,
    EOFError,
)

_LOST_STATES = frozenset(
    {"57P01", "57P02", "57P03", "57P05"}
)  # Shut down, crashed, starting up, idle too long.
_BUSY_STATES = frozenset({"40001", "40P01", "53200", "53300", "55P03", "57014"})
_ACCESS_CLASSES = frozenset({"28", "3D"})


def root_cause(error: BaseException) -> BaseException:
    """SQLAlchemy wraps the driver's error twice, once in a class of its dialect; the driver's own is what tells."""
    cause, below = error, error.__cause__
    while below is not None:
        if isinstance(below, FOREIGN_ERRORS):
            cause = below
        below = below.__cause__
    return cause


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection ended, so that the outcome of the last statement is unknown."""
    cause = root_cause(error)
    if isinstance(cause, asyncpg.PostgresError):
        state = _state(cause)
        return state in _LOST_STATES or state.startswith("08")
    return not _is_refused_by_driver(cause)


def is_worth_retry(error: StorageError) -> bool:
    """Whether waiting may help; a wrong password stays wrong."""
    return isinstance(error, StoreUnavailable) and error.retry_after_s is not None


def translate(error: BaseException) -> StorageError:
    """The error of the port that says the same; its detail never holds the URL."""
    cause = root_cause(error)
    if isinstance(cause, asyncpg.PostgresError):
        return _translate_state(cause, _state(cause))
    if isinstance(cause, asyncpg.ClientConfigurationError):
        return InvalidStoreUrl(f"PostgreSQL URL: {cause}")
    if _is_refused_by_driver(cause):
        return InvalidBatch(f"PostgreSQL can't take this value: {cause}")
    if isinstance(cause, TimeoutError):
        return StoreUnavailable(
            "PostgreSQL did not answer in time; is it overloaded or paused?", retry_after_s=1.0
        )
    if isinstance(cause, OSError):
        return StoreUnavailable(f"PostgreSQL can't be reached: {cause}", retry_after_s=1.0)
    return StoreUnavailable(f"the connection to PostgreSQL broke: {cause}", retry_after_s=1.0)


def read_only() -> StoreReadOnly:
    return StoreReadOnly(
        "PostgreSQL takes no writes: it is a standby or set read-only; connect to the primary, or set it read-write; "
        "reads go on meanwhile"
    )


def _translate_state(error: asyncpg.PostgresError, state: str) -> StorageError:
    if state == "53100":
        return StoreFull(
            "PostgreSQL has no room on its disk; free some, and writes go on by themselves; reads go on meanwhile",
            retry_after_s=5.0,
        )
    if state == "25006":
        return read_only()
    if state in {"XX001", "XX002"}:
        return StoreCorrupt(f"PostgreSQL found damaged data: {error}; restore a backup")
    if state[:2] in _ACCESS_CLASSES:
        return StoreUnavailable(
            f"PostgreSQL refused the connection: {error}; check user, password and database"
        )
    if state in _LOST_STATES or state in _BUSY_STATES or state[:2] == "08":
        return StoreUnavailable(f"PostgreSQL can't serve this now: {error}", retry_after_s=1.0)
    return StorageError(f"PostgreSQL: {error} (state {state})")


def _is_refused_by_driver(error: BaseException) -> bool:
    """A value that does not fit, found before anything was sent."""
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)


def _state(error: asyncpg.PostgresError) -> str:
    return str(getattr(error, "sqlstate", None) or "")


READ_RETRY_S = 5.0  # A database that restarts is back within this time, mostly.

T = TypeVar("T")


async def retried(operation: Callable[[], Awaitable[T]], *, for_s: float) -> T:
    """The result of `operation`, run again while the database is away, for at most about `for_s` seconds."""
    backoff = Backoff(for_s)
    while True:
        try:
            return await operation()
        except StorageError as error:
            if not is_worth_retry(error) or backoff.is_over:
                raise
        await backoff.pause()
