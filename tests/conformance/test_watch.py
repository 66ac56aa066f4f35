"""Watches: every event once, in order, from now or from the past; and no watcher is waited for."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.storage.errors import Compacted, FutureRevision, StoreClosed, WatcherTooSlow
from holdfast.storage.port import Batch, Event, Store, Watch
from tests.conformance.backends import SMALL, Backend


async def take(watch: Watch, count: int) -> list[Event]:
    events: list[Event] = []
    async with asyncio.timeout(20):
        while len(events) < count:
            events += await anext(watch)
    assert len(events) == count
    return events


async def test_a_watch_from_now_on_sees_what_comes_and_nothing_before(store: Store) -> None:
    await store.commit(Batch(puts={b"a": b"0"}))

    async with store.watch(b"a", b"c") as watch:
        first = await store.commit(Batch(puts={b"a": b"1", b"x": b"1"}))
        second = await store.commit(Batch(deletes={b"a"}))
        events = await take(watch, 2)

    assert [(event.revision, event.key) for event in events] == [(first, b"a"), (second, b"a")]
    assert events[0].record is not None
    assert events[0].record.value == b"1"
    assert events[0].record.version == 2
    assert events[1].record is None
    assert all(event.previous is None for event in events)


async def test_a_watch_from_a_past_revision_misses_nothing(store: Store) -> None:
    start = await store.commit(Batch(puts={b"a": b"0"}))
    wanted = [await store.commit(Batch(puts={b"a": b"%d" % n})) for n in range(1, 6)]

    async with store.watch(b"", None, after=start) as watch:
        wanted.append(await store.commit(Batch(puts={b"b": b""})))
        events = await take(watch, 6)
        assert watch.revision == wanted[-1]

    assert [event.revision for event in events] == wanted


async def test_previous_values_come_on_request_from_history_and_live(store: Store) -> None:
    start = await store.commit(Batch(puts={b"a": b"0"}))
    await store.commit(Batch(puts={b"a": b"1"}))

    async with store.watch(b"a", b"a\x00", after=start, with_previous=True) as watch:
        (old,) = await take(watch, 1)
        await store.commit(Batch(deletes={b"a"}))
        await store.commit(Batch(puts={b"a": b"2"}))
        deleted, created = await take(watch, 2)

    assert old.previous is not None
    assert old.previous.value == b"0"
    assert old.previous.mod_revision == start
    assert deleted.previous is not None
    assert deleted.previous.value == b"1"
    assert created.previous is None


async def test_a_watch_under_load_is_ordered_and_gapless(store: Store) -> None:
    start = await store.commit(Batch(puts={b"k": b""}))

    async def write(worker: int) -> None:
        for number in range(15):
            await store.commit(Batch(puts={b"k%d" % worker: b"%d" % number}))

    async with store.watch(b"k", b"l") as live:
        writers = asyncio.gather(*[write(worker) for worker in range(8)])
        async with store.watch(b"k", b"l", after=start) as late:
            seen, seen_late = await take(live, 120), await take(late, 120)
        await writers

    assert [event.revision for event in seen] == list(range(start + 1, start + 121))
    assert seen == seen_late


async def test_one_batch_arrives_whole(store: Store) -> None:
    async with store.watch(b"", None) as watch:
        await store.commit(Batch(puts={b"%d" % n: b"" for n in range(50)}))
        events = await anext(watch)

    assert len(events) == 50


async def test_a_watch_may_begin_in_the_future(store: Store) -> None:
    now = last = await store.commit(Batch(puts={b"a": b""}))

    async with store.watch(b"a", b"b", after=now + 2) as watch:
        for _ in range(3):
            last = await store.commit(Batch(puts={b"a": b""}))
        events = await take(watch, 1)

    assert events[0].revision == last


async def test_compacted_history_is_a_typed_error_that_says_where_to_go_on(backend: Backend) -> None:
    async with backend.open(replace(SMALL, history_revisions_max=10)) as store:
        start = last = await store.commit(Batch(puts={b"a": b""}))
        for _ in range(30):
            last = await store.commit(Batch(puts={b"a": b""}))
        oldest = await store.compact()

        async with store.watch(b"a", b"b", after=start) as watch:
            with pytest.raises(Compacted) as caught:
                await anext(watch)
        async with store.watch(b"a", b"b", after=caught.value.oldest_revision) as watch:
            events = await take(watch, 10)

    assert oldest == caught.value.oldest_revision == last - 10
    assert [event.revision for event in events] == list(range(last - 9, last + 1))


async def test_a_slow_watcher_is_cut_off_and_can_resume(backend: Backend) -> None:
    async with backend.open(replace(SMALL, watch_buffer_events_max=5)) as store:
        async with store.watch(b"a", b"b") as watch, store.watch(b"a", b"b") as quick:
            revisions: list[int] = []
            for _ in range(20):
                revisions.append(await store.commit(Batch(puts={b"a": b""})))
                await take(quick, 1)
            seen: list[Event] = []
            with pytest.raises(WatcherTooSlow) as caught:
                while True:
                    seen += await anext(watch)
        async with store.watch(b"a", b"b", after=caught.value.resume_revision) as resumed:
            seen += await take(resumed, 20 - len(seen))

    assert [event.revision for event in seen] == revisions


async def test_history_outlives_a_restart(backend: Backend) -> None:
    if not backend.is_durable:
        return
    async with backend.open(SMALL) as store:
        start = await store.commit(Batch(puts={b"a": b"0"}))
        await store.commit(Batch(puts={b"a": b"1"}))

    async with (
        backend.open(SMALL) as store,
        store.watch(b"a", b"b", after=start, with_previous=True) as watch,
    ):
        (event,) = await take(watch, 1)

    assert event.record is not None
    assert event.previous is not None
    assert (event.record.value, event.previous.value) == (b"1", b"0")


async def test_closing_the_store_ends_its_watches(backend: Backend) -> None:
    async with backend.open(SMALL) as store:
        watch = store.watch(b"", None)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)

    with pytest.raises(StoreClosed):
        await waiting


async def test_a_closed_watch_ends_its_iteration(store: Store) -> None:
    watch = store.watch(b"", None)

    async def collect() -> list[list[Event]]:
        return [events async for events in watch]

    collecting = asyncio.ensure_future(collect())
    await asyncio.sleep(0)
    await watch.aclose()

    assert await collecting == []


async def test_only_a_store_in_a_database_is_shared_with_other_processes(
    store: Store, backend: Backend
) -> None:
    assert store.is_shared == (backend.name == "postgres")


async def test_pages_of_the_past_are_what_a_watch_tells_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.storage.watch.HISTORY_EVENTS_PAGE", 3)
    start = await store.commit(Batch(puts={b"a": b"0"}))
    for number in range(5):
        await store.commit(Batch(puts={b"a": b"%d" % number, b"b": b"", b"x": b""}))
    last = await store.commit(Batch(deletes={b"a"}))

    told: list[Event] = []
    revision, pages = start, 0
    while revision < last:
        page = await store.history(b"a", b"c", after=revision)
        assert page.revision > revision
        told += page.events
        revision, pages = page.revision, pages + 1

    async with store.watch(b"a", b"c", after=start, with_previous=True) as watch:
        assert told == await take(watch, 11)
    assert pages > 1
    assert (revision, await store.history(b"a", b"c", after=last)) == (last, ([], last))


async def test_the_past_has_two_ends(backend: Backend) -> None:
    async with backend.open(replace(SMALL, history_revisions_max=10)) as store:
        last = 0
        for _ in range(30):
            last = await store.commit(Batch(puts={b"a": b""}))
        oldest = await store.compact()

        with pytest.raises(Compacted) as compacted:
            await store.history(b"", None, after=oldest - 1)
        with pytest.raises(FutureRevision) as future:
            await store.history(b"", None, after=last + 1)
        page = await store.history(b"", None, after=oldest)

    assert compacted.value.oldest_revision == oldest
    assert future.value.newest_revision == last
    assert ([event.revision for event in page.events], page.revision) == (
        [*range(oldest + 1, last + 1)],
        last,
    )
