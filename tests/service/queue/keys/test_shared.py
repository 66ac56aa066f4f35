"""Queues over keys in a store that several processes share: calls that come together, and what they cost."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.queue.layer.keys import names
from holdfast.state.layer.kv.errors import KvError, KvForbidden, KvRequestTooLarge
from holdfast.state.layer.kv.operation import DeleteRangeRequest, PutRequest
from holdfast.storage.opening import open_store
from tests.service.leases.test_round_trips import Trips
from tests.service.queue.keys.plane import NODE, OTHER_NODE, Plane, open_plane


@pytest.fixture
async def nodes(postgres_url: str) -> AsyncIterator[tuple[Plane, Plane]]:
    async with open_store(postgres_url) as one, open_store(postgres_url) as other:
        async with open_plane(one, node_id=NODE) as here, open_plane(other, node_id=OTHER_NODE) as there:
            yield here, there


async def test_what_is_refused_leaves_nothing_of_it_and_the_calls_beside_it_alone(
    nodes: tuple[Plane, Plane],
) -> None:
    """They share a commit."""
    here, _ = nodes
    await here.put(b"/q/empty", b"")
    await here.send(b"q", b"a")
    refused = [
        here.txn(DeleteRangeRequest(b"/q/empty"), DeleteRangeRequest(b"/q/q", b"/q/q\xff")),
        here.txn(DeleteRangeRequest(b"/q/empty"), DeleteRangeRequest(b"/q/q")),
        here.txn(PutRequest(b"/q/empty/p/me/m"), PutRequest(b"/q/q", b'{"max_in_flight":0}')),
        here.put(b"/q/q/p/me/" + b"n" * 1800),
        here.put(b"/q/q/p/me/" + b"n" * 3000),
        here.put(b"/plain/" + b"n" * 3000),
        here.delete(b"/plain/" + b"n" * 3000),
    ]
    taken = [here.send(b"q", b"%d" % number) for number in range(10)]

    outcomes = await asyncio.gather(*taken[:5], *refused, *taken[5:], return_exceptions=True)

    assert [isinstance(one, KvError) for one in outcomes] == [*[False] * 5, *[True] * 7, *[False] * 5]
    assert isinstance(outcomes[5], KvForbidden)
    assert isinstance(outcomes[9], KvRequestTooLarge)
    assert (await here.check(b"empty")).host == b"%d" % NODE
    assert sorted((await here.check(b"q")).messages) == list(range(1, 12))
    await here.send(b"empty", b"first")
    assert sorted((await here.check(b"empty")).messages) == [1]


async def test_producers_and_consumers_at_two_nodes_lose_and_double_nothing(
    nodes: tuple[Plane, Plane],
) -> None:
    here, there = nodes
    count = 60
    done: list[bytes] = []
    await here.put(b"/q/q", b'{"max_in_flight":3}')

    async def produce(plane: Plane, name: bytes) -> None:
        for number in range(count):
            await plane.send(b"q", b"%b%d" % (name, number))

    async def consume(plane: Plane, client: bytes) -> None:
        prefix = b"/q/q/c/%b/" % client
        await plane.register(b"q", client)
        watch = await plane.watch(prefix)
        for delivery in await plane.below(prefix + b"0"):
            await finish(plane, delivery)
        while len(done) < 2 * count:
            for event in (await watch.next()).events:
                if not event.is_delete and event.kv.key != prefix:
                    await finish(plane, event.kv.key)
        watch.close()

    async def finish(plane: Plane, delivery: bytes) -> None:
        if await plane.delete(delivery):
            done.append(delivery.rpartition(b"/")[2])

    consumers = [
        asyncio.ensure_future(consume(plane, name))
        for plane, name in ((here, b"A"), (there, b"B"), (there, b"C"))
    ]
    await asyncio.gather(produce(here, b"h"), produce(there, b"t"))
    async with asyncio.timeout(60):
        await asyncio.wait(consumers, return_when=asyncio.FIRST_COMPLETED)
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)

    assert sorted(done) == sorted(b"%b%d" % (name, one) for name in (b"h", b"t") for one in range(count))
    keys = await here.finished(b"q")
    assert (keys.messages, keys.deliveries) == ({}, {})


async def test_what_one_node_leaves_unfinished_another_one_does(
    nodes: tuple[Plane, Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that has begun it is killed before it goes on."""
    here, there = nodes
    await here.put(b"/q/q", b'{"max_in_flight":10000}')
    await here.send_together(b"q", [b"%d" % number for number in range(600)])
    monkeypatch.setattr(here.queues.overdue, "_see_to", _never)

    await here.register(b"q", b"A")

    assert len((await there.finished(b"q")).deliveries) == 600


async def _never(place: object) -> None:
    await asyncio.Event().wait()


async def test_a_warm_message_costs_one_commit_for_its_put_and_one_for_its_ack(
    nodes: tuple[Plane, Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = nodes
    trips = Trips(monkeypatch)
    await here.register(b"q", b"A")
    await here.register(b"q", b"B")
    for number in range(20):
        await here.send(b"q", b"warm%d" % number)
        client = b"BA"[(number + 1) % 2 :][:1]
        await here.delete(names.delivery_key(b"q", client, number + 1, b"warm%d" % number))
    assert (await here.check(b"q")).messages == {}

    put = await trips.of(lambda: here.send(b"q", b"hot"))
    ack = await trips.of(lambda: here.delete(names.delivery_key(b"q", b"A", 21, b"hot")))

    assert (await here.check(b"q")).messages == {}
    assert (put, ack) == (["commit"], ["commit"])


async def test_a_message_that_waits_costs_its_put_no_more(
    nodes: tuple[Plane, Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the ack before it one fetch, of what waits."""
    here, _ = nodes
    trips = Trips(monkeypatch)
    await here.put(b"/q/q", b'{"max_in_flight":1}')
    await here.register(b"q", b"A")
    for number in range(20):
        await here.send(b"q", b"%d" % number)

    put = await trips.of(lambda: here.send(b"q", b"waits"))
    ack = await trips.of(lambda: here.delete(names.delivery_key(b"q", b"A", 1, b"0")))

    assert len((await here.check(b"q")).deliveries) == 1
    assert (put, ack) == (["commit"], ["fetch", "commit"])
