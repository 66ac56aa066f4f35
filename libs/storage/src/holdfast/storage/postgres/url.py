"""The parts of a `postgres://` storage URL: where to connect, in which schema, and what may be shown of it."""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from holdfast.storage.errors import InvalidStoreUrl

SCHEMA_DEFAULT = "holdfast"
_SCHEMA = re.compile(r"^[a-z_][a-z0-9_]{0,47}$")  # Short enough to stand in the name of a NOTIFY channel.
_EXAMPLE = "postgres://user@host:5432/database?schema=holdfast&sslmode=require"
_SECRETS = frozenset({"password", "sslpassword"})


class PostgresUrl(NamedTuple):
    """`dsn` goes to the driver and holds the password; `shown` is for people and logs."""

    dsn: str
    schema: str
    shown: str


def parse_url(url: str) -> PostgresUrl:
    """`postgres://user:password@host:port/database?schema=holdfast&sslmode=…`; other options go to the driver."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidStoreUrl(f"a PostgreSQL store has a URL like {_EXAMPLE}") from None
    if parts.scheme not in {"postgres", "postgresql"}:
        raise InvalidStoreUrl(f"a PostgreSQL store has a URL like {_EXAMPLE}")
    schema = dict(query).get("schema", SCHEMA_DEFAULT)
    if not _SCHEMA.match(schema) or schema.startswith("pg_"):
        raise InvalidStoreUrl(
            f"schema {schema!r} is not a plain name: use small letters, digits and _, at most 48, not pg_…"
        )
    options = [(name, value) for name, value in query if name != "schema"]
    shown_options = [(name, value) for name, value in query if name not in _SECRETS]
    netloc = parts.netloc
    user, at, host = netloc.rpartition("@")
    user_shown = quote(unquote(user.partition(":")[0]), safe="")
    return PostgresUrl(
        dsn=urlunsplit(("postgresql", netloc, parts.path, urlencode(options), "")),
        schema=schema,
        shown=urlunsplit(
            ("postgres", f"{user_shown}{at}{host}", parts.path, urlencode(shown_options, safe="/"), "")
        ),
    )
