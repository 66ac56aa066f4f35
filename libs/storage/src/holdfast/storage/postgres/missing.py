"""What a transaction misses, when ranges are among it: keys and ranges by one statement, so all of it is of one moment."""

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.storage.fetched import Missing, RangeRead
from holdfast.storage.port import Record
from holdfast.storage.postgres.connection import Row

RANGES_MAX: Final = 16
"""In one statement: each number of ranges is a statement of its own to the database."""
_COLUMNS: Final = "key, value, create_revision, mod_revision, version"


class FetchedParts(NamedTuple):
    """What the database had of some keys (None: nothing) and ranges, all of it as of one revision."""

    records: dict[bytes, Record | None]
    ranges: dict[RangeRead, list[Record]]
    revision: int


async def fetch_parts(missing: Missing, rows: Callable[..., Awaitable[list[Row]]]) -> FetchedParts:
    """`rows` runs a statement. Of more than RANGES_MAX ranges the first ones: a function asks again for what is left."""
    reads = list(dict.fromkeys(missing.ranges))[:RANGES_MAX]
    arguments: list[object] = [list(missing.keys)]
    for read in reads:
        arguments += [read.start, read.limit] if read.end is None else [read.start, read.limit, read.end]
    shapes = tuple((read.end is not None, read.reverse) for read in reads)
    found = await rows(_query(shapes), *arguments)
    parts: list[list[Record]] = [[] for _ in range(len(reads) + 1)]
    for _, part, *columns in found:
        if part is not None:
            parts[part].append(Record(*columns))
    by_key = {record.key: record for record in parts[0]}
    ranges: dict[RangeRead, list[Record]] = {}
    for read, records in zip(reads, parts[1:], strict=True):
        # A union promises no order.
        ranges[read] = sorted(records, key=lambda record: record.key, reverse=read.reverse)
    return FetchedParts({key: by_key.get(key) for key in missing.keys}, ranges, found[0][0])


@lru_cache(maxsize=256)
def _query(shapes: Sequence[tuple[bool, bool]]) -> str:
    """`shapes`: of each range, whether it has an end and whether it is read in reverse."""
    parts = [f"SELECT 0 AS part, {_COLUMNS} FROM records WHERE key = ANY ($1::bytea[])"]
    number = 2
    for part, (has_end, is_reverse) in enumerate(shapes, start=1):
        within = f"key >= ${number}::bytea" + (f" AND key < ${number + 2}::bytea" if has_end else "")
        order = "DESC" if is_reverse else "ASC"
        parts.append(
            f"(SELECT {part}, {_COLUMNS} FROM records WHERE {within} "
            f"ORDER BY key {order} LIMIT ${number + 1}::bigint)"
        )
        number += 3 if has_end else 2
    return f"SELECT s.revision, p.* FROM store s LEFT JOIN LATERAL ({' UNION ALL '.join(parts)}) p ON true"
