"""What transactions miss on PostgreSQL: keys and ranges by one statement, each part of it by a walk along the index."""

from holdfast.storage.fetched import Missing, RangeRead
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from holdfast.storage.postgres.connection import Connections, Row
from holdfast.storage.postgres.missing import RANGES_MAX, fetch_parts
from holdfast.storage.postgres.store import open_postgres
from holdfast.storage.postgres.url import parse_url

READS = [
    RangeRead(b"20", b"25", 3, False, True),
    RangeRead(b"20", b"25", 3, True, True),
    RangeRead(b"97", None, 10, False, False),
    RangeRead(b"a", b"b", 10, False, True),
]


async def test_every_part_is_read_by_the_index_and_in_its_order(postgres_url: str) -> None:
    plans: list[str] = []
    async with open_postgres(postgres_url, StoreOptions()) as store:
        revision = await store.commit(Batch(puts={b"%02d" % number: b"v" for number in range(100)}))
        connections = Connections(parse_url(postgres_url), connections_max=3)

        async def rows(query: str, *args: object) -> list[Row]:
            async with connections.use() as connection:
                plans.extend(line for [line] in await connection.fetch(f"EXPLAIN {query}", *args))
                return await connection.fetch(query, *args)

        parts = await fetch_parts(Missing([b"07", b"no"], READS), rows)
        await connections.close()

    record = parts.records[b"07"]
    assert (record.value if record is not None else None, parts.records[b"no"]) == (b"v", None)
    assert [[one.key for one in parts.ranges[read]] for read in READS] == [
        [b"20", b"21", b"22"],
        [b"24", b"23", b"22"],
        [b"97", b"98", b"99"],
        [],
    ]
    assert parts.revision == revision
    on_records = [line for line in plans if " on records" in line]
    assert len(on_records) == 1 + len(READS)
    assert all("Index Scan" in line for line in on_records), plans


async def test_nothing_found_is_known_as_of_a_revision_too(postgres_url: str) -> None:
    async with open_postgres(postgres_url, StoreOptions()) as store:
        parts = await fetch_parts(Missing([b"no"], READS), store._rows)

    assert parts == ({b"no": None}, {read: [] for read in READS}, store.revision)


async def test_one_statement_takes_so_many_ranges(postgres_url: str) -> None:
    reads = [RangeRead(b"%02d" % number, b"%02d" % (number + 1), 1, False, True) for number in range(40)]
    async with open_postgres(postgres_url, StoreOptions()) as store:
        parts = await fetch_parts(Missing([], reads), store._rows)

    assert list(parts.ranges) == reads[:RANGES_MAX]
