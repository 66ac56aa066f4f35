"""Watches of the key space where they are easy to get wrong."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.state.layer.kv import watch as watch_module
from holdfast.state.layer.kv.operation import PutRequest, WatchRequest
from holdfast.state.layer.kv.service import KvService
from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.opening import open_store
from holdfast.storage.port import Store


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store("mem://") as opened:
        yield opened


@pytest.fixture
async def keys(store: Store) -> AsyncIterator[KvService]:
    service = KvService(store, store.clock)
    async with service.running():
        yield service


async def test_a_watch_that_joins_while_a_revision_is_told_has_what_was_there_before(
    keys: KvService, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub decodes what was there before only if somebody wants it, and may have begun when one comes who does."""
    other = await keys.watch(WatchRequest(b"k"))
    await keys.put(PutRequest(b"k", b"1"))
    await other.next()
    is_decoding, may_go_on = asyncio.Event(), asyncio.Event()
    value = watch_module.KvHub._value

    async def slow(hub: Any, record: Any) -> bytes:
        is_decoding.set()
        await may_go_on.wait()
        return await value(hub, record)

    monkeypatch.setattr(watch_module.KvHub, "_value", slow)
    revision = (await keys.put(PutRequest(b"k", b"2"))).revision
    await is_decoding.wait()

    late = await keys.watch(WatchRequest(b"k", start_revision=revision, prev_kv=True))
    may_go_on.set()
    batch = await late.next()

    assert [event.previous and event.previous.value for event in batch.events] == [b"1"]
    other.close()
    late.close()


async def test_a_watch_of_a_store_that_cannot_be_followed_is_refused(
    keys: KvService, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "FOLLOWING_S_MAX", 0.01)

    def broken(*args: Any, **named: Any) -> Any:
        raise StoreUnavailable("no connection")

    monkeypatch.setattr(store, "watch", broken)

    with pytest.raises(StoreUnavailable):
        await keys.watch(WatchRequest(b"k"))


async def test_who_waits_for_a_watch_is_woken_when_the_key_space_closes(store: Store) -> None:
    service = KvService(store, store.clock)
    async with service.running():
        watch = await service.watch(WatchRequest(b"k"))
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)

    with pytest.raises(watch_module.WatchEnded):
        await asyncio.wait_for(waiting, 1)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "kv.watch"]


async def test_a_watch_knows_that_what_came_with_its_last_event_was_nothing_to_it(keys: KvService) -> None:
    watch, last = await keys.watch(WatchRequest(b"k")), await keys.watch(WatchRequest(b"m"))
    puts = [keys.put(PutRequest(key)) for key in (b"k", b"l", b"m")]
    results = await asyncio.gather(*puts)
    await last.next()

    await watch.next()

    assert watch.told_revision == results[-1].revision
    watch.close()
    last.close()
