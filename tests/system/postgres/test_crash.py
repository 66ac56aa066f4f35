"""PostgreSQL is killed under load: what was acknowledged is there, once, and every watch goes on without a gap."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from holdfast.storage.errors import OutcomeUnknown, StoreUnavailable
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Record, Store, Transaction
from holdfast.storage.postgres import connection
from holdfast.storage.postgres.store import open_postgres
from tests.infra.postgres import PostgresServer

WRITERS = 8
COUNTER = b"counter"
LAST = b"last"
COMMITS_BETWEEN_KILLS = 150
TIMEOUT_S = 240
OPTIONS = StoreOptions(postgres_poll_interval_s=0.2)


@dataclass
class Ledger:
    """What the store has acknowledged, and what it could not tell."""

    revisions: dict[bytes, int] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    increments: int = 0
    increments_unknown: int = 0
    watched: dict[bytes, int] = field(default_factory=dict)
    progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def acknowledge(self, key: bytes, revision: int) -> None:
        self.revisions[key] = revision
        async with self.progress:
            self.progress.notify_all()

    async def grown_by(self, count: int) -> None:
        """Wait until that many more commits are acknowledged."""
        target = len(self.revisions) + count
        async with self.progress:
            await self.progress.wait_for(lambda: len(self.revisions) >= target)


async def write(store: Store, ledger: Ledger, writer: int, stop: asyncio.Event) -> None:
    n = 0
    while not stop.is_set():
        n += 1
        key = b"ledger/%d/%d" % (writer, n)
        try:
            # No expectation: a commit that is applied twice would show in the version.
            await ledger.acknowledge(key, await store.commit(Batch(puts={key: b"x" * 200})))
        except OutcomeUnknown:
            ledger.unknown.add(key)
        except StoreUnavailable:
            continue


async def count(store: Store, ledger: Ledger, stop: asyncio.Event) -> None:
    def increment(tx: Transaction) -> None:
        record = tx.get(COUNTER)
        tx.put(COUNTER, str(1 + (0 if record is None else int(record.value))).encode())

    while not stop.is_set():
        try:
            await store.transact(increment, attempts_max=100)
            ledger.increments += 1
        except OutcomeUnknown:
            ledger.increments_unknown += 1
        except StoreUnavailable:
            continue


async def watch(store: Store, ledger: Ledger) -> None:
    """Returns at the event of LAST."""
    last = 0
    async with store.watch(b"", None, after=0) as events_of_store:
        async for events in events_of_store:
            for event in events:
                assert event.revision in (last, last + 1), "a revision is missing"
                last = event.revision
                assert event.key == COUNTER or event.key not in ledger.watched, "an event came twice"
                ledger.watched[event.key] = event.revision
            if LAST in ledger.watched:
                return


@asynccontextmanager
async def load(store: Store, ledger: Ledger) -> AsyncGenerator[None, None]:
    """Writers, counters and a watch; ends when all of them have."""
    stop = asyncio.Event()
    watching = asyncio.create_task(watch(store, ledger))
    writing = [asyncio.create_task(write(store, ledger, n, stop)) for n in range(WRITERS)]
    writing += [asyncio.create_task(count(store, ledger, stop)) for _ in range(2)]
    try:
        yield
        stop.set()
        await asyncio.gather(*writing)
        await store.commit(Batch(puts={LAST: b""}))
        await watching
    finally:
        for task in (watching, *writing):
            task.cancel()
        await asyncio.gather(watching, *writing, return_exceptions=True)


async def all_records(store: Store) -> dict[bytes, Record]:
    records: dict[bytes, Record] = {}
    async with store.snapshot() as snapshot:
        async for page in snapshot.records():
            records.update({item.record.key: item.record for item in page})
    return records


@pytest.fixture
def own_postgres_url(own_postgres_server: PostgresServer) -> Iterator[str]:
    yield f"{own_postgres_server.url}?schema=crash_{secrets.token_hex(4)}"
    own_postgres_server.restart()  # Whatever the test left behind, the next one gets a running server.


@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.long)])
async def test_a_killed_database_loses_and_doubles_nothing(
    own_postgres_server: PostgresServer, own_postgres_url: str, kills: int
) -> None:
    ledger = Ledger()
    async with asyncio.timeout(TIMEOUT_S), open_postgres(own_postgres_url, OPTIONS) as store:
        async with load(store, ledger):
            for _ in range(kills):
                await ledger.grown_by(COMMITS_BETWEEN_KILLS)
                await asyncio.to_thread(own_postgres_server.kill9)
                await asyncio.to_thread(own_postgres_server.restart)
            await ledger.grown_by(COMMITS_BETWEEN_KILLS)
        records = await all_records(store)

    stored = {key: record for key, record in records.items() if key.startswith(b"ledger/")}
    assert {key for key in ledger.revisions if key not in stored} == set(), "lost"
    assert {key for key, record in stored.items() if record.version != 1} == set(), "doubled"
    assert {key: stored[key].mod_revision for key in ledger.revisions} == ledger.revisions
    assert stored.keys() - ledger.revisions.keys() <= ledger.unknown, "written though refused"
    assert 0 <= int(records[COUNTER].value) - ledger.increments <= ledger.increments_unknown
    assert {key: ledger.watched[key] for key in ledger.revisions} == ledger.revisions


async def test_a_database_that_is_away_is_a_reason_and_a_typed_error_until_it_is_back(
    own_postgres_server: PostgresServer, own_postgres_url: str
) -> None:
    async with open_postgres(own_postgres_url, OPTIONS) as store:
        await store.commit(Batch(puts={b"a": b"1"}))
        await asyncio.to_thread(own_postgres_server.kill9)

        with pytest.raises(StoreUnavailable):
            await store.check()
        assert store.problem is not None
        with pytest.raises(StoreUnavailable):
            await store.get(b"a")

        await asyncio.to_thread(own_postgres_server.restart)
        record = await store.get(b"a")
        assert record is not None
        assert await store.commit(Batch(puts={b"b": b"1"})) == 2
        await store.check()
        assert store.problem is None


async def test_a_commit_that_was_never_sent_is_refused_for_certain(
    own_postgres_server: PostgresServer, own_postgres_url: str
) -> None:
    async with open_postgres(own_postgres_url, OPTIONS) as store:
        await asyncio.to_thread(own_postgres_server.kill9)

        with pytest.raises(StoreUnavailable):
            await store.commit(Batch(puts={b"a": b"1"}))

        await asyncio.to_thread(own_postgres_server.restart)
        assert await store.get(b"a") is None
        assert await store.commit(Batch(puts={b"b": b"1"})) == 1


async def test_a_commit_to_a_database_that_hangs_is_asked_after_and_happens_once(
    own_postgres_server: PostgresServer, own_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        connection, "STATEMENT_TIMEOUT_S", 1
    )  # So that the statement is given up in the test.
    async with open_postgres(own_postgres_url, OPTIONS) as store:
        await store.commit(Batch(puts={b"a": b"1"}))
        await asyncio.to_thread(own_postgres_server.pause)
        try:
            hanging = asyncio.create_task(store.commit(Batch(puts={b"b": b"1"})))
            with pytest.raises(StoreUnavailable):
                await store.get(b"a")
            assert not hanging.done()
            assert store.problem is not None
        finally:
            await asyncio.to_thread(own_postgres_server.resume)

        assert await hanging == 2
        record = await store.get(b"b")
        assert record is not None
        assert record.version == 1
        assert store.revision == 2
