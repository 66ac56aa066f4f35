"""Watches of the SDK against a real plane, also through a line that breaks off all the time."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future

import pytest

from holdfast.client import (
    AsyncClient,
    Client,
    ClientClosed,
    ClientOptions,
    Compacted,
    RequestRefused,
    TransportFailed,
    WatchEvent,
)
from holdfast.client.aio.watch import Watch
from holdfast.client.testing import ChaosProxy, TestServer, inprocess
from holdfast.client.testing.chaos import Chaos
from holdfast.client.watch import calls
from holdfast.state.layer.watch.hub import EventHub
from holdfast.state.layer.watch.watcher import Change, KeyWatch
from holdfast.storage import errors as storage_errors

WAIT_S = 20.0


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with inprocess(qrf_disabled=True) as connected:
        yield connected


async def take(watch: Watch, count: int) -> list[WatchEvent]:
    found: list[WatchEvent] = []
    async with asyncio.timeout(WAIT_S):
        async for event in watch:
            found.append(event)
            if len(found) == count:
                break
    return found


def short(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(event.type, event.key) for event in events]


async def publish(client: AsyncClient, key: str, text: str = "x") -> None:
    async with client.acquire(key) as session:
        await session.save({"text": text})


async def test_events_are_typed(client: AsyncClient) -> None:
    async with client.watch("orders/") as watch:
        async with client.acquire("orders/1", owner="worker-1") as session:
            await session.save({"n": 1})
            token = session.lease.fencing_token
        async with client.acquire("orders/1", owner="worker-2") as session:
            await session.remove()
        acquired, put, released, _, deleted, _ = await take(watch, 6)

    state_version = 1
    assert (acquired.type, acquired.key, acquired.namespace, acquired.owner) == (
        "acquired",
        "orders/1",
        "default",
        "worker-1",
    )
    assert (acquired.fencing_token, acquired.expires_at_unix > 0, acquired.is_last) == (token, True, True)
    assert (put.type, put.version, len(put.etag), put.is_last) == ("put", state_version, 64, False)
    assert (released.type, released.owner, released.revision, released.is_last) == (
        "released",
        "worker-1",
        put.revision,
        True,
    )
    assert (deleted.type, deleted.version) == ("delete", 2)


async def test_entering_it_means_that_it_is_registered(client: AsyncClient) -> None:
    async with client.watch() as watch:
        began = watch.revision
        await publish(client, "orders")
        events = await take(watch, 3)

    assert short(events) == [("acquired", "orders"), ("put", "orders"), ("released", "orders")]
    async with client.watch(after=began) as again:
        assert await take(again, 3) == events
    async with client.watch(after=events[0].revision) as rest:
        assert await take(rest, 2) == events[1:]


async def test_other_namespaces_and_keys_are_left_out(client: AsyncClient) -> None:
    async with client.watch("a", namespace="billing") as watch:
        for key, namespace in (("a1", None), ("b1", "billing"), ("a2", "billing")):
            async with client.acquire(key, namespace=namespace):
                pass
        assert short(await take(watch, 2)) == [("acquired", "a2"), ("released", "a2")]


async def test_it_may_be_iterated_without_a_block(client: AsyncClient) -> None:
    began = client.watch()
    async with began:
        after = began.revision
    await publish(client, "orders")

    watch = client.watch(after=after)
    assert len(await take(watch, 3)) == 3
    await watch.close()


async def test_a_broken_line_loses_and_repeats_nothing() -> None:
    with TestServer("--qrf-disabled") as server:
        chaos = Chaos(seed=7, disconnect_after_s=0.08, chunk_bytes=61, delay_max_s=0.002)
        with ChaosProxy(server.url, chaos) as proxy:
            async with AsyncClient(server.url) as client, AsyncClient(proxy.url) as shaky:
                async with client.watch("k") as steady, shaky.watch("k") as watch:
                    reading = asyncio.ensure_future(take(watch, 150))
                    for number in range(50):
                        await publish(client, f"k{number}")
                    async with asyncio.timeout(60):
                        assert await reading == await take(steady, 150)
            assert proxy.disconnects > 1


async def test_a_server_that_comes_back_is_watched_on(tmp_path: object) -> None:
    store = f"disk://{tmp_path}/store"
    with TestServer("--qrf-disabled", "--store", store) as server:
        url = server.url
        async with AsyncClient(url) as client:
            watch = client.watch("k")
            async with watch:
                reading = asyncio.ensure_future(take(watch, 6))
                await publish(client, "k1")
                await asyncio.to_thread(server.restart)
                await publish(client, "k2")
                async with asyncio.timeout(60):
                    events = await reading

    assert [event.key for event in events] == ["k1"] * 3 + ["k2"] * 3


async def test_a_server_that_falls_silent_is_asked_again(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert calls.SILENCE_S_MAX == 50
    monkeypatch.setattr(calls, "SILENCE_S_MAX", 0.1)
    opened: list[int | None] = []
    watch_of = EventHub.watch

    async def note(self: EventHub, namespace: str, prefix: str, after: int | None = None) -> KeyWatch:
        opened.append(after)
        return await watch_of(self, namespace, prefix, after)

    monkeypatch.setattr(EventHub, "watch", note)
    async with client.watch() as watch:
        reading = asyncio.ensure_future(take(watch, 3))
        async with asyncio.timeout(WAIT_S):
            while len(opened) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await publish(client, "orders")
        assert short(await reading) == [("acquired", "orders"), ("put", "orders"), ("released", "orders")]

    assert opened[0] is None
    assert opened[1] is not None


async def test_what_cannot_be_watched_is_refused_at_once(client: AsyncClient) -> None:
    for watch, code in (
        (client.watch("a b"), "invalid_prefix"),
        (client.watch(after=1 << 50), "future_revision"),
        (client.watch(namespace=".x"), "invalid_namespace"),
    ):
        with pytest.raises(RequestRefused) as caught:
            async with watch:
                pass
        assert caught.value.code == code


async def test_without_a_server_entering_it_fails() -> None:
    async with AsyncClient("http://127.0.0.1:1", options=ClientOptions(timeout_s=1)) as client:
        with pytest.raises(TransportFailed):
            async with client.watch():
                pass


async def test_a_past_that_is_gone_ends_it(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(self: EventHub, watch: KeyWatch, after: int) -> tuple[list[Change], int]:
        raise storage_errors.Compacted(after, 7)

    await publish(client, "orders")
    monkeypatch.setattr(EventHub, "history", gone)

    with pytest.raises(Compacted) as caught:
        async with client.watch(after=0):
            pass
    assert (caught.value.status, caught.value.code) == (410, "compacted")


async def test_closing_it_ends_a_reader_that_waits(client: AsyncClient) -> None:
    watch = client.watch()
    async with watch:
        reading = asyncio.ensure_future(take(watch, 1))
        await asyncio.sleep(0.05)
        await watch.close()
        async with asyncio.timeout(WAIT_S):
            assert await reading == []


async def test_a_closed_client_watches_nothing() -> None:
    client = AsyncClient("http://127.0.0.1:1")
    await client.close()

    with pytest.raises(ClientClosed):
        client.watch()


def test_the_blocking_twin_tells_the_same() -> None:
    with TestServer("--qrf-disabled") as server, Client(server.url) as client:
        with client.watch("k") as watch:
            for number in range(3):
                with client.acquire(f"k{number}") as session:
                    session.save({"n": number})
            events = [event for _, event in zip(range(9), watch, strict=False)]
        with client.watch("k", after=events[2].revision) as rest:
            assert [event for _, event in zip(range(6), rest, strict=False)] == events[3:]

        assert short(events[:3]) == [("acquired", "k0"), ("put", "k0"), ("released", "k0")]

        with client.watch("none") as silent:
            ended: Future[list[WatchEvent]] = Future()
            threading.Thread(target=lambda: ended.set_result(list(silent)), daemon=True).start()
            silent.close()
            assert ended.result(WAIT_S) == []
