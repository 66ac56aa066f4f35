"""What a call costs on a database: one round trip for all that it reads, one for the commit."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast.common.clock import SystemClock
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from holdfast.storage.postgres.store import PostgresStore, open_postgres
from holdfast.storage.transact import Fetched, Missing
from tests.unit.leases.test_service import A, Plane, open_plane


class Trips:
    """Counts what a store sends."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seen: list[str] = []
        fetch, commit = store._fetch, store.commit

        async def counted_fetch(missing: Missing, fetched: Fetched) -> None:
            self._seen.append("fetch")
            await fetch(missing, fetched)

        async def counted_commit(batch: Batch) -> int:
            self._seen.append("commit")
            return await commit(batch)

        monkeypatch.setattr(store, "_fetch", counted_fetch)
        monkeypatch.setattr(store, "commit", counted_commit)

    async def of(self, call: Callable[[], Awaitable[object]]) -> list[str]:
        self._seen.clear()
        await call()
        return list(self._seen)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with open_postgres(postgres_url, StoreOptions()) as opened:
        yield opened


@pytest.fixture
async def plane(store: PostgresStore) -> AsyncIterator[Plane]:
    async with open_plane(store, SystemClock()) as opened:
        yield opened


async def test_acquire_update_and_release_fetch_once_and_commit_once(
    store: PostgresStore, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(store, monkeypatch)
    grant = await plane.acquire(A)
    await plane.release(A, grant)  # The key exists from now on.

    acquired = await trips.of(lambda: plane.acquire(A._replace(key="new")))
    grant = await plane.acquire(A)
    updated = await trips.of(lambda: plane.update(A, grant, b'{"n":1}'))
    released = await trips.of(lambda: plane.release(A, grant))
    acquired_again = await trips.of(lambda: plane.acquire(A))

    assert [acquired, updated, released, acquired_again] == [["fetch", "commit"]] * 4
