"""Watches register consumers, also when connections break and open again, at this process or at another one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.queue.layer.keys.consumers import WATCHER_RENEW_S
from holdfast.state.layer.kv.operation import WatchRequest
from holdfast.storage.opening import open_store
from tests.service.queue.keys.plane import NODE, OTHER_NODE, Plane, memory_plane, open_plane

WATCHED = b"/q/q/c/A/"


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    async with memory_plane() as plane:
        yield plane


@pytest.fixture
async def nodes(postgres_url: str) -> AsyncIterator[tuple[Plane, Plane]]:
    async with open_store(postgres_url) as one, open_store(postgres_url) as other:
        async with open_plane(one, node_id=NODE) as here, open_plane(other, node_id=OTHER_NODE) as there:
            yield here, there


async def left(plane: Plane) -> None:
    """What closed watches cause has happened."""
    await asyncio.gather(*plane.queues.consumers.ending)


async def test_a_watch_that_opens_again_before_the_broken_one_ends_keeps_its_consumer(plane: Plane) -> None:
    broken = await plane.watch(WATCHED)
    again = await plane.watch(WATCHED)

    broken.close()
    await left(plane)

    assert (await plane.check(b"q")).registered == {b"A"}
    again.close()
    await left(plane)
    assert (await plane.check(b"q")).registered == set()


async def test_of_two_watches_the_one_that_stays_keeps_the_consumer(plane: Plane) -> None:
    first = await plane.watch(WATCHED)
    second = await plane.watch(WATCHED)

    second.close()
    await left(plane)

    assert (await plane.check(b"q")).registered == {b"A"}
    first.close()
    await left(plane)
    assert (await plane.check(b"q")).registered == set()


async def test_a_consumer_that_comes_back_to_another_node_stays(nodes: tuple[Plane, Plane]) -> None:
    here, there = nodes
    broken = await here.watch(WATCHED)
    await here.send(b"q", b"a")
    again = await there.watch(WATCHED)

    broken.close()
    await left(here)

    keys = await there.check(b"q")
    assert keys.registered == {b"A"}
    assert len(keys.deliveries) == 1
    again.close()
    await left(there)
    assert (await here.check(b"q")).registered == set()


async def test_a_client_that_registers_itself_outlives_its_watch(plane: Plane) -> None:
    watch = await plane.watch(WATCHED)
    await plane.register(b"q", b"A")

    watch.close()
    await left(plane)

    assert (await plane.check(b"q")).registered == {b"A"}


async def test_one_that_its_client_has_ended_is_not_ended_again(plane: Plane) -> None:
    watch = await plane.watch(WATCHED)
    await plane.delete(b"/q/q/c/A")
    await plane.register(b"q", b"A")

    watch.close()
    await left(plane)

    assert (await plane.check(b"q")).registered == {b"A"}


async def test_a_watch_of_one_key_tells_of_it_as_it_was_asked_for(plane: Plane) -> None:
    watch = await plane.queues.watch(WatchRequest(b"/q/q/c/A"))
    batch = await watch.next()
    watch.close()

    assert {event.kv.key for event in batch.events} == {b"/q/q/c/A"}


async def test_many_watches_that_vanish_leave_nothing(plane: Plane) -> None:
    await plane.send(b"q", *(b"%d" % number for number in range(20)))
    for _ in range(5):
        watches = await asyncio.gather(*(plane.watch(b"/q/q/c/%d/" % number) for number in range(40)))
        for watch in watches[::2]:
            watch.close()
        abandoned = [asyncio.ensure_future(plane.watch(b"/q/q/c/%d/" % number)) for number in range(40, 60)]
        await asyncio.sleep(0)
        for task in abandoned:
            task.cancel()
        await asyncio.gather(*abandoned, return_exceptions=True)
        for watch in watches[1::2]:
            watch.close()
    await left(plane)

    keys = await plane.finished(b"q")
    assert keys.registered == set()
    assert sorted(keys.messages) == list(range(1, 21))
    assert plane.queues.watchers == 0


def test_an_open_watch_renews_before_the_lease_of_its_consumer_ends() -> None:
    assert 2 * WATCHER_RENEW_S < 60
