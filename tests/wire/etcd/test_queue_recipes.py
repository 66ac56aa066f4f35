"""Queues over keys by HTTP: the recipes of their users, what is promised of a message, and clients that mean no good."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.wire.etcd.queue_plane import QueuePlane, b64, end_of, one_plane, opened, put_of, text

LARGE = 3 << 19
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
    return f"r{next(_numbers)}"


class Consumer:
    """Grant a lease, register, look at what is there, watch from the revision after that, acknowledge each delivery."""

    def __init__(self, plane: QueuePlane, queue: str, client: str) -> None:
        self._plane = plane
        self._prefix = f"/q/{queue}/c/{client}/"
        self.done: list[str] = []
        self.idx: list[int] = []

    async def run(self) -> None:
        lease = await self._plane.grant(30)
        await self._plane.put(self._prefix, lease=lease)
        found = await self._plane.post("kv/range", key=b64(self._prefix), range_end=b64(end_of(self._prefix)))
        for kv in found["kvs"]:
            await self._work(text(kv["key"]), text(kv.get("value", "")))
        start = int(found["header"]["revision"]) + 1
        async with self._plane.watch(self._prefix, start_revision=start) as watch:
            while True:
                for event in await watch.message():
                    if event.kind == "PUT":
                        await self._work(event.key, event.value)

    async def _work(self, key: str, value: str) -> None:
        if key != self._prefix and await self._plane.delete(key):
            self.done.append(value)
            self.idx.append(int(key.split("/")[5]))


async def test_producers_and_consumers_by_the_recipes_see_every_message_once(
    plane: QueuePlane, q: str
) -> None:
    consumers = [Consumer(plane, q, client) for client in "ABC"]
    running = [asyncio.create_task(consumer.run()) for consumer in consumers]

    async def produce(name: str) -> None:
        for number in range(25):
            await plane.put(f"/queue/{q}/producer/{name}/{number}", f"{name}{number}")

    await asyncio.gather(*map(produce, "xyz"))
    async with asyncio.timeout(30):
        async with plane.watch(f"/queue/{q}/0") as watch:
            while await plane.messages(q):
                await watch.message()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)

    done = [value for consumer in consumers for value in consumer.done]
    assert sorted(done) == sorted(f"{name}{number}" for name in "xyz" for number in range(25))
    assert sorted(idx for consumer in consumers for idx in consumer.idx) == list(range(1, 76))
    assert all(consumer.idx == sorted(consumer.idx) for consumer in consumers)
    assert all(consumer.done for consumer in consumers)


async def test_a_consumer_that_was_away_finds_its_deliveries(plane: QueuePlane, q: str) -> None:
    await plane.register(q, "A")
    await plane.send(q, "a", "b")
    await plane.register(q, "A")

    consumer = Consumer(plane, q, "A")
    running = asyncio.create_task(consumer.run())
    async with asyncio.timeout(30):
        async with plane.watch(f"/queue/{q}/0") as watch:
            while await plane.messages(q):
                await watch.message()
    running.cancel()

    assert consumer.done == ["a", "b"]


async def test_of_two_that_believe_to_have_a_message_one_deletes_it(plane: QueuePlane, q: str) -> None:
    """`deleted` is missing in the answer to the one that lost it."""
    lease = await plane.register(q, "A")
    await plane.send(q, "a")
    (mine,) = await plane.deliveries(q, "A")
    await plane.register(q, "B")
    await plane.post("lease/revoke", ID=lease)
    (other,) = await plane.deliveries(q, "B")

    assert [await plane.delete(mine), await plane.delete(other)] == [0, 1]


@pytest.mark.parametrize("reliability", ["majority", "few", "none"])
async def test_messages_go_their_way_with_every_reliability(
    plane: QueuePlane, q: str, reliability: str
) -> None:
    await plane.put(f"/q/{q}", f'{{"reliability":"{reliability}"}}')
    async with plane.watch(f"/q/{q}/c/A/") as watch:
        for number in range(20):
            await plane.send(q, f"{number}")
        for number in range(20):
            event = await watch.put(f"/q/{q}/c/A/0")
            assert event.value == f"{number}"
            assert await plane.delete(event.key) == 1
    assert await plane.messages(q) == {}


async def test_after_a_restart_messages_and_registrations_are_as_promised(tmp_path: Path) -> None:
    url = f"disk://{tmp_path}"
    async with one_plane(url) as plane:
        lease = await plane.grant(600)
        for reliability in ("majority", "few", "none"):
            await plane.put(f"/q/{reliability}", f'{{"reliability":"{reliability}","max_in_flight":1}}')
            await plane.put(f"/q/{reliability}/c/A", lease=lease)
            await plane.send(reliability, "a", "b")
        await plane.put("/plain")  # When this is durable, so is what was answered early.
        assert await plane.messages("none") == {1: "a", 2: "b"}
    async with one_plane(url) as plane:
        for reliability, kept in (("majority", ["a"]), ("few", ["a"]), ("none", [])):
            assert [key[-1] for key in await plane.deliveries(reliability, "A")] == kept
            assert int((await plane.get(f"/q/{reliability}/c/A"))["lease"]) == lease
        await plane.put("/q/none", '{"reliability":"majority"}')
        await plane.send("none", "c")
        assert await plane.messages("none") == {3: "c"}
        assert await plane.delete(f"/q/majority/c/A/{1:020}/a") == 1
        assert [key[-1] for key in await plane.deliveries("majority", "A")] == ["b"]


async def test_the_process_says_what_holds_for_queues_that_do_not() -> None:
    async with one_plane("mem://", key_queue_reliability="none", key_queue_max_in_flight=3) as plane:
        await plane.register("q", "A")
        await plane.send("q", *"abcd")

        assert text((await plane.get("/q/q/config"))["value"]) == (
            '{"reliability":"none","max_in_flight":3,"ack_timeout_s":0}'
        )
        await plane.put("/plain")  # When this is durable, so is what was answered early.
        assert len(await plane.deliveries("q", "A")) == 3


# -- clients that mean no good


async def test_messages_as_large_as_a_request_may_be(plane: QueuePlane, q: str) -> None:
    value = "x" * (LARGE - 200)
    for number in range(8):
        await plane.put(f"/q/{q}/p/me/{number}", f"{number}{value}")
    async with plane.watch(f"/q/{q}/c/A/") as watch:
        for number in range(8):
            event = await watch.put(f"/q/{q}/c/A/0")
            assert event.value == f"{number}{value}"
            assert await plane.delete(event.key) == 1

    assert await plane.refused("kv/put", key=b64(f"/q/{q}/p/me/x"), value=b64("x" * (LARGE + 1))) == (400, 3)
    assert await plane.messages(q) == {}


@pytest.mark.parametrize(
    "key",
    [
        "/queue//producer/x",
        "/q/x/p/",
        "/q/x/p//",
        "/q/x/c//",
        "/q//",
        "/q",
        "/q/" + "a" * 2000,
        "/q/x/p/me/" + "a" * 2000,
        "/q/" + "a" * 1950 + "/p/me/m",
        "/q/x/c/" + "a" * 300,
        "/q/x/" + "9" * 40 + "/m",
        "/q/x/c/A/" + "9" * 40 + "/m",
        "/q/\0/p/\0/\0",
        "/q/x/p/me/" + "/" * 500,
        "/q/\udcff/c/\udcfe",
        "/q/x/p/me/" + "\0" * 1000,
    ],
)
async def test_no_key_is_too_strange(plane: QueuePlane, key: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("kv/put", {"key": b64(key), "value": b64("x")}),
        ("kv/txn", {"success": [put_of("/plain"), {"request_put": {"key": b64(key)}}]}),
        ("kv/range", {"key": b64(key)}),
        ("kv/range", {"key": b64(key), "range_end": b64("\0")}),
        ("kv/deleterange", {"key": b64(key)}),
        ("kv/deleterange", {"key": b64(key), "range_end": b64(key + "\0")}),
    ]
    for path, members in calls:
        answer = await plane.call(path, **members)
        assert answer.status_code in (200, 400, 403, 412), answer.text


async def test_watches_that_vanish_leave_no_consumer_and_lose_no_message(plane: QueuePlane, q: str) -> None:
    async def vanish(client: int) -> None:
        async with plane.watch(f"/q/{q}/c/{client}/"):
            await plane.send(q, f"{client}")

    async with plane.watch(f"/queue/{q}/consumer/") as whole:
        await asyncio.gather(*map(vanish, range(20)))
        registered = await plane.below(f"/q/{q}/c/")
        async with asyncio.timeout(30):
            while registered:
                await whole.message()
                registered = await plane.below(f"/q/{q}/c/")

    assert sorted(await plane.messages(q)) == list(range(1, 21))


async def test_leases_that_end_under_everything_lose_no_message(plane: QueuePlane, q: str) -> None:
    lease = await plane.grant()
    await plane.put(f"/q/{q}", "{}", lease)
    await plane.put(f"/q/{q}/c/A", lease=lease)
    await plane.put(f"/q/{q}/c/B", lease=lease)
    await plane.txn(
        *(
            {"request_put": {"key": b64(f"/q/{q}/p/me/{number}"), "value": b64("x"), "lease": lease}}
            for number in range(50)
        ),
        {"request_put": {"key": b64(f"/plain/{q}"), "lease": lease}},
    )
    assert len(await plane.below(f"/q/{q}/c/")) == 34

    await plane.post("lease/revoke", ID=lease)

    assert await plane.below(f"/q/{q}/c/") == {}
    assert await plane.get(f"/plain/{q}") == {}
    assert text((await plane.get(f"/q/{q}"))["value"]).isdigit()
    assert sorted(await plane.messages(q)) == list(range(1, 51))
