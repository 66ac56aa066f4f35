"""Queues over keys by HTTP: who may write what, and how it is read."""

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.wire.etcd.queue_plane import (
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
