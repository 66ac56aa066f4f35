"""Watches of documents and leases: what is told, in both formats, and how a reader goes on where it was."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import httpx
import pytest

from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from holdfast.state.layer.watch.hub import EventHub
from holdfast.state.layer.watch.watcher import Change, KeyWatch
from holdfast.state.protocol.lockd import watch as watch_routes
from holdfast.storage.errors import Compacted, StoreUnavailable
from holdfast.storage.port import Store
from tests.infra.gateway import LOOPBACK, url_of
from tests.wire.lockd.conftest import Wire

Message = dict[str, Any]

LINES: Final = {"Accept": "application/x-ndjson"}


class Watch:
    """An open stream."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def line(self) -> str:
        async with asyncio.timeout(20):
            return await anext(self._lines)

    async def message(self) -> Message:
        """The next message in lines of JSON, signs of life left out."""
        while (message := json.loads(await self.line()))["type"] == "progress":
            pass
        return dict(message)

    async def block(self) -> list[str]:
        """The next server-sent event or comment."""
        lines: list[str] = []
        while line := await self.line():
            lines.append(line)
        return lines

    async def told(self, count: int) -> list[Message]:
        """So many messages of events."""
        messages = [await self.message() for _ in range(count)]
        assert {message["type"] for message in messages} == {"events"}
        return messages


@asynccontextmanager
async def watching(wire: Wire, headers: Mapping[str, str] = LINES, **query: object) -> AsyncIterator[Watch]:
    async with wire.opened("/v1/watch", headers, **query) as answer:
        assert answer.status_code == 200, (await answer.aread()).decode()
        yield Watch(answer)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


def events_of(messages: list[Message]) -> list[Message]:
    return [event for message in messages for event in message["events"]]


def kinds(messages: list[Message]) -> list[list[str]]:
    return [[event["type"] for event in message["events"]] for message in messages]


async def publish(wire: Wire, key: str) -> None:
    lease = await wire.acquire(key)
    await wire.update(lease, b'{"n":1}')
    await wire.release(lease)


async def test_documents_and_leases_are_told_as_they_change(wire: Wire) -> None:
    async with watching(wire, prefix="orders/") as watch:
        created = await watch.message()
        lease = await wire.acquire("orders/1")
        etag = (await wire.update(lease, b'{"n":1}')).json()["new_state_etag"]
        await wire.post("/v1/keepalive", {**_named(lease), "ttl_seconds": 60}, lease.headers)
        await wire.acquire("parts/1")
        await wire.release(lease)
        again = await wire.acquire("orders/1")
        await wire.post("/v1/remove", None, again.headers, key="orders/1")
        await wire.release(again)
        told = await watch.told(4)

    assert watch.answer.headers["content-type"] == "application/x-ndjson"
    assert watch.answer.headers["cache-control"] == "no-cache"
    assert (created["type"], created["namespace"], created["prefix"]) == ("created", "default", "orders/")
    assert created["revision"] == created["store_revision"] < told[0]["revision"]
    assert kinds(told) == [["acquired"], ["put", "released"], ["acquired"], ["delete", "released"]]
    acquired, put, released, _, delete, _ = events_of(told)
    owner = acquired["owner"]
    assert acquired["expires_at_unix"] > 0
    assert put == {"type": "put", "key": "orders/1", "version": 1, "etag": etag}
    assert released == {"type": "released", "key": "orders/1", "owner": owner, "fencing_token": 1}
    assert delete == {"type": "delete", "key": "orders/1", "version": 2}
    assert lease.lease_id not in json.dumps(told)
    revisions = [message["revision"] for message in told]
    assert revisions == sorted(set(revisions))


async def test_an_expiry_is_told(wire: Wire) -> None:
    async with watching(wire) as watch:
        await watch.message()
        await wire.acquire("short", ttl_seconds=1)
        told = await watch.told(2)

    assert kinds(told) == [["acquired"], ["expired"]]


async def test_a_reader_goes_on_after_any_message(wire: Wire) -> None:
    async with watching(wire, prefix="k") as watch:
        start = (await watch.message())["revision"]
        for number in range(3):
            await publish(wire, f"k{number}")
        whole = await watch.told(6)

    for read, after in enumerate([start, *(message["revision"] for message in whole[:-1])]):
        async with watching(wire, prefix="k", after=after) as watch:
            created = await watch.message()
            assert (created["revision"], await watch.told(6 - read)) == (after, whole[read:])


async def test_server_sent_events_have_the_revision_as_their_id(wire: Wire) -> None:
    async with watching(wire, {}) as watch:
        created = await watch.block()
        await publish(wire, "orders")
        acquired, published = await watch.block(), await watch.block()

    assert watch.answer.headers["content-type"] == "text/event-stream"
    revision = acquired[0].removeprefix("id: ")
    assert created[1] == "event: created"
    assert acquired[1] == "event: events"
    data = json.loads(acquired[2].removeprefix("data: "))
    assert (str(data["revision"]), data["events"][0]["type"]) == (revision, "acquired")

    # What a browser sends when it comes back wins over the address, which is as old as its page.
    async with watching(wire, {"Last-Event-ID": revision}, after=0) as watch:
        await watch.block()
        assert await watch.block() == published


async def test_a_silent_watch_shows_that_it_lives_and_how_far_it_is(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watch_routes.HEARTBEAT_S == 15
    monkeypatch.setattr(watch_routes, "HEARTBEAT_S", 0.05)

    async with watching(wire, prefix="silent") as lines, watching(wire, {}, prefix="silent") as events:
        created, started = await lines.message(), await events.block()
        await wire.acquire("other")
        while (line := json.loads(await lines.line()))["revision"] == created["revision"]:
            pass  # Another process may be a moment behind.
        while (block := await events.block())[-1] == started[0]:
            pass

    assert line["type"] == "progress"
    assert (len(block), block[0], block[1][:4]) == (2, ": alive", "id: ")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"namespace": "a b"}, "invalid_namespace"),
        ({"prefix": "a b"}, "invalid_prefix"),
        ({"prefix": "a//b"}, "invalid_prefix"),
        ({"prefix": "k" * 129}, "invalid_prefix"),
        ({"after": "-1"}, "invalid_after"),
        ({"after": "x"}, "invalid_after"),
        ({"after": "9" * 30}, "invalid_after"),
        ({"after": 1 << 60}, "future_revision"),
        ({"format": "xml"}, "invalid_format"),
    ],
)
async def test_what_a_watch_cannot_be_is_refused(wire: Wire, query: dict[str, Any], code: str) -> None:
    assert refusal(await wire.get("/v1/watch", **query)) == (400, code)


async def test_a_watch_of_a_prefix_as_people_write_it(wire: Wire) -> None:
    async with watching(wire, prefix=" /Orders/ ") as watch:
        assert (await watch.message())["prefix"] == "orders/"
        await wire.acquire("orders/1")
        assert kinds(await watch.told(1)) == [["acquired"]]


async def test_a_client_that_is_gone_leaves_no_watcher(wire: Wire) -> None:
    async with watching(wire) as watch:
        await watch.message()
        assert "holdfast_state_watchers 1" in await wire.metrics()

    async with asyncio.timeout(20):
        while "holdfast_state_watchers 1" in await wire.metrics():  # noqa: ASYNC110  # Seen over HTTP only.
            await asyncio.sleep(0.01)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[PlaneServer, Wire, Store]]:
    """A plane, and the store that it opened."""
    stores: list[Store] = []

    def hub_of(store: Store) -> EventHub:
        stores.append(store)
        return EventHub(store)

    monkeypatch.setattr("holdfast.state.app.EventHub", hub_of)
    app = create_app(GatewaySettings.isolated(store="mem://"))
    async with (
        running(app, LOOPBACK, options=ServeOptions(drain_grace_s=5)) as plane,
        httpx.AsyncClient(base_url=url_of(plane), timeout=20) as client,
    ):
        yield plane, Wire(client), stores[0]


async def test_a_watch_ends_with_its_server(server: tuple[PlaneServer, Wire, Store]) -> None:
    plane, wire, _ = server
    async with watching(wire, prefix="none") as watch:
        created = await watch.message()
        await publish(wire, "orders")
        plane.request_stop()

        last = json.loads(await watch.line())
        assert (last["type"], last["revision"] > created["revision"]) == ("progress", True)
        with pytest.raises(StopAsyncIteration):
            await watch.line()


async def test_what_is_compacted_is_refused_with_the_revision_that_is_left(
    server: tuple[PlaneServer, Wire, Store],
) -> None:
    _, wire, store = server
    await publish(wire, "orders")
    await store.compact(store.revision - 1)

    answer = await wire.get("/v1/watch", after=1)

    assert refusal(answer) == (410, "compacted")
    assert str(store.revision - 1) in answer.json()["detail"]
    async with watching(wire, after=store.revision - 1) as watch:
        await watch.message()
        assert kinds(await watch.told(1)) == [["put", "released"]]


async def test_a_slow_reader_whose_past_is_gone_is_told_so(
    server: tuple[PlaneServer, Wire, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, wire, store = server

    async def gone(self: EventHub, watch: KeyWatch, after: int) -> tuple[list[Change], int]:
        raise Compacted(after, 7)

    async with watching(wire) as watch, watching(wire, {}) as events:
        await watch.message()
        created, *_ = await events.block()
        monkeypatch.setattr(EventHub, "history", gone)
        cast(Any, store)._hub.interrupt(StoreUnavailable("the store was opened again"))

        assert await watch.message() == {"type": "compacted", "revision": 7}
        # Without an id: a browser asks again for what it has not seen, and is refused for good.
        assert await events.block() == ["event: compacted", 'data: {"type":"compacted","revision":7}']
        assert created.startswith("id: ")


def _named(lease: Any) -> dict[str, str]:
    return {"key": lease.key, "lease_id": lease.lease_id, "txn_id": lease.txn_id}
