"""Wake-ups by Redis between two stores on one database, with NOTIFY made deaf; Redis is a hint and nothing more."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from holdfast.storage.errors import InvalidStoreUrl
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store
from holdfast.storage.postgres.store import open_postgres
from tests.infra.program import free_port
from tests.infra.redis import RedisServer
from tests.infra.two_stores import TIMEOUT_S, next_keys, on_database, until_listening

NEVER_S = 3600.0
_DEAF = """
CREATE OR REPLACE FUNCTION register_listener(p_id uuid, p_at timestamptz) RETURNS void LANGUAGE plpgsql AS
    $body$ BEGIN RAISE EXCEPTION 'deaf'; END $body$;
DELETE FROM listeners;
"""


def by_redis_alone(server: RedisServer) -> StoreOptions:
    return StoreOptions(postgres_poll_interval_s=NEVER_S, redis_url=SecretStr(server.url))


@pytest.fixture
async def writer(postgres_url: str, own_redis_server: RedisServer) -> AsyncIterator[Store]:
    """Its database tells of no commit: a session that registers for a NOTIFY is refused."""
    async with open_postgres(postgres_url, by_redis_alone(own_redis_server)) as opened:
        await on_database(postgres_url, _DEAF)
        yield opened


async def until_figure(store: Store, name: str, value: float) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while store.figures()[name] != value:  # noqa: ASYNC110 - figures tell no caller when they change
            await asyncio.sleep(0.02)


async def channels_of(redis: Redis) -> list[bytes | str]:
    return list(await redis.pubsub_channels("holdfast.*"))


async def test_a_commit_of_another_process_arrives_by_redis(
    postgres_url: str, writer: Store, own_redis_server: RedisServer
) -> None:
    options = by_redis_alone(own_redis_server)
    async with open_postgres(postgres_url, options) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)

        await writer.commit(Batch(puts={b"a1": b""}))

        assert await next_keys(watch) == [b"a1"]
        assert store.figures()["redis_heard"] > 0


async def test_commits_and_watches_outlive_redis_and_use_it_again(
    postgres_url: str, writer: Store, own_redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    hinted = by_redis_alone(own_redis_server)
    polling = replace(hinted, postgres_poll_interval_s=0.05)
    async with (
        open_postgres(postgres_url, hinted) as hinted_store,
        open_postgres(postgres_url, polling) as polling_store,
        hinted_store.watch(b"a", b"b") as hinted_watch,
        polling_store.watch(b"a", b"b") as polling_watch,
    ):
        await until_listening(hinted_store, writer)
        caplog.set_level(logging.INFO, "holdfast.storage.postgres.feed.redis_hints")
        own_redis_server.kill9()
        try:
            await writer.commit(Batch(puts={b"a1": b""}))
            seen_without_redis = await next_keys(polling_watch)
            await until_figure(writer, "redis_up", 0)
            await until_figure(hinted_store, "redis_up", 0)
            await writer.check()
        finally:
            own_redis_server.restart()

        seen_when_back = await next_keys(hinted_watch)
        await until_figure(writer, "redis_up", 1)
        await writer.commit(Batch(puts={b"a2": b""}))

        assert seen_without_redis == [b"a1"]
        assert seen_when_back == [b"a1"]
        assert await next_keys(hinted_watch) == [b"a2"]
        assert writer.figures()["redis_outages"] == 1
        assert caplog.text.count("Redis is away") == 3, "one line of each store"


async def test_garbage_on_the_channel_harms_nothing(
    postgres_url: str, writer: Store, own_redis_server: RedisServer
) -> None:
    options = by_redis_alone(own_redis_server)
    redis = Redis.from_url(own_redis_server.url)
    async with redis, open_postgres(postgres_url, options) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)
        [channel] = await channels_of(redis)
        for notice in (
            b"999999999",
            b"-1",
            b"x",
            b"",
            b"9" * 5000,
            "²".encode(),
            b"\xff\x00",
            b"1" * (1 << 20),
        ):
            await redis.publish(channel, notice)

        await writer.commit(Batch(puts={b"a1": b""}))

        assert await next_keys(watch) == [b"a1"]
        assert store.revision == writer.revision
        assert store.figures()["redis_outages"] == 0


async def test_many_commits_share_a_publish_and_the_last_one_is_told(
    postgres_url: str, writer: Store, own_redis_server: RedisServer
) -> None:
    options = by_redis_alone(own_redis_server)
    async with open_postgres(postgres_url, options) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)
        keys = [b"a%03d" % n for n in range(200)]

        await asyncio.gather(*(writer.commit(Batch(puts={key: b""})) for key in keys))

        seen: list[bytes] = []
        while len(seen) < len(keys):
            seen += await next_keys(watch)
        assert sorted(seen) == keys
        assert writer.figures()["redis_published"] < len(keys)


async def test_a_store_opens_and_works_without_the_redis_that_was_named(postgres_url: str) -> None:
    url = SecretStr(f"redis://:hunter2@127.0.0.1:{free_port()}/0")

    async with open_postgres(postgres_url, StoreOptions(redis_url=url)) as store:
        await store.commit(Batch(puts={b"a": b""}))
        await store.check()
        await until_figure(store, "redis_up", 0)

        assert store.problem is None


async def test_a_redis_that_takes_calls_and_never_answers_holds_up_no_commit(postgres_url: str) -> None:
    def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = SecretStr(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")

    async with server, open_postgres(postgres_url, StoreOptions(redis_url=url)) as store:
        for n in range(20):
            await store.commit(Batch(puts={b"a": b"%d" % n}))

        assert store.figures()["redis_published"] == 0
        await until_figure(store, "redis_up", 0)


@pytest.mark.parametrize("url", ["redis://:hunter2/x@h:1", "redis://:hunter2@h/0?colour=hunter2", "hunter2"])
async def test_a_url_that_cannot_be_read_is_refused_without_its_password(postgres_url: str, url: str) -> None:
    with pytest.raises(InvalidStoreUrl, match="redis://") as refused:
        async with open_postgres(postgres_url, StoreOptions(redis_url=SecretStr(url))):
            pass

    assert "hunter2" not in str(refused.value.detail)
    assert refused.value.__cause__ is None
