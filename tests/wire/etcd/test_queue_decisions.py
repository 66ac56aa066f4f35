"""Queues over keys by HTTP: what the specification leaves open and holdfast has decided of places, order and the queue."""

import itertools
import json
from collections.abc import AsyncIterator

import pytest

from tests.wire.etcd.queue_plane import (
    KEY_MISSING,
    NOT_EMPTY,
    QueuePlane,
    b64,
    delete_of,
    opened,
    put_of,
    text,
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


# -- places and order


async def test_idx_are_twenty_digits_count_from_one_and_are_never_used_again(
    plane: QueuePlane, q: str
) -> None:
    await plane.send(q, "a", "b")
    assert list(await plane.below(f"/q/{q}/0")) == [f"/q/{q}/{idx(1)}/a", f"/q/{q}/{idx(2)}/b"]
    await plane.register(q, "A")
    assert await plane.delete_below(f"/q/{q}/c/A/0") == 2
    assert await plane.messages(q) == {}

    await plane.send(q, "c")

    assert await plane.messages(q) == {3: "c"}


async def test_messages_of_one_transaction_keep_the_order_of_its_operations(
    plane: QueuePlane, q: str
) -> None:
    names = ["z", "a", "m", "0"]
    await plane.txn(*(put_of(f"/q/{q}/p/me/{name}", name) for name in names))

    assert list((await plane.messages(q)).values()) == names


async def test_every_put_is_a_message_also_of_the_same_key(plane: QueuePlane, q: str) -> None:
    for value in ("1", "2", "2"):
        await plane.put(f"/q/{q}/p/me/same", value)

    assert await plane.messages(q) == {1: "1", 2: "2", 3: "2"}


async def test_the_rest_of_a_producer_key_is_the_name_of_the_message(plane: QueuePlane, q: str) -> None:
    await plane.put(f"/q/{q}/p/me/a/b/c", "1")
    await plane.put(f"/q/{q}/p/alone", "2")

    assert await plane.below(f"/q/{q}/0") == {f"/q/{q}/{idx(1)}/a/b/c": "1", f"/q/{q}/{idx(2)}/alone": "2"}


async def test_a_message_without_a_name_is_refused(plane: QueuePlane, q: str) -> None:
    for key in (f"/q/{q}/p/me/", f"/q/{q}/p/", f"/queue/{q}/producer", f"/q/{q}/p//m"):
        assert await plane.refused("kv/put", key=b64(key), value=b64("x")) == KEY_MISSING, key

    assert await plane.below(f"/queue/{q}") == {}


async def test_what_is_put_is_moved_in_the_next_revision(plane: QueuePlane, q: str) -> None:
    await plane.register(q, "A")
    async with plane.watch(f"/queue/{q}/") as watch:
        await plane.put(f"/q/{q}/p/me/m", "1")
        put, *moved = await watch.events(4)

    assert (put.kind, put.key) == ("PUT", f"/queue/{q}/producer/me/m")
    assert {one.revision for one in moved} == {put.revision + 1}
    assert [(one.kind, one.key) for one in moved] == [
        ("DELETE", f"/queue/{q}/producer/me/m"),
        ("PUT", f"/queue/{q}/{idx(1)}/m"),
        ("PUT", f"/queue/{q}/consumer/A/{idx(1)}/m"),
    ]
    assert await plane.below(f"/q/{q}/p/") == {}


# -- the queue and its node


async def test_the_first_node_that_handles_an_event_of_a_queue_is_named_by_it(
    plane: QueuePlane, q: str
) -> None:
    members = set()
    for _ in range(plane.nodes):
        answer = await plane.put(f"/q/{q}/p/me/m", "1")
        members.add(answer["header"]["member_id"])

    named = text((await plane.get(f"/q/{q}"))["value"])
    assert named in members
    assert text((await plane.get(f"/holdfast/nodes/{named}"))["value"]) == named


async def test_a_node_shows_by_a_lease_of_ten_seconds_that_it_lives(plane: QueuePlane, q: str) -> None:
    await plane.send(q, "a")
    named = text((await plane.get(f"/q/{q}"))["value"])

    lease = (await plane.get(f"/holdfast/nodes/{named}"))["lease"]

    assert (await plane.post("lease/timetolive", ID=lease))["grantedTTL"] == "10"


async def test_a_put_on_the_queue_creates_it_with_settings(plane: QueuePlane, q: str) -> None:
    answer = await plane.put(f"/q/{q}", '{"reliability":"few","max_in_flight":3,"ack_timeout_s":7}')

    value = text((await plane.get(f"/queue/{q}"))["value"])
    assert value.isdigit()
    assert plane.nodes > 1 or value == answer["header"]["member_id"]
    assert json.loads(text((await plane.get(f"/q/{q}/config"))["value"])) == {
        "reliability": "few",
        "max_in_flight": 3,
        "ack_timeout_s": 7,
    }


async def test_what_settings_do_not_name_stays(plane: QueuePlane, q: str) -> None:
    await plane.put(f"/q/{q}", '{"max_in_flight":3}')
    await plane.put(f"/q/{q}", '{"ack_timeout_s":7}')
    await plane.put(f"/q/{q}", "anything else")

    assert json.loads(text((await plane.get(f"/q/{q}/config"))["value"])) == {
        "reliability": "majority",
        "max_in_flight": 3,
        "ack_timeout_s": 7,
    }
    assert text((await plane.get(f"/q/{q}"))["value"]).isdigit()


async def test_wrong_settings_are_refused_and_create_nothing(plane: QueuePlane, q: str) -> None:
    for value in ("{", '{"max_in_flight":0}', '{"reliability":"most"}', '{"other":1}'):
        assert await plane.refused("kv/put", key=b64(f"/q/{q}"), value=b64(value)) == (400, 3)

    assert await plane.below(f"/queue/{q}") == {}


async def test_the_key_of_a_queue_takes_no_lease(plane: QueuePlane, q: str) -> None:
    lease = await plane.grant()
    await plane.put(f"/q/{q}", "{}", lease)
    assert "lease" not in await plane.get(f"/q/{q}")
    await plane.put(f"/q/{q}", "x", lease)

    await plane.post("lease/revoke", ID=lease)

    assert text((await plane.get(f"/q/{q}"))["value"]).isdigit()


async def test_a_queue_is_deleted_only_when_nothing_is_left_in_it(plane: QueuePlane, q: str) -> None:
    await plane.send(q, "a")
    assert await plane.refused("kv/deleterange", key=b64(f"/q/{q}")) == NOT_EMPTY
    await plane.register(q, "A")
    assert await plane.delete(f"/q/{q}/c/A/{idx(1)}/a") == 1
    assert await plane.refused("kv/deleterange", key=b64(f"/queue/{q}")) == NOT_EMPTY
    answer = await plane.call("kv/deleterange", key=b64(f"/q/{q}"))
    assert answer.json()["message"] == "queue is not empty"
    assert await plane.delete(f"/q/{q}/c/A") == 1

    assert await plane.delete(f"/q/{q}") == 1

    assert await plane.below(f"/queue/{q}") == {}
    assert await plane.delete(f"/q/{q}") == 0
    await plane.send(q, "b")
    assert await plane.messages(q) == {1: "b"}


async def test_the_last_message_the_last_consumer_and_the_queue_may_go_in_one_transaction(
    plane: QueuePlane, q: str
) -> None:
    await plane.register(q, "A")
    await plane.send(q, "a")

    await plane.txn(delete_of(f"/q/{q}/c/A/{idx(1)}/a"), delete_of(f"/q/{q}/c/A/"), delete_of(f"/q/{q}"))

    assert await plane.below(f"/queue/{q}") == {}


async def test_an_empty_queue_without_consumers_stays(plane: QueuePlane, q: str) -> None:
    await plane.register(q, "A")
    await plane.send(q, "a")
    await plane.delete_below(f"/q/{q}/c/A/")

    assert list(await plane.below(f"/q/{q}")) == [f"/q/{q}", f"/q/{q}/config"]
