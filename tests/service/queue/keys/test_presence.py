"""Consumers that bring no lease are there as long as they do something."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.common.clock import FakeClock
from holdfast.queue.layer.keys import consumers
from holdfast.queue.layer.keys.consumers import Consumers, Who
from holdfast.state.layer.kv.operation import DeleteRangeRequest, PutRequest, RangeRequest
from tests.service.queue.keys.plane import Plane, memory_plane


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    async with memory_plane(clock=FakeClock()) as plane:
        yield plane


@pytest.fixture
def renewed(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set whenever the lease of a consumer may have been renewed."""
    event = asyncio.Event()
    renew = Consumers._renew

    async def told(self: Consumers, who: Who) -> None:
        await renew(self, who)
        event.set()

    monkeypatch.setattr(Consumers, "_renew", told)
    return event


async def leases(plane: Plane) -> dict[bytes, int]:
    """The time that each consumer has left."""
    found = await plane.queues.range(RangeRequest(b"/queue/q/consumer", b"/queue/q/consumer0"))
    states = {kv.key: await plane.queues.leases.time_to_live(kv.lease) for kv in found.kvs}
    return {key[:-1]: 0 if state is None else state.ttl_s for key, state in states.items()}


@pytest.mark.parametrize("call", ["put", "get", "range", "delete", "delete range", "txn"])
async def test_every_call_below_its_key_renews_a_consumer(
    plane: Plane, renewed: asyncio.Event, call: str
) -> None:
    await plane.put(b"/q/q/c/A")
    assert plane.clock is not None
    plane.clock.advance(50)
    renewed.clear()

    key = b"/q/q/c/A/00000000000000000001/m"
    match call:
        case "put":
            await plane.put(b"/queue/q/consumer/A/")
        case "get":
            await plane.queues.range(RangeRequest(key))
        case "range":
            await plane.below(b"/q/q/c/A/")
        case "delete":
            await plane.delete(key)
        case "delete range":
            await plane.delete_below(b"/q/q/c/A/0")
        case _:
            await plane.txn(PutRequest(b"/plain"), DeleteRangeRequest(key))

    async with asyncio.timeout(30):
        await renewed.wait()
    assert await leases(plane) == {b"/queue/q/consumer/A": 60}


async def test_calls_for_others_do_not(plane: Plane) -> None:
    await plane.put(b"/q/q/c/A")
    assert plane.clock is not None
    plane.clock.advance(20)

    await plane.put(b"/q/q/c/B")
    await plane.below(b"/q/q/c/")
    await plane.send(b"r", b"m")

    assert await leases(plane) == {b"/queue/q/consumer/A": 40, b"/queue/q/consumer/B": 60}


async def test_an_open_watch_renews_its_consumer(
    plane: Plane, renewed: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "WATCHER_RENEW_S", 0)
    watch = await plane.watch(b"/q/q/c/A/")
    assert plane.clock is not None
    plane.clock.advance(50)
    renewed.clear()

    async with asyncio.timeout(30):
        await renewed.wait()

    assert await leases(plane) == {b"/queue/q/consumer/A": 60}
    watch.close()
