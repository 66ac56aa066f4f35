"""Queues over keys by HTTP: who gets which message, and what ends a delivery."""

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.wire.etcd.queue_plane import (
    QueuePlane,
    b64,
    opened,
    put_of,
)

_numbers = itertools.count(1)


@pytest.fixture(
    scope="module",
    params=["memory", "nodes", *(pytest.param(way, marks=pytest.mark.long) for way in ("disk", "split"))],
)
async def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[QueuePlane]:
    async with opened(request.param, request, tmp_path_factory.mktemp("store")) as plane:
        yield plane


@pytest.fixture
def q() -> str:
    """A queue of the test's own."""
    return f"d{next(_numbers)}"


def idx(number: int) -> str:
    return f"{number:020}"


async def test_an_ack_is_the_end_of_a_message_and_deletes_once(plane: QueuePlane, q: str) -> None:
    await plane.register(q, "A")
    await plane.send(q, "a")
    delivery = f"/q/{q}/c/A/{idx(1)}/a"

    answer = await plane.post("kv/deleterange", key=b64(delivery))

    assert answer["deleted"] == "1"
    assert await plane.messages(q) == {}
    again = await plane.post("kv/deleterange", key=b64(delivery))
    assert "deleted" not in again
    assert again["header"]["revision"] == answer["header"]["revision"] or plane.nodes > 1


async def test_a_consumer_that_leaves_gives_its_messages_to_others_in_their_old_places(
    plane: QueuePlane, q: str
) -> None:
    await plane.put(f"/q/{q}", '{"max_in_flight":2}')
    await plane.register(q, "A")
    await plane.send(q, "a", "b", "c")
    await plane.register(q, "B")
    assert [key[-1] for key in await plane.deliveries(q, "B")] == ["c"]
    await plane.delete(f"/q/{q}/c/B/{idx(3)}/c")
    await plane.send(q, "d")
    assert [key[-1] for key in await plane.deliveries(q, "B")] == ["d"]

    assert await plane.delete(f"/q/{q}/c/A") == 1

    assert [key[-1] for key in await plane.deliveries(q, "B")] == ["a", "d"]
    assert await plane.messages(q) == {1: "a", 2: "b", 4: "d"}
    assert await plane.delete(f"/q/{q}/c/A/{idx(1)}/a") == 0
    assert await plane.messages(q) == {1: "a", 2: "b", 4: "d"}


async def test_all_deliveries_of_an_ended_lease_go_in_one_revision(plane: QueuePlane, q: str) -> None:
    lease = await plane.register(q, "A")
    await plane.send(q, "a", "b")
    async with plane.watch(f"/queue/{q}/consumer/A/") as watch:
        await plane.post("lease/revoke", ID=lease)
        (registration,) = await watch.message()
        gone = await watch.message()

    assert (registration.kind, registration.key) == ("DELETE", f"/queue/{q}/consumer/A/")
    assert [(one.kind, one.key[-1]) for one in gone] == [("DELETE", "a"), ("DELETE", "b")]
    assert {one.revision for one in gone} == {registration.revision + 1}


async def test_consumers_take_turns_in_the_order_of_their_registration(plane: QueuePlane, q: str) -> None:
    await plane.put(f"/q/{q}", '{"max_in_flight":2}')
    for client in ("z", "a", "m"):
        await plane.register(q, client)
    await plane.send(q, *"12345678")

    found = {client: [key[-1] for key in await plane.deliveries(q, client)] for client in "zam"}

    assert found == {"z": ["1", "4"], "a": ["2", "5"], "m": ["3", "6"]}
    assert sorted(await plane.messages(q)) == list(range(1, 9))


async def test_sixteen_deliveries_are_open_at_a_time_unless_the_queue_says_otherwise(
    plane: QueuePlane, q: str
) -> None:
    await plane.register(q, "A")
    await plane.txn(*(put_of(f"/q/{q}/p/me/{number}", "x") for number in range(20)))

    assert len(await plane.deliveries(q, "A")) == 16


async def test_with_room_for_one_a_consumer_has_one_at_a_time_in_order(plane: QueuePlane, q: str) -> None:
    await plane.put(f"/q/{q}", '{"max_in_flight":1}')
    await plane.register(q, "A")
    await plane.send(q, *"abc")

    for number, name in enumerate("abc", 1):
        assert await plane.deliveries(q, "A") == [f"/q/{q}/c/A/{idx(number)}/{name}"]
        await plane.delete(f"/q/{q}/c/A/{idx(number)}/{name}")
    assert await plane.deliveries(q, "A") == []


async def test_messages_wait_for_an_ack_a_registration_or_room(plane: QueuePlane, q: str) -> None:
    await plane.put(f"/q/{q}", '{"max_in_flight":1}')
    await plane.send(q, *"abcd")
    assert await plane.below(f"/q/{q}/c/") == {}

    await plane.register(q, "A")
    assert len(await plane.deliveries(q, "A")) == 1
    await plane.delete(f"/q/{q}/c/A/{idx(1)}/a")
    assert await plane.deliveries(q, "A") == [f"/q/{q}/c/A/{idx(2)}/b"]
    await plane.put(f"/q/{q}", '{"max_in_flight":2}')
    assert len(await plane.deliveries(q, "A")) == 2
    await plane.register(q, "B")
    assert await plane.deliveries(q, "B") == [f"/q/{q}/c/B/{idx(4)}/d"]


async def test_a_range_delete_acknowledges_what_it_covers_and_then_ends_the_registration(
    plane: QueuePlane, q: str
) -> None:
    await plane.register(q, "A")
    await plane.send(q, *"abc")

    assert await plane.delete_below(f"/q/{q}/c/A/") == 4
    await plane.register(q, "B")

    assert await plane.messages(q) == {}
    assert await plane.below(f"/q/{q}/c/A/") == {}
    assert await plane.deliveries(q, "B") == []


async def test_a_range_delete_that_ends_the_registration_gives_back_what_it_does_not_cover(
    plane: QueuePlane, q: str
) -> None:
    await plane.register(q, "A")
    await plane.send(q, *"abc")

    deleted = await plane.post(
        "kv/deleterange", key=b64(f"/q/{q}/c/A/"), range_end=b64(f"/q/{q}/c/A/{idx(3)}")
    )

    assert deleted["deleted"] == "3"
    assert await plane.messages(q) == {3: "c"}
    assert await plane.below(f"/q/{q}/c/") == {}


async def test_a_delivery_that_is_not_acknowledged_in_time_is_taken_back(plane: QueuePlane, q: str) -> None:
    await plane.put(f"/q/{q}", '{"ack_timeout_s":1,"max_in_flight":1}')
    await plane.register(q, "A")
    await plane.register(q, "B")
    async with plane.watch(f"/queue/{q}/consumer/B/") as watch:
        await plane.send(q, "a")
        event = await watch.put(f"/queue/{q}/consumer/B/{idx(1)}/a")

    assert event.value == "a"


async def test_deliveries_have_no_lease_and_a_message_does_not_end_with_that_of_its_put(
    plane: QueuePlane, q: str
) -> None:
    lease = await plane.grant()
    await plane.register(q, "A")
    await plane.put(f"/q/{q}/p/me/a", "a", lease)
    assert all("lease" not in kv for kv in await plane.kvs(f"/q/{q}/c/A/0"))

    await plane.post("lease/revoke", ID=lease)

    assert await plane.messages(q) == {1: "a"}
    assert len(await plane.deliveries(q, "A")) == 1


async def test_the_lease_of_a_put_has_to_be_there(plane: QueuePlane, q: str) -> None:
    asked = {"key": b64(f"/q/{q}/p/me/a"), "value": b64("a"), "lease": 424242}

    assert await plane.refused("kv/put", **asked) == (404, 5)

    assert await plane.below(f"/queue/{q}") == {}


async def test_a_message_is_given_again_as_often_as_it_takes(plane: QueuePlane, q: str) -> None:
    await plane.send(q, "poison")
    for number in range(20):
        await plane.put(f"/q/{q}/c/A{number}/")
        assert len(await plane.deliveries(q, f"A{number}")) == 1
        await plane.delete(f"/q/{q}/c/A{number}/")

    assert await plane.messages(q) == {1: "poison"}
