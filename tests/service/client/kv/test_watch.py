"""Watches of both twins against a real plane: in order, without a gap, over lost connections and restarts."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.client import AsyncClient, Client, Compacted, DeleteOp, KvEvent, PutOp, RequestRefused
from holdfast.client.testing import TestServer
from holdfast.client.wire.hang_up import hang_up
from tests.service.client.locks.conftest import started

WAIT_S = 30.0


async def next_of(events: AsyncIterator[KvEvent]) -> tuple[str, bytes, bytes]:
    async with asyncio.timeout(WAIT_S):
        event = await anext(events)
    return event.type, event.kv.key, event.kv.value


async def test_changes_are_told_from_when_it_is_opened(async_client: AsyncClient, prefix: str) -> None:
    await async_client.kv.put(prefix + "before", "x")
    async with async_client.kv.watch(prefix, prefix=True) as watch:
        events = aiter(watch)
        first = asyncio.ensure_future(next_of(events))
        async with asyncio.timeout(WAIT_S):
            await watch.opened.wait()
        await async_client.kv.put(prefix + "a", "1")
        await async_client.kv.put(prefix.rstrip("/"), "not this")
        await async_client.kv.delete(prefix + "a")

        assert await first == ("PUT", f"{prefix}a".encode(), b"1")
        assert await next_of(events) == ("DELETE", f"{prefix}a".encode(), b"")


async def test_history_comes_first_with_what_was_there_before(async_client: AsyncClient, prefix: str) -> None:
    kv = async_client.kv
    begin = (await kv.put(prefix + "a", "1")).revision
    await kv.txn(success=[PutOp(prefix + "b", "2"), DeleteOp(prefix + "a")])

    async with kv.watch(prefix, prefix=True, start_revision=begin, prev_kv=True) as watch:
        events = aiter(watch)
        seen = [await anext(events) for _ in range(3)]

    assert [(event.type, event.kv.mod_revision - begin) for event in seen] == [
        ("PUT", 0),
        ("PUT", 1),
        ("DELETE", 1),
    ]
    assert [event.prev_kv.value if event.prev_kv else None for event in seen] == [None, None, b"1"]


async def test_it_goes_on_where_the_connection_was_lost(async_client: AsyncClient, prefix: str) -> None:
    numbers = [str(number).encode() for number in range(40)]
    begin = (await async_client.kv.put(prefix, numbers[0])).revision
    seen: list[bytes] = []
    async with async_client.kv.watch(prefix, start_revision=begin) as watch:
        events = aiter(watch)
        for number in numbers[1:]:
            seen.append((await next_of(events))[2])
            if len(seen) % 7 == 0:
                assert watch._socket is not None
                hang_up(watch._socket)  # As a network that breaks.
            await async_client.kv.put(prefix, number)
        seen.append((await next_of(events))[2])

    assert seen == numbers


async def test_a_loop_that_ends_within_a_revision_goes_on_within_it(
    async_client: AsyncClient, prefix: str
) -> None:
    puts = [PutOp(f"{prefix}{number}") for number in range(4)]
    begin = (await async_client.kv.txn(success=puts)).revision
    seen: list[bytes] = []
    async with async_client.kv.watch(prefix, prefix=True, start_revision=begin) as watch:
        for count in (1, 2, 1):
            async for event in watch:
                seen.append(event.kv.key)
                count -= 1
                if not count:
                    break

    assert seen == [f"{prefix}{number}".encode() for number in range(4)]


async def test_a_restart_of_the_server_leaves_nothing_out(prefix: str) -> None:
    async with TestServer("--qrf-disabled", "--tcp-listen", "off", store="disk") as server:
        async with AsyncClient(server.url) as client, client.kv.watch(prefix) as watch:
            events = aiter(watch)
            first = asyncio.ensure_future(next_of(events))
            async with asyncio.timeout(WAIT_S):
                await watch.opened.wait()
            await client.kv.put(prefix, "1")
            await first
            await asyncio.to_thread(server.restart)
            async with AsyncClient(server.url) as other:
                await other.kv.put(prefix, "2")

            assert await next_of(events) == ("PUT", prefix.encode(), b"2")


async def test_a_watch_of_what_was_compacted_fails(async_client: AsyncClient, prefix: str) -> None:
    old = (await async_client.kv.put(prefix, "1")).revision
    new = (await async_client.kv.put(prefix, "2")).revision
    await async_client.kv.compact(new)

    async with async_client.kv.watch(prefix, start_revision=old) as watch:
        with pytest.raises(Compacted) as raised:
            await next_of(aiter(watch))

    assert raised.value.compact_revision == new


async def test_a_watch_of_nothing_is_refused(async_client: AsyncClient) -> None:
    async with async_client.kv.watch("b", range_end="a") as watch:
        with pytest.raises(RequestRefused, match="watcher range is empty"):
            await next_of(aiter(watch))


async def test_a_watch_that_is_closed_by_another_task_ends(async_client: AsyncClient, prefix: str) -> None:
    async with async_client.kv.watch(prefix) as watch:

        async def read() -> list[KvEvent]:
            return [event async for event in watch]

        reading = asyncio.ensure_future(read())
        async with asyncio.timeout(WAIT_S):
            await watch.opened.wait()
        await watch.close()

        async with asyncio.timeout(WAIT_S):
            assert await reading == []


def test_the_blocking_twin_goes_on_where_the_connection_was_lost(client: Client, prefix: str) -> None:
    begin = client.kv.put(prefix, "0").revision
    with client.kv.watch(prefix, start_revision=begin) as watch:
        events = iter(watch)
        assert next(events).kv.value == b"0"
        assert watch._socket is not None
        hang_up(watch._socket)
        client.kv.put(prefix, "1")

        assert started(lambda: next(events)).result(WAIT_S).kv.value == b"1"
