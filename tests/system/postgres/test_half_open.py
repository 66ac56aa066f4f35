"""Connections to PostgreSQL that are dead without a word are found out by a new one, and a slow database is left alone."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store
from holdfast.storage.postgres.store import open_postgres
from tests.infra.postgres import PostgresServer
from tests.infra.proxy import Proxy

FOUND_OUT_S = 8  # Below the ten seconds after which a statement is given up by itself.


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[Proxy]:
    url = urlsplit(postgres_url)
    assert url.hostname is not None and url.port is not None
    async with Proxy(url.hostname, url.port).running() as proxy:
        yield proxy


@pytest.fixture
async def stores(postgres_url: str, proxy: Proxy) -> AsyncIterator[tuple[Store, Store]]:
    """The second one reaches the database through the proxy."""
    url = urlsplit(postgres_url)
    through = url._replace(netloc=f"{url.username}@127.0.0.1:{proxy.port}").geturl()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_postgres(postgres_url, StoreOptions()))
        second = await stack.enter_async_context(open_postgres(through, StoreOptions()))
        yield first, second


async def test_events_and_commits_go_on_over_new_connections(
    proxy: Proxy, stores: tuple[Store, Store]
) -> None:
    here, there = stores
    async with there.watch(b"a", b"b") as watch:
        await there.commit(Batch(puts={b"a1": b"one"}))
        assert [event.key for event in await anext(watch)] == [b"a1"]

        proxy.partition()
        proxy.heal()
        await here.commit(Batch(puts={b"a2": b"two"}))

        async with asyncio.timeout(FOUND_OUT_S):
            assert [event.key for event in await anext(watch)] == [b"a2"]
            assert await there.get(b"a2") is not None
            await there.commit(Batch(puts={b"a3": b"three"}))
            assert [event.key for event in await anext(watch)] == [b"a3"]


async def test_a_commit_that_was_under_way_is_asked_after_and_happens_once(
    proxy: Proxy, stores: tuple[Store, Store]
) -> None:
    here, there = stores
    async with there.watch(b"a", b"b"):
        await there.commit(Batch(puts={b"a1": b"one"}))
        proxy.partition()
        committing = asyncio.create_task(there.commit(Batch(puts={b"a1": b"two"})))
        await asyncio.sleep(0.5)
        proxy.heal()

        async with asyncio.timeout(FOUND_OUT_S):
            await committing

    record = await here.get(b"a1")
    assert record is not None
    assert (record.value, record.version) == (b"two", 2)


async def test_a_database_that_is_slow_keeps_its_connections(
    postgres_server: PostgresServer, stores: tuple[Store, Store], caplog: pytest.LogCaptureFixture
) -> None:
    if not postgres_server.is_ours:
        pytest.skip("the server of the store can't be paused")
    here, _ = stores
    with caplog.at_level(logging.WARNING):
        async with here.watch(b"a", b"b") as watch:
            postgres_server.pause()
            await asyncio.sleep(3)  # Several looks without an answer.
            postgres_server.resume()
            await here.commit(Batch(puts={b"a1": b"one"}))
            async with asyncio.timeout(FOUND_OUT_S):
                assert [event.key for event in await anext(watch)] == [b"a1"]

    assert not [line for line in caplog.messages if "silent" in line]
