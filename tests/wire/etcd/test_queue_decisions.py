"""Queues over keys by HTTP: what the specification leaves open and holdfast has decided, one decision a test."""

import itertools
import json
from collections.abc import AsyncIterator

import pytest

from tests.wire.etcd.queue_plane import (
    KEY_MISSING,
    NOT_EMPTY,
    PERMISSION_DENIED,
    QueuePlane,
    b64,
    delete_of,
    end_of,
    opened,
    put_of,
    range_of,
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


# -- consumers


@pytest.mark.parametrize("end", ["", "/"])
async def test_a_registration_is_put_with_any_value_and_names_the_node(
    plane: QueuePlane, q: str, end: str
) -> None:
    answer = await plane.put(f"/q/{q}/c/A{end}", "anything", await plane.grant())

    assert await plane.below(f"/q/{q}/c/") == {f"/q/{q}/c/A/": answer["header"]["member_id"]}


@pytest.mark.parametrize(("end", "is_prefix"), [("", True), ("", False), ("/", True), ("/", False)])
async def test_a_watch_registers_its_consumer_for_as_long_as_it_is_open(
    plane: QueuePlane, q: str, end: str, is_prefix: bool
) -> None:
    async with plane.watch(f"/queue/{q}/consumer/") as whole:
        async with plane.watch(f"/q/{q}/c/A{end}", is_prefix=is_prefix):
            registration = await whole.put(f"/queue/{q}/consumer/A/")
            assert registration.value.isdigit()
            await plane.send(q, "a")
            await whole.put(f"/queue/{q}/consumer/A/{idx(1)}/a")
        gone = {event.key for event in await whole.events(2) if event.kind == "DELETE"}

    assert gone == {f"/queue/{q}/consumer/A/", f"/queue/{q}/consumer/A/{idx(1)}/a"}
    assert await plane.messages(q) == {1: "a"}


async def test_a_registration_by_a_watch_has_a_lease_of_the_server(plane: QueuePlane, q: str) -> None:
    async with plane.watch(f"/q/{q}/c/A/"):
        lease = (await plane.get(f"/q/{q}/c/A/"))["lease"]

        assert (await plane.post("lease/timetolive", ID=lease))["grantedTTL"] == "60"


async def test_a_watch_leaves_a_registration_of_its_client_alone(plane: QueuePlane, q: str) -> None:
    lease = await plane.register(q, "A")
    async with plane.watch(f"/q/{q}/c/A/"):
        assert int((await plane.get(f"/q/{q}/c/A"))["lease"]) == lease

    await plane.send(q, "a")

    assert await plane.deliveries(q, "A") == [f"/q/{q}/c/A/{idx(1)}/a"]


async def test_a_consumer_without_a_lease_has_one_of_sixty_seconds(plane: QueuePlane, q: str) -> None:
    await plane.put(f"/q/{q}/c/A/")

    lease = (await plane.get(f"/q/{q}/c/A/"))["lease"]

    state = await plane.post("lease/timetolive", ID=lease, keys=True)
    assert state["grantedTTL"] == "60"
    assert list(map(text, state["keys"])) == [f"/queue/{q}/consumer/A/"]


async def test_a_registration_ends_with_the_lease_of_its_client(plane: QueuePlane, q: str) -> None:
    await plane.register(q, "A", ttl_s=1)
    await plane.send(q, "a")
    assert len(await plane.deliveries(q, "A")) == 1
    async with plane.watch(f"/queue/{q}/consumer/B/") as watch:
        await watch.put(f"/queue/{q}/consumer/B/{idx(1)}/a")

        assert await plane.below(f"/q/{q}/c/A/") == {}


async def test_the_value_of_a_registration_is_written_back_and_its_lease_stays(
    plane: QueuePlane, q: str
) -> None:
    lease = await plane.register(q, "A")
    before = await plane.get(f"/q/{q}/c/A/")

    await plane.put(f"/q/{q}/c/A/", "", lease)
    await plane.put(f"/q/{q}/c/A/", "mine", ignore_lease=True)

    after = await plane.get(f"/q/{q}/c/A/")
    assert text(after["value"]).isdigit()
    assert after["lease"] == before["lease"] == str(lease)
    assert after["create_revision"] == before["create_revision"]


async def test_a_registration_without_its_clients_lease_gets_one_of_the_server(
    plane: QueuePlane, q: str
) -> None:
    lease = await plane.register(q, "A")
    await plane.put(f"/q/{q}/c/A/")

    found = (await plane.get(f"/q/{q}/c/A/"))["lease"]
    await plane.post("lease/revoke", ID=lease)

    assert found != str(lease)
    assert (await plane.get(f"/q/{q}/c/A/"))["lease"] == found


async def test_registering_again_changes_nothing_for_the_deliveries(plane: QueuePlane, q: str) -> None:
    await plane.register(q, "A")
    await plane.send(q, "a", "b")
    before = await plane.get(f"/q/{q}/c/A/")

    await plane.register(q, "A")
    await plane.send(q, "c")

    after = await plane.get(f"/q/{q}/c/A/")
    assert int(after["version"]) > int(before["version"])
    assert [key[-1] for key in await plane.deliveries(q, "A")] == ["a", "b", "c"]


# -- deliveries


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


# -- who may write what


async def test_what_belongs_to_the_queue_is_refused_to_clients(plane: QueuePlane, q: str) -> None:
    await plane.register(q, "A")
    await plane.send(q, "a")
    before = await plane.below(f"/queue/{q}")
    own = [f"/q/{q}/{idx(1)}/a", f"/queue/{q}/7/x", f"/q/{q}/config", f"/q/{q}/{'1' * 40}/x"]
    for key in (*own, f"/q/{q}/c/A/{idx(1)}/a", f"/q/{q}/c/A/anything"):
        assert await plane.refused("kv/put", key=b64(key), value=b64("x")) == PERMISSION_DENIED, key
        assert (
            await plane.refused("kv/txn", success=[put_of("/plain", "x"), put_of(key)]) == PERMISSION_DENIED
        )
        assert await plane.refused("kv/txn", failure=[put_of(key)]) == PERMISSION_DENIED
    for key in own:
        assert await plane.refused("kv/deleterange", key=b64(key)) == PERMISSION_DENIED, key
        assert await plane.refused("kv/txn", success=[delete_of(key)]) == PERMISSION_DENIED
    for prefix in (f"/q/{q}", f"/q/{q}/", f"/queue/{q}/0", "/q/", "/queue", "/"):
        asked = {"key": b64(prefix), "range_end": b64(end_of(prefix))}
        assert await plane.refused("kv/deleterange", **asked) == PERMISSION_DENIED, prefix
    everything = {"key": b64("\0"), "range_end": b64("\0")}
    answer = await plane.call("kv/deleterange", **everything)
    assert answer.status_code == 403
    assert answer.json()["message"] == "etcdserver: permission denied"

    assert await plane.below(f"/queue/{q}") == before
    assert await plane.get("/plain") == {}


async def test_a_transaction_may_touch_queues_and_plain_keys(plane: QueuePlane, q: str) -> None:
    await plane.register(q, "A")
    await plane.send(q, "a")
    answer = await plane.txn(
        put_of(f"/plain/{q}", "1"),
        put_of(f"/q/{q}/p/me/b", "b"),
        range_of(f"/q/{q}/p/me/b"),
        put_of(f"/queue/{q}-other/input/me/c", "c"),
        delete_of(f"/q/{q}/c/A/{idx(1)}/a"),
        compare=[{"key": b64(f"/q/{q}/c/A"), "target": "VERSION", "result": "GREATER", "version": "0"}],
    )

    assert answer["succeeded"] is True
    assert text(answer["responses"][2]["response_range"]["kvs"][0]["key"]) == f"/q/{q}/p/me/b"
    assert await plane.messages(q) == {2: "b"}
    assert await plane.messages(f"{q}-other") == {1: "c"}
    assert text((await plane.get(f"/plain/{q}"))["value"]) == "1"
    assert await plane.deliveries(q, "A") == [f"/q/{q}/c/A/{idx(2)}/b"]


async def test_one_key_may_not_be_put_twice_in_a_transaction_in_whichever_spelling(
    plane: QueuePlane, q: str
) -> None:
    operations = [put_of(f"/q/{q}/p/me/a"), put_of(f"/queue/{q}/input/me/a")]

    assert await plane.refused("kv/txn", success=operations) == (400, 3)


# -- reading


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("/q/{q}/c/A/", "/q/{q}/c/A/"),
        ("/queue/{q}/c/A/", "/queue/{q}/c/A/"),
        ("/q/{q}/consumer/", "/q/{q}/consumer/A/"),
        ("/q/{q}/", "/q/{q}/c/A/"),
        ("/queue/{q}/", "/queue/{q}/consumer/A/"),
        ("/q", "/queue/{q}/consumer/A/"),
    ],
)
async def test_keys_are_told_as_they_are_asked_for(plane: QueuePlane, q: str, asked: str, told: str) -> None:
    asked, told = asked.format(q=q), told.format(q=q)
    await plane.register(q, "A")
    async with plane.watch(asked) as watch:
        await plane.send(q, "a")
        event = await watch.put(told)

    assert event.key == f"{told}{idx(1)}/a"
    assert event.key in await plane.below(asked)
    deleted = await plane.post("kv/deleterange", key=b64(event.key), prev_kv=True)
    assert [text(kv["key"]) for kv in deleted["prev_kvs"]] == [event.key]


async def test_the_history_of_a_message_is_told_to_a_watch_of_the_past(plane: QueuePlane, q: str) -> None:
    lease = await plane.register(q, "A")
    first = await plane.put(f"/q/{q}/p/me/a", "a")
    await plane.post("lease/revoke", ID=lease)
    revision = int(first["header"]["revision"])
    async with plane.watch(f"/q/{q}/", start_revision=revision) as watch:
        events = await watch.events(6)

    start = min(event.revision for event in events)
    assert [
        (event.kind, event.key.removeprefix(f"/q/{q}/")) for event in events if event.revision <= start + 1
    ] == [
        ("PUT", "p/me/a"),
        ("DELETE", "p/me/a"),
        ("PUT", f"{idx(1)}/a"),
        ("PUT", f"c/A/{idx(1)}/a"),
    ]
    assert await plane.below(f"/q/{q}/c/A/0", revision=start + 1) == {f"/q/{q}/c/A/{idx(1)}/a": "a"}
    assert await plane.below(f"/q/{q}/p/", revision=start) == {f"/q/{q}/p/me/a": "a"}


async def test_what_has_no_queue_in_its_name_is_plain(plane: QueuePlane, q: str) -> None:
    for key in (f"/queue//producer/{q}", f"/queues/{q}/p/m", f"/q-{q}/p/m", f"/queue/{q}-plain/other/m"):
        await plane.put(key, "1")
        assert text((await plane.get(key))["value"]) == "1"
        assert await plane.delete(key) == 1
