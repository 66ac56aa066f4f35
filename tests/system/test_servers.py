"""The servers that the tests bring along are real ones; those from wheels need nothing else on the machine."""

import asyncio

import asyncpg
import pytest
import redis

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
