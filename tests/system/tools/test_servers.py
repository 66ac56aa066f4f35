"""The servers that the tests bring along are real ones; those from wheels need nothing else on the machine."""

import asyncio

import asyncpg
import pytest
import redis

from holdfast.storage.opening import open_store
from holdfast.storage.port import Batch
from tests.conftest import own_schema, pytest_terminal_summary
from tests.infra import postgres as postgres_infra
from tests.infra import redis as redis_infra
from tests.infra.postgres import PostgresServer
from tests.infra.provision import Unavailable
from tests.infra.redis import RedisServer


def redis_pings(url: str) -> bool:
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        return bool(client.ping())


def postgres_sum(url: str) -> int:
    async def query() -> int:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            return int(await connection.fetchval("SELECT 1 + 1"))
        finally:
            await connection.close()

    return asyncio.run(query())


def test_a_redis_and_a_postgresql_are_there(
    redis_server: RedisServer, postgres_server: PostgresServer
) -> None:
    assert redis_pings(redis_server.url)
    assert postgres_sum(postgres_server.url) == 2


def test_a_redis_from_a_wheel_comes_back_after_a_kill() -> None:
    server = redis_infra.from_wheel()
    try:
        server.kill9()
        server.restart()

        assert redis_pings(server.url)
        assert server.origin.startswith("server program from a wheel")
    finally:
        server.stop()


def test_a_postgresql_from_a_wheel_comes_back_after_a_kill() -> None:
    server = postgres_infra.from_wheel()
    try:
        server.kill9()
        server.restart()

        assert postgres_sum(server.url) == 2
        assert server.origin.startswith("server programs from a wheel")
    finally:
        server.stop()


def test_a_postgresql_that_the_environment_names_is_used_and_left_alone(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(postgres_infra.URL_VARIABLE, postgres_server.url)

    given = postgres_infra.provide_postgres()
    given.stop()

    assert (given.url, given.is_ours) == (postgres_server.url, False)
    assert given.origin.startswith(postgres_infra.URL_VARIABLE)
    assert postgres_sum(given.url) == 2
    with pytest.raises(Unavailable, match="not ours"):
        given.kill9()


def test_a_redis_that_the_environment_names_is_used_and_left_alone(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(redis_infra.URL_VARIABLE, redis_server.url)

    given = redis_infra.provide_redis()
    given.stop()

    assert (given.url, given.is_ours) == (redis_server.url, False)
    assert given.origin.startswith(redis_infra.URL_VARIABLE)
    assert redis_pings(given.url)
    with pytest.raises(Unavailable, match="not ours"):
        given.kill9()


def test_a_schema_of_a_test_is_its_own_and_goes_with_it(postgres_server: PostgresServer) -> None:
    async def write(url: str) -> None:
        async with open_store(url) as store:
            assert await store.get(b"key") is None
            await store.commit(Batch(puts={b"key": b"value"}))

    before = schemas(postgres_server.url)
    with own_schema(postgres_server) as first, own_schema(postgres_server) as second:
        asyncio.run(write(first))
        asyncio.run(write(second))
        during = schemas(postgres_server.url)

    assert len(during - before) >= 2
    assert {url.rpartition("schema=")[2] for url in (first, second)} & schemas(postgres_server.url) == set()


def schemas(url: str) -> set[str]:
    async def query() -> set[str]:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            return {row[0] for row in await connection.fetch("SELECT nspname FROM pg_namespace")}
        finally:
            await connection.close()

    return asyncio.run(query())


class Lines:
    """What a terminal would show."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write_line(self, line: str) -> None:
        self.written.append(line)


def test_the_summary_says_which_servers_served(
    redis_server: RedisServer, postgres_server: PostgresServer, pytestconfig: pytest.Config
) -> None:
    lines = Lines()

    pytest_terminal_summary(lines, pytestconfig)  # type: ignore[arg-type]  # All that is used of one.

    assert lines.written == [f"postgresql: {postgres_server.origin}", f"redis: {redis_server.origin}"]
