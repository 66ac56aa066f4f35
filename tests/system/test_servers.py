"""The servers that the tests bring along are real ones; those from wheels need nothing else on the machine."""

import asyncio

import asyncpg
import redis

from tests.infra import postgres as postgres_infra
from tests.infra import redis as redis_infra
from tests.infra.postgres import PostgresServer
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
