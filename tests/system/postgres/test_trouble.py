"""A PostgreSQL that takes no writes is told and shown, in one process and split, while reads go on."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from holdfast.storage.errors import OutcomeUnknown, StoreFull, StoreReadOnly
from holdfast.storage.hosting.store_app import store_problem
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from tests.infra.postgres import PostgresServer
from tests.system.split.program import SERVICES, SplitProgram

OPTIONS = StoreOptions(postgres_poll_interval_s=0.2)


class Database:
    """A database of its own that can be made read-only, as a failover to a standby does it."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self.name = f"test_{secrets.token_hex(6)}"
        parts = urlsplit(server_url)
        self.url = urlunsplit(parts._replace(path=f"/{self.name}"))
        self._execute(f"CREATE DATABASE {self.name}")

    def set_read_only(self, is_on: bool) -> None:
        self._execute(f"ALTER DATABASE {self.name} SET default_transaction_read_only = {is_on}")
        self._disconnect()

    def drop(self) -> None:
        self._disconnect()
        self._execute(f"DROP DATABASE {self.name} WITH (FORCE)")

    def _disconnect(self) -> None:
        self._execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'")

    def _execute(self, statement: str) -> None:
        async def work() -> None:
            connection = await asyncpg.connect(self._server_url)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(work())


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[Database]:
    found = Database(postgres_server.url)
    yield found
    found.drop()


def about_writes(text: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in lines if line["msg"].startswith("storage.writes.")]


async def test_a_read_only_database_is_told_once_and_shown_while_reads_go_on(
    database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    async with open_store(database.url, OPTIONS) as store:
        await store.commit(Batch(puts={b"k": b"1"}))
        await asyncio.to_thread(database.set_read_only, True)
        # The connection was cut: whether the first one was still sent on it is not always known.
        with pytest.raises((StoreReadOnly, OutcomeUnknown)):
            await store.commit(Batch(puts={b"k": b"2"}))
        for _ in range(3):
            with pytest.raises(StoreReadOnly):
                await store.commit(Batch(puts={b"k": b"2"}))
        shown = await store_problem(store)
        record = await store.get(b"k")
        (line,) = about_writes(capfd.readouterr().err)

        await asyncio.to_thread(database.set_read_only, False)
        await store.get(b"k")  # Connects again.
        assert await store_problem(store) is None
        await store.commit(Batch(puts={b"k": b"3"}))
        (over,) = about_writes(capfd.readouterr().err)

    assert record is not None
    assert "takes no writes" in (shown or "")
    assert (line["msg"], line["code"]) == ("storage.writes.failing", "storage_read_only")
    assert "primary" in line["cure"]
    assert (over["msg"], over["code"]) == ("storage.writes.resumed", "storage_read_only")


async def test_readiness_finds_a_read_only_database_before_a_write_does(database: Database) -> None:
    async with open_store(database.url, OPTIONS) as store:
        await asyncio.to_thread(database.set_read_only, True)
        await store.get(b"k")

        assert "takes no writes" in (await store_problem(store) or "")


async def test_a_database_without_room_is_told_once_and_shown(
    database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    """A trigger stands in for the full disk: it raises what PostgreSQL raises then, disk_full."""
    async with open_store(database.url, OPTIONS) as store:
        connection = await asyncpg.connect(database.url, server_settings={"search_path": "holdfast"})
        await connection.execute(
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE disk_full USING MESSAGE = 'could not extend file'; END $$;"
            "CREATE TRIGGER no_room BEFORE INSERT ON records EXECUTE FUNCTION no_room()"
        )
        for number in range(3):
            with pytest.raises(StoreFull):
                await store.commit(Batch(puts={b"new%d" % number: b""}))
        shown = await store_problem(store)
        await connection.execute("DROP TRIGGER no_room ON records")
        await connection.close()
        await store.commit(Batch(puts={b"new": b""}))

        assert await store_problem(store) is None
    assert "no room" in (shown or "")
    told = about_writes(capfd.readouterr().err)
    assert [(line["msg"], line["code"]) for line in told] == [
        ("storage.writes.failing", "storage_full"),
        ("storage.writes.resumed", "storage_full"),
    ]


def test_a_split_plane_over_a_read_only_database_says_so_and_goes_on_reading(
    tmp_path: Path, database: Database
) -> None:
    with ExitStack() as stack:
        plane = SplitProgram(tmp_path, database.url, stack)
        plane.start_all()
        publish(plane, "orders")

        database.set_read_only(True)
        plane.until(lambda: set(plane.readiness()) == set(SERVICES))
        reasons = plane.readiness()
        for _ in range(20):  # Also while the gateway knows that no replica is ready.
            read = plane.post("/v1/get?key=orders&public=1", None)
            assert (read.status_code, read.json()) == (200, {"a": 1})
        refused = plane.post("/v1/acquire", {"key": "other", "owner": "me", "ttl_seconds": 5})

        database.set_read_only(False)
        plane.until(lambda: plane.readiness() == {})
        publish(plane, "more")

    assert all("takes no writes" in reason for reason in reasons.values()), reasons
    assert (refused.status_code, refused.json()["error"]) == (503, "storage_read_only")


def publish(plane: SplitProgram, key: str) -> None:
    lease = plane.post("/v1/acquire", {"key": key, "owner": "me", "ttl_seconds": 60}).json()
    claim = {
        "X-Lease-ID": lease["lease_id"],
        "X-Txn-ID": lease["txn_id"],
        "X-Fencing-Token": str(lease["fencing_token"]),
    }
    assert plane.post(f"/v1/update?key={key}", {"a": 1}, claim).status_code == 200
    ended = {"key": key, "lease_id": lease["lease_id"], "txn_id": lease["txn_id"]}
    assert plane.post("/v1/release", ended, claim).status_code == 200
