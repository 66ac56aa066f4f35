"""Queues over keys at the bounds of what one commit carries: nothing is lost, nothing stands still, nothing is refused for ever."""

from collections.abc import AsyncIterator

import pytest

from holdfast.queue.layer.keys.records import QUEUES
from holdfast.queue.layer.keys.rules import CLIENT_BYTES_MAX
from holdfast.state.layer.kv.errors import KvError, KvInvalid, KvRequestTooLarge
from holdfast.state.layer.kv.operation import DeleteRangeRequest, PutRequest, RangeRequest
from holdfast.state.layer.kv.records import KEY_BYTES
from holdfast.storage.port import RANGE_LIMIT_MAX
from tests.conformance.backends import SMALL, Backend
from tests.service.queue.keys.plane import Plane, memory_plane, open_plane

LARGE = 3 << 19


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    async with memory_plane() as plane:
        yield plane


def numbered(count: int) -> list[bytes]:
    return [b"%05d" % number for number in range(count)]


async def test_thousands_of_waiting_messages_go_to_a_consumer_with_room_for_them(plane: Plane) -> None:
    await plane.put(b"/q/q", b'{"max_in_flight":10000}')
    await plane.send_together(b"q", numbered(2500))

    await plane.register(b"q", b"A")

    keys = await plane.finished(b"q")
    assert len(keys.deliveries) == 2500
    assert [keys.messages[idx][1] for idx in sorted(keys.messages)] == numbered(2500)


async def test_a_consumer_with_thousands_of_deliveries_may_leave(plane: Plane) -> None:
    await plane.put(b"/q/q", b'{"max_in_flight":10000}')
    lease = await plane.register(b"q", b"A")
    await plane.send_together(b"q", numbered(2500))
    await plane.register(b"q", b"B")

    await plane.queues.leases.revoke(lease)

    keys = await plane.finished(b"q")
    assert {one.client for one in keys.deliveries.values()} == {b"B"}
    assert len(keys.deliveries) == 2500


async def test_one_that_registers_again_while_it_leaves_keeps_what_it_still_has(plane: Plane) -> None:
    await plane.put(b"/q/q", b'{"max_in_flight":10000}')
    await plane.register(b"q", b"A")
    await plane.send_together(b"q", numbered(2500))

    await plane.delete(b"/q/q/c/A/")
    await plane.register(b"q", b"A")

    keys = await plane.finished(b"q")
    assert {one.client for one in keys.deliveries.values()} == {b"A"}
    assert len(keys.deliveries) == 2500


async def test_a_range_delete_acknowledges_hundreds_at_once(plane: Plane) -> None:
    await plane.put(b"/q/q", b'{"max_in_flight":1000,"ack_timeout_s":600}')
    await plane.register(b"q", b"A")
    await plane.send_together(b"q", numbered(1500))

    assert await plane.delete_below(b"/q/q/c/A/0") == 1000

    keys = await plane.finished(b"q")
    assert sorted(keys.deliveries) == list(range(1001, 1501))


async def test_what_is_more_than_one_commit_carries_is_refused_and_can_be_done_in_parts(
    plane: Plane,
) -> None:
    await plane.put(b"/q/q", b'{"max_in_flight":10000}')
    await plane.register(b"q", b"A")
    await plane.send_together(b"q", numbered(4000))
    await plane.finished(b"q")

    with pytest.raises(KvRequestTooLarge):
        await plane.delete_below(b"/q/q/c/A/0")

    assert len((await plane.check(b"q")).messages) == 4000
    deleted = 0
    for first in range(1, 4001, 500):
        start, end = (b"/q/q/c/A/%020d" % idx for idx in (first, first + 500))
        deleted += await plane.delete(start, end)
    assert deleted == 4000
    assert (await plane.finished(b"q")).messages == {}


async def test_a_thousand_consumers_take_turns(plane: Plane) -> None:
    lease, _ = await plane.queues.leases.grant(60)
    for number in range(1000):
        await plane.put(b"/q/q/c/%04d" % number, b"", lease)

    await plane.send_together(b"q", numbered(1200))

    keys = await plane.finished(b"q")
    clients = [keys.deliveries[idx].client for idx in sorted(keys.deliveries)]
    assert clients == [b"%04d" % (number % 1000) for number in range(1200)]
    await plane.queues.leases.revoke(lease)
    keys = await plane.finished(b"q")
    assert (len(keys.messages), keys.deliveries, keys.registered) == (1200, {}, set())


async def test_a_lease_with_consumers_of_many_queues_ends_with_all_of_them(plane: Plane) -> None:
    """What follows for all queues together is bounded, not what follows for each."""
    lease, _ = await plane.queues.leases.grant(60)
    queues = [b"q%03d" % number for number in range(400)]
    for queue in queues:
        await plane.put(b"/q/%b/c/A" % queue, b"", lease)
        await plane.put(b"/q/%b/c/B" % queue, b"", lease)
        await plane.send_together(queue, numbered(10))

    await plane.queues.leases.revoke(lease)

    for queue in queues:
        keys = await plane.finished(queue)
        assert (len(keys.messages), keys.deliveries, keys.registered) == (10, {}, set())


async def test_large_messages_go_to_a_consumer_that_comes_and_back_when_it_leaves(plane: Plane) -> None:
    for number in range(12):
        await plane.put(b"/q/q/p/me/%d" % number, b"%02d" % number + bytes(LARGE - 100))

    lease = await plane.register(b"q", b"A")
    keys = await plane.finished(b"q")
    assert len(keys.deliveries) == 12
    await plane.register(b"q", b"B")
    await plane.queues.leases.revoke(lease)

    keys = await plane.finished(b"q")
    assert {one.client for one in keys.deliveries.values()} == {b"B"}
    assert [value[:2] for _, value in keys.messages.values()] == [b"%02d" % number for number in range(12)]
    for key in await plane.below(b"/q/q/c/B/0"):
        assert await plane.delete(key) == 1
    assert (await plane.finished(b"q")).messages == {}


async def test_messages_with_long_names_go_to_every_consumer(plane: Plane) -> None:
    """One whose delivery would have too long a key is refused, where its producer hears of it."""
    client = b"c" * CLIENT_BYTES_MAX
    await plane.put(b"/q/q/c/%b/" % client)
    taken = 0
    for length in range(1600, KEY_BYTES, 20):
        try:
            await plane.put(b"/q/q/p/me/%b" % (b"n" * length), b"x")
        except KvRequestTooLarge:
            continue
        taken += 1

    keys = await plane.finished(b"q")

    assert taken
    assert len(keys.messages) == taken
    assert {one.client for one in keys.deliveries.values()} == {client}


@pytest.mark.parametrize("client", [b"c" * (CLIENT_BYTES_MAX + 1), b"\0" * (CLIENT_BYTES_MAX // 2 + 1)])
async def test_a_consumer_with_too_long_an_id_is_refused(plane: Plane, client: bytes) -> None:
    with pytest.raises(KvInvalid):
        await plane.put(b"/q/q/c/%b/" % client)
    with pytest.raises(KvInvalid):
        await plane.watch(b"/q/q/c/%b/" % client)

    assert await plane.below(b"/queue/q") == {}


HOSTILE = [
    b"/q/%b",
    b"/q/%b/",
    b"/q/%b/p/me/m",
    b"/q/%b/p/m",
    b"/q/%b/c/A",
    b"/q/%b/config",
    b"/q/%b/1/m",
    b"/q/x/p/%b",
    b"/q/x/p/%b/m",
    b"/q/x/p/me/%b",
    b"/q/x/c/%b/",
    b"/q/x/c/%b",
    b"/q/x/c/A/%b",
    b"/q/x/%b/m",
    b"/queue/x/%b",
    b"/q%b",
]
PARTS = [
    b"",
    b"/",
    b"//////",
    b"\0",
    b"\0" * 900,
    b"\xff" * 300,
    b"a" * 1900,
    b"a" * 1990,
    b"a" * 2048,
    b"a" * 5000,
    b"9" * 40,
    b"0" * 20,
    b"-1",
    b"..",
    "ü".encode("latin-1"),
]


@pytest.mark.parametrize("form", HOSTILE)
async def test_hostile_keys_are_taken_or_refused(backend: Backend, form: bytes) -> None:
    """Whatever a key looks like: no defect, and the queues are whole."""
    async with backend.open(SMALL) as store, open_plane(store) as plane:
        for part in PARTS:
            key = form.replace(b"%b", part)
            for call in (
                plane.put(key, b"x"),
                plane.txn(PutRequest(key, b"y"), PutRequest(b"/plain", b"z")),
                plane.queues.range(RangeRequest(key)),
                plane.below(key),
                plane.delete(key),
                plane.delete_below(key),
                plane.txn(DeleteRangeRequest(key)),
            ):
                try:
                    await call
                except KvError as error:
                    assert error.status in (400, 403, 412)
        for row in await QUEUES.fetch_range(store, limit=RANGE_LIMIT_MAX):
            queue = row.parts[0]
            assert isinstance(queue, bytes)
            await plane.finished(queue)
        await plane.send(b"alive", b"1")
        assert list((await plane.check(b"alive")).messages) == [1]
