"""The store as of an earlier revision, each read in one statement and so from one moment of the database.

A record whose mod_revision is at most R is the same at R and now. Of every other key that existed at R, the first change after
R has that record in its prev_ columns. A read that finds its history half deleted finds the mark of the compaction
as well, because that is committed first.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from holdfast.storage.errors import check_readable
from holdfast.storage.port import Record
from holdfast.storage.postgres.connection import Row

_INT64_MAX = (1 << 63) - 1

# The first change after the revision decides, or if there is none the record of now.
_GET = """
SELECT s.revision, s.compacted_revision, r.*
FROM store s LEFT JOIN LATERAL (
    (
        SELECT 0 AS place, c.key, c.prev_value, c.prev_create_revision, c.prev_mod_revision, c.prev_version
        FROM changes c
        WHERE md5(c.key) COLLATE "C" = md5($1::bytea) AND c.revision > $2 AND c.key = $1
        ORDER BY c.revision LIMIT 1
    )
    UNION ALL
    SELECT 1, n.key, n.value, n.create_revision, n.mod_revision, n.version FROM records n WHERE n.key = $1
    ORDER BY place LIMIT 1
) r ON true
"""

_RANGE = """
SELECT s.revision, s.compacted_revision, r.*
FROM store s LEFT JOIN LATERAL (
    (
        SELECT key, {value} AS value, create_revision, mod_revision, version FROM records
        WHERE {within} AND mod_revision <= $3 ORDER BY key {order} LIMIT $2
    )
    UNION ALL
    (
        SELECT key, {prev_value}, prev_create_revision, prev_mod_revision, prev_version FROM changes
        WHERE {within} AND revision > $3 AND prev_mod_revision <= $3 ORDER BY key {order} LIMIT $2
    )
    ORDER BY key {order} LIMIT $2
) r ON true
ORDER BY r.key {order}
"""


class Fetch(Protocol):
    """The rows of one statement."""

    def __call__(self, query: str, *args: object) -> Awaitable[list[Row]]: ...


class PostgresPast:
    """Point and range reads as of a revision. `on_compacted` hears how far history is compacted."""

    def __init__(self, fetch: Fetch, on_compacted: Callable[[int], None]) -> None:
        self._fetch = fetch
        self._on_compacted = on_compacted

    async def get(self, key: bytes, at_revision: int) -> Record | None:
        rows = await self._fetch(_GET, key, _bigint(at_revision))
        self._check(rows, at_revision)
        _, _, place, *columns = rows[0]
        if place is None or columns[3] is None:  # No row at all, or a change that created the key.
            return None
        return Record(*columns)

    async def range(
        self,
        start: bytes,
        end: bytes | None,
        *,
        limit: int,
        reverse: bool,
        keys_only: bool,
        at_revision: int,
    ) -> list[Record]:
        query = _range_query(has_end=end is not None, reverse=reverse, keys_only=keys_only)
        bounds = (start, limit, _bigint(at_revision))
        rows = await self._fetch(query, *bounds) if end is None else await self._fetch(query, *bounds, end)
        self._check(rows, at_revision)
        return [Record(*row[2:]) for row in rows if row[2] is not None]

    def _check(self, rows: Sequence[Row], at_revision: int) -> None:
        newest, compacted = rows[0][0], rows[0][1]
        self._on_compacted(compacted)
        check_readable(at_revision, newest=newest, compacted=compacted)


def _range_query(*, has_end: bool, reverse: bool, keys_only: bool) -> str:
    return _RANGE.format(
        value="''::bytea" if keys_only else "value",
        prev_value="''::bytea" if keys_only else "prev_value",
        within="key >= $1 AND key < $4" if has_end else "key >= $1",
        order="DESC" if reverse else "ASC",
    )


def _bigint(revision: int) -> int:
    """As far as the driver takes it: what is cut off is out of bounds anyway."""
    return max(-1, min(revision, _INT64_MAX))
