"""Queues over keys by HTTP: how consumers come and go, as holdfast has decided it."""

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.wire.etcd.queue_plane import (
    QueuePlane,
    opened,
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
