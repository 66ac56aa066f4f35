"""What is taken from a PostgreSQL URL, what is shown of it, what is refused."""

import pytest

from holdfast.storage.errors import InvalidStoreUrl
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
