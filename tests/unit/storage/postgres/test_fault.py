"""Errors of the driver become errors of the port, in one place."""

import asyncpg
import pytest
from asyncpg.exceptions import _base
from sqlalchemy.exc import DBAPIError

from holdfast.storage.errors import (
    InvalidBatch,
    InvalidStoreUrl,
    StorageError,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.storage.postgres.fault import is_connection_lost, is_worth_retry, translate


@pytest.mark.parametrize(
    ("foreign", "ours", "is_lost", "is_retried"),
    [
        (ConnectionRefusedError("refused"), StoreUnavailable, True, True),
        (TimeoutError(), StoreUnavailable, True, True),
        (asyncpg.ConnectionDoesNotExistError("gone"), StoreUnavailable, True, True),
        (asyncpg.AdminShutdownError("stopped"), StoreUnavailable, True, True),
        (asyncpg.CannotConnectNowError("starting up"), StoreUnavailable, True, True),
        (asyncpg.InterfaceError("connection is closed"), StoreUnavailable, True, True),
        (asyncpg.DeadlockDetectedError("deadlock"), StoreUnavailable, False, True),
        (asyncpg.TooManyConnectionsError("full"), StoreUnavailable, False, True),
        (asyncpg.InvalidPasswordError("wrong password"), StoreUnavailable, False, False),
        (asyncpg.InvalidCatalogNameError("no database"), StoreUnavailable, False, False),
        (asyncpg.DiskFullError("full"), StoreFull, False, False),
        (asyncpg.ReadOnlySQLTransactionError("standby"), StoreReadOnly, False, False),
        (asyncpg.DataCorruptedError("bad page"), StoreCorrupt, False, False),
        (_base.DataError("too large"), InvalidBatch, False, False),
        (asyncpg.ClientConfigurationError("no such option"), InvalidStoreUrl, False, False),
        (asyncpg.UndefinedTableError("no table"), StorageError, False, False),
    ],
)
def test_each_foreign_error_has_one_of_ours(
    foreign: Exception, ours: type[StorageError], is_lost: bool, is_retried: bool
) -> None:
    translated = translate(foreign)

    assert type(translated) is ours
    assert is_connection_lost(foreign) is is_lost
    assert is_worth_retry(translated) is is_retried


def test_the_drivers_error_is_found_below_sqlalchemys() -> None:
    of_dialect = Exception("wrapped")
    of_dialect.__cause__ = asyncpg.DiskFullError("full")
    wrapped = DBAPIError("SELECT 1", None, of_dialect)
    wrapped.__cause__ = of_dialect

    assert type(translate(wrapped)) is StoreFull
