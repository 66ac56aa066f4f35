"""The key space over one PostgreSQL, of two processes at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing, suppress

import pytest

from holdfast.state.layer.kv.operation import (
    UNBOUNDED,
    Compare,
    CompareTarget,
    Event,
    PutRequest,
    RangeRequest,
    TxnRequest,
    WatchRequest,
)
from holdfast.state.layer.kv.service import KvService
from holdfast.state.layer.kv.watch import WatchCompacted
from holdfast.storage.opening import open_store

COUNTERS = 4
INCREMENTS = 15
ALL = WatchRequest(UNBOUNDED, UNBOUNDED, prev_kv=True)


@pytest.fixture
async def nodes(postgres_url: str) -> AsyncIterator[list[KvService]]:
    async with AsyncExitStack() as stack:
        services: list[KvService] = []
        for _ in range(2):
            store = await stack.enter_async_context(open_store(postgres_url))
            services.append(KvService(store, store.clock))
            await stack.enter_async_context(services[-1].running())
        yield services


async def test_increments_by_compare_and_swap_are_not_lost_and_told_in_order_everywhere(
    nodes: list[KvService],
) -> None:
    watches = [await node.watch(ALL) for node in nodes]
    first = watches[0].created_revision

    async def increment(node: KvService) -> None:
        for _ in range(INCREMENTS):
            while not await _incremented(node):
                pass

    async with asyncio.TaskGroup() as group:
        for number in range(COUNTERS):
            group.create_task(increment(nodes[number % 2]))

    found = (await nodes[1].range(RangeRequest(b"n"))).kvs[0]
    last = COUNTERS * INCREMENTS
    assert (found.value, found.version, found.mod_revision) == (b"%d" % last, last, first + last)
    for watch in watches:
        events: list[Event] = []
        while len(events) < last:
            events += (await asyncio.wait_for(watch.next(), 10)).events
        watch.close()
        assert [event.kv.value for event in events] == [b"%d" % number for number in range(1, last + 1)]
        assert [event.kv.mod_revision for event in events] == list(range(first + 1, first + last + 1))
        assert [event.previous and event.previous.value for event in events] == [
            None,
            *[b"%d" % number for number in range(1, last)],
        ]


async def _incremented(node: KvService) -> bool:
    kvs = (await node.range(RangeRequest(b"n"))).kvs
    value = int(kvs[0].value) if kvs else 0
    is_same = Compare(b"n", target=CompareTarget.MOD, operand=kvs[0].mod_revision if kvs else 0)
    put = PutRequest(b"n", b"%d" % (value + 1))
    return (await node.txn(TxnRequest((is_same,), (put,)))).succeeded


async def test_a_lease_that_both_end_deletes_its_keys_once(nodes: list[KvService]) -> None:
    watches = [await node.watch(ALL._replace(no_put=True)) for node in nodes]
    lease, _ = await nodes[0].leases.grant(1)
    revision = 0
    for number in range(3):
        revision = (await nodes[1].put(PutRequest(b"k%d" % number, b"", lease))).revision

    told = [await asyncio.wait_for(watch.next(), 10) for watch in watches]
    await asyncio.sleep(1.5)  # The other one's turn comes, too.

    for batch in told:
        assert [event.kv.key for event in batch.events] == [b"k0", b"k1", b"k2"]
        assert {event.kv.mod_revision for event in batch.events} == {revision + 1}
    for node in nodes:
        assert await node.revision() == revision + 1
        assert await node.leases.time_to_live(lease) is None
        assert await node.leases.keep_alive(lease) == 0
    for watch in watches:
        watch.close()


async def test_a_lease_that_is_kept_alive_at_one_node_is_not_ended_by_the_other(
    nodes: list[KvService],
) -> None:
    lease, ttl_s = await nodes[0].leases.grant(1)
    await nodes[0].put(PutRequest(b"k", b"", lease))

    for _ in range(6):
        await asyncio.sleep(0.4)
        assert await nodes[1].leases.keep_alive(lease) == ttl_s

    assert (await nodes[0].range(RangeRequest(b"k"))).kvs


async def test_under_load_nothing_loses_to_writers_for_ever(nodes: list[KvService]) -> None:
    is_over = False

    async def write(node: KvService, key: bytes) -> None:
        number = 0
        while not is_over:
            number += 1
            await node.put(PutRequest(key, b"%d" % number * 200))

    async def read(node: KvService) -> None:
        while not is_over:
            for kv in (await node.range(RangeRequest(UNBOUNDED, UNBOUNDED))).kvs:
                assert len(kv.value) % 200 == 0
            await asyncio.sleep(0)

    async def watch(node: KvService) -> None:
        while not is_over:
            revision = await node.revision()
            with closing(await node.watch(ALL._replace(start_revision=revision))) as watched:
                with suppress(WatchCompacted):
                    await watched.next()

    async with asyncio.TaskGroup() as group:
        for number, node in enumerate(nodes):
            group.create_task(watch(node))
            group.create_task(write(node, b"k%d" % number))
            group.create_task(read(node))
        for _ in range(10):
            await asyncio.sleep(0.05)
            revision = await nodes[0].revision()
            await nodes[1].compact(revision, physical=True)
        is_over = True
