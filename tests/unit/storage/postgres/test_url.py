"""What is taken from a PostgreSQL URL, what is shown of it, what is refused."""

import pytest

from holdfast.storage.errors import InvalidStoreUrl, StorageError
from holdfast.storage.options import StoreOptions
from holdfast.storage.postgres.store import open_postgres
from holdfast.storage.postgres.url import parse_url


def test_the_schema_has_a_default_and_stays_out_of_the_drivers_url() -> None:
    plain = parse_url("postgres://host/db")
    named = parse_url("postgresql://host/db?schema=other&sslmode=require")

    assert plain.schema == "holdfast"
    assert named.schema == "other"
    assert named.dsn == "postgresql://host/db?sslmode=require"


@pytest.mark.parametrize(
    "url",
    ["postgres://user:s3cret@host:5433/db", "postgres://user@host:5433/db?password=s3cret&schema=a"],
)
def test_the_password_is_for_the_driver_only(url: str) -> None:
    parsed = parse_url(url)

    assert "s3cret" in parsed.dsn
    assert "s3cret" not in parsed.shown
    assert parsed.shown.startswith("postgres://user@host:5433/db")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://host/db",
        "postgres://host/db?schema=UPPER",
        "postgres://host/db?schema=a;drop",
        'postgres://host/db?schema="',
        "postgres://host/db?schema=",
        "postgres://host/db?schema=pg_catalog",
        f"postgres://host/db?schema={'a' * 49}",
        "postgres://host/db?nonsense",
    ],
)
def test_a_url_with_wrong_parts_is_refused(url: str) -> None:
    with pytest.raises(InvalidStoreUrl):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://user:s3cret@127.0.0.1:port/db",
        "postgres://user:s3c:ret@127.0.0.1:99999999/db",
        "postgres://user:s3cret@127.0.0.1:1/db?sslmode=s3cret",
        "postgres://user:s3cret@[127.0.0.1/db",
    ],
)
async def test_what_the_driver_can_not_read_is_told_without_the_password(url: str) -> None:
    with pytest.raises(StorageError) as refused:
        async with open_postgres(url, StoreOptions()):
            pass

    assert "s3c" not in refused.value.detail
