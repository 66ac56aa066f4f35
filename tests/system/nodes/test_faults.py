"""A plane that is cut off from its database, or stopped, while another one goes on: whoever waits there is told of what
it missed as soon as the database can be reached again, and does not wait for the end of a lease of two minutes.
"""

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator
from multiprocessing.context import ForkServerContext
from typing import Protocol
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.infra.postgres import PostgresServer
from tests.infra.proxy import Proxy
from tests.infra.redis import RedisServer
from tests.system.nodes.nodes import Nodes, Pair, compact, whole_nodes
from tests.system.nodes.test_queue import waiting_consumer
from tests.wire.lockd.conftest import Lease
from tests.wire.lockd.queue_wire import dequeue, enqueue

TOLD_S = 15  # Far below TTL_S.
TTL_S = 120


class Cutoff:
    """Three planes on one database; the second one reaches it through a proxy, the third one may be killed."""

    def __init__(self, nodes: Nodes, server: PostgresServer, redis: RedisServer, proxy: Proxy) -> None:
        self.nodes = nodes
        self.server = server
        self.redis = redis
        self.proxy = proxy
        self.pair = nodes.pair("one-two")
        self.store_url = nodes.store_url

    async def execute(self, statement: str) -> None:
        schema = self.store_url.partition("schema=")[2]
        connection = await asyncpg.connect(self.server.url, server_settings={"search_path": schema})
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


class Waiting(Protocol):
    """A waiter at the second plane, and what has to wake it."""

    async def begin(self, pair: Pair) -> None: ...

    async def act(self, pair: Pair) -> None: ...

    async def told(self) -> None: ...


class ForLease:
    def __init__(self) -> None:
        self._key = f"orders-{secrets.token_hex(4)}"

    async def begin(self, pair: Pair) -> None:
        self._held = await pair.a.acquire(self._key, ttl_seconds=TTL_S)
        self._task: asyncio.Task[Lease] = asyncio.create_task(
            pair.b.acquire(self._key, block_seconds=55, owner="waiter")
        )
        await pair.b.until_waiting()

    async def act(self, pair: Pair) -> None:
        assert (await pair.a.release(self._held)).status_code == 200

    async def told(self) -> None:
        assert (await self._task).token > self._held.token


class ForMessage:
    def __init__(self) -> None:
        self._queue = f"orders-{secrets.token_hex(4)}"

    async def begin(self, pair: Pair) -> None:
        self._task = await waiting_consumer(pair, self._queue)

    async def act(self, pair: Pair) -> None:
        self._sent = await enqueue(pair.a, self._queue)

    async def told(self) -> None:
        assert (await self._task).message["message_id"] == self._sent["message_id"]


@pytest.fixture(scope="module")
async def cutoff(
    processes: ForkServerContext, own_postgres_server: PostgresServer, own_redis_server: RedisServer
) -> AsyncIterator[Cutoff]:
    url = urlsplit(own_postgres_server.url)
    assert url.hostname is not None and url.port is not None
    schema = f"schema=cutoff_{secrets.token_hex(6)}"
    async with Proxy(url.hostname, url.port).running() as proxy:
        through = url._replace(netloc=f"{url.username}@127.0.0.1:{proxy.port}")
        direct = f"{url.geturl()}?{schema}"
        urls = {"one": direct, "two": f"{through.geturl()}?{schema}", "three": direct}
        async with whole_nodes(processes, urls, redis_url=own_redis_server.url) as nodes:
            yield Cutoff(nodes, own_postgres_server, own_redis_server, proxy)


@pytest.fixture(params=[ForLease, ForMessage])
def waiting(request: pytest.FixtureRequest) -> Waiting:
    made: Waiting = request.param()
    return made


async def told(waiting: Waiting) -> None:
    async with asyncio.timeout(TOLD_S):
        await waiting.told()


async def test_no_hint_at_all_leaves_the_poll(cutoff: Cutoff, waiting: Waiting) -> None:
    await waiting.begin(cutoff.pair)
    cutoff.redis.kill9()
    try:
        await cutoff.execute("DELETE FROM listeners")  # So that no commit sends a NOTIFY.
        await waiting.act(cutoff.pair)
        await told(waiting)
    finally:
        cutoff.redis.restart()


async def test_connections_that_are_reset_are_opened_again(cutoff: Cutoff, waiting: Waiting) -> None:
    await waiting.begin(cutoff.pair)

    cutoff.proxy.reset_all()
    await waiting.act(cutoff.pair)

    await told(waiting)


async def test_what_happened_during_a_partition_is_told_after_it(cutoff: Cutoff, waiting: Waiting) -> None:
    """Every connection stays half open: neither end is told that it is of no use, and no answer comes."""
    await waiting.begin(cutoff.pair)

    cutoff.proxy.partition()
    try:
        await waiting.act(cutoff.pair)
        await asyncio.sleep(3)  # Long enough for a poll to be on its way.
    finally:
        cutoff.proxy.heal()

    await told(waiting)


async def test_half_open_connections_are_found_out_without_a_partition(
    cutoff: Cutoff, waiting: Waiting
) -> None:
    """New connections work all the time; the old ones hang."""
    await waiting.begin(cutoff.pair)

    cutoff.proxy.partition()
    cutoff.proxy.heal()
    await waiting.act(cutoff.pair)

    await told(waiting)


async def test_a_database_that_is_restarted_tells_what_was_missed(cutoff: Cutoff, waiting: Waiting) -> None:
    await waiting.begin(cutoff.pair)

    cutoff.server.kill9()
    cutoff.server.restart()
    await waiting.act(cutoff.pair)

    await told(waiting)


@pytest.mark.parametrize("is_compacted", [False, True], ids=["kept", "compacted"])
async def test_a_plane_that_was_stopped_is_told_what_it_missed(
    cutoff: Cutoff, waiting: Waiting, is_compacted: bool
) -> None:
    await waiting.begin(cutoff.pair)

    cutoff.nodes.signal("two", signal.SIGSTOP)
    try:
        await waiting.act(cutoff.pair)
        if is_compacted:
            await compact(cutoff.store_url)
    finally:
        cutoff.nodes.signal("two", signal.SIGCONT)

    await told(waiting)


async def test_history_that_is_compacted_at_once_wakes_everybody_who_may_have_missed_something(
    cutoff: Cutoff, waiting: Waiting
) -> None:
    """Cut off while it happens, so that the first look afterwards finds the history gone."""
    await waiting.begin(cutoff.pair)

    cutoff.proxy.partition()
    try:
        await waiting.act(cutoff.pair)
        await compact(cutoff.store_url)
    finally:
        cutoff.proxy.heal()

    await told(waiting)


async def test_what_a_killed_plane_held_comes_to_the_waiters_of_another_one(cutoff: Cutoff) -> None:
    """Keys of a transaction with what was staged, and a message; no client is left there to end them."""
    name = f"left-{secrets.token_hex(4)}"
    dying, living = cutoff.nodes.entrances["three"], cutoff.pair.b
    await enqueue(dying, name)
    first = await dying.acquire(name, ttl_seconds=3)
    await dying.acquire(f"{name}-joined", ttl_seconds=3, txn_id=first.txn_id)
    await dying.update(first, b'{"state":"staged"}')
    await dequeue(dying, name, visibility_timeout_seconds=3)
    waiting = [
        asyncio.create_task(living.acquire(key, block_seconds=55, owner="waiter"))
        for key in (name, f"{name}-joined")
    ]
    consuming = await waiting_consumer(cutoff.pair, name)

    cutoff.nodes.kill("three")

    async with asyncio.timeout(TOLD_S):
        await asyncio.gather(*waiting)
        assert (await consuming).message["attempts"] == 2
    assert (await living.read(name)).status_code == 204
