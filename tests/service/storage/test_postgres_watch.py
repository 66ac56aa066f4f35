"""Watches over two stores on one database, as two processes would have them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.storage.errors import Compacted
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import ABSENT, Batch, Demand, Event, Record, Store, Watch
from holdfast.storage.postgres.connection import Row
from holdfast.storage.postgres.feed.follower import Follower, change_event
from holdfast.storage.postgres.store import open_postgres
from holdfast.storage.postgres.url import parse_url
from tests.infra.two_stores import next_keys, on_database, until_listening

NEVER_S = 3600.0
NOTIFY_ONLY = StoreOptions(postgres_poll_interval_s=NEVER_S)


@pytest.fixture
async def writer(postgres_url: str) -> AsyncIterator[Store]:
    async with open_postgres(postgres_url, NOTIFY_ONLY) as opened:
        yield opened


async def test_a_commit_of_another_process_arrives_by_notify(postgres_url: str, writer: Store) -> None:
    async with open_postgres(postgres_url, NOTIFY_ONLY) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)

        await writer.commit(Batch(puts={b"a1": b""}))

        assert await next_keys(watch) == [b"a1"]


async def test_without_notify_the_poll_delivers(postgres_url: str, writer: Store) -> None:
    polling = replace(NOTIFY_ONLY, postgres_poll_interval_s=0.05)
    async with open_postgres(postgres_url, polling) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)
        await on_database(postgres_url, "DELETE FROM listeners")

        await writer.commit(Batch(puts={b"a1": b""}))

        assert await next_keys(watch) == [b"a1"]


async def test_a_listener_that_was_cut_off_listens_again(postgres_url: str, writer: Store) -> None:
    async with open_postgres(postgres_url, NOTIFY_ONLY) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)
        await on_database(
            postgres_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'holdfast' AND query LIKE '%register_listener%'",
        )

        await writer.commit(Batch(puts={b"a1": b""}))

        assert await next_keys(watch) == [b"a1"]


async def test_a_made_up_notice_harms_nothing(postgres_url: str, writer: Store) -> None:
    channel = f"holdfast.{parse_url(postgres_url).schema}"
    async with open_postgres(postgres_url, NOTIFY_ONLY) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)
        for notice in ("999999999", "-1", "x", "", "9" * 5000, "²"):
            await on_database(postgres_url, f"SELECT pg_notify('{channel}', '{notice}')")

        await writer.commit(Batch(puts={b"a1": b""}))

        assert await next_keys(watch) == [b"a1"]
        assert store.revision == writer.revision


async def test_own_commits_are_seen_at_once_and_earlier_ones_are_not(writer: Store) -> None:
    await writer.commit(Batch(puts={b"a0": b""}))
    async with writer.watch(b"a", b"b") as watch:
        await writer.commit(Batch(puts={b"a1": b""}))
        await writer.commit(Batch(puts={b"a2": b""}))

        seen = await next_keys(watch)
        if len(seen) < 2:
            seen += await next_keys(watch)

    assert seen == [b"a1", b"a2"]


async def test_what_this_process_committed_is_not_read_back(
    writer: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = pages_read(monkeypatch)
    async with writer.watch(b"a", b"b", with_previous=True, demand=Demand()) as watch:
        created = await writer.commit(Batch(puts={b"a1": b"1", b"c": b""}, expects={b"a1": ABSENT}))
        changed = await writer.commit(Batch(puts={b"a1": b"2"}, expects={b"a1": created}))
        deleted = await writer.commit(
            Batch(deletes={b"a1", b"a2"}, expects={b"a1": changed, b"a2": ABSENT, b"c": created})
        )
        await writer.commit(Batch(puts={b"d": b""}))
        seen: list[Event] = []
        while len(seen) < 3:
            seen += await anext(watch)

    one, two = (
        Record(b"a1", b"1", created, created, 1),
        Record(b"a1", b"2", created, changed, 2),
    )
    assert seen == [
        Event(created, b"a1", one),
        Event(changed, b"a1", two, one),
        Event(deleted, b"a1", None, two),
    ]
    assert pages == []


async def test_what_is_not_known_in_full_or_comes_after_another_process_is_read_back(
    postgres_url: str, writer: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_postgres(postgres_url, NOTIFY_ONLY) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)
        await on_database(postgres_url, "DELETE FROM listeners")  # Nothing but its own commits wakes it.
        pages = pages_read(monkeypatch)
        await writer.commit(Batch(puts={b"a1": b""}))

        await store.commit(Batch(puts={b"a2": b""}, expects={b"a2": ABSENT}))
        after_another = await next_keys(watch)
        await store.commit(Batch(puts={b"a1": b"blind"}))
        blind = await next_keys(watch)
        await store.commit(Batch(deletes={b"a3"}))
        await store.commit(Batch(puts={b"a4": b""}, expects={b"a4": ABSENT}))
        after_no_change = await next_keys(watch)

    assert (after_another, blind, after_no_change) == ([b"a1", b"a2"], [b"a1"], [b"a4"])
    assert len(pages) >= 2


async def test_a_read_only_commit_does_not_hide_what_another_process_wrote(
    postgres_url: str, writer: Store
) -> None:
    async with open_postgres(postgres_url, NOTIFY_ONLY) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)
        await on_database(postgres_url, "DELETE FROM listeners")
        await writer.commit(Batch(puts={b"a1": b""}))

        await store.commit(Batch(expects={b"a9": ABSENT}))

        assert await next_keys(watch) == [b"a1"]


async def test_what_nobody_waits_for_is_read_together_and_the_rest_at_once(
    postgres_url: str, writer: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.storage.postgres.feed.follower.UNAWAITED_PAUSE_S", 1.0)
    demand = Demand()
    demand.set(True)
    async with (
        open_postgres(postgres_url, NOTIFY_ONLY) as store,
        store.watch(b"a", b"b", demand=demand) as watch,
    ):
        await until_listening(store, writer)
        demand.set(False)
        pages = pages_read(monkeypatch)
        for number in range(10):
            await writer.commit(Batch(puts={b"a%d" % number: b""}))
        seen: list[bytes] = []
        while len(seen) < 10:
            seen += await next_keys(watch)
        together = len(pages)

        demand.set(True)
        for number in range(10):
            await writer.commit(Batch(puts={b"a%d" % number: b""}))
            await next_keys(watch)

    assert seen == [b"a%d" % number for number in range(10)]
    assert together < 10 <= len(pages) - together


async def test_a_process_in_which_no_caller_waits_is_not_notified(
    postgres_url: str, writer: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.storage.postgres.feed.listener.REGISTER_INTERVAL_S", 0.05)
    listening = "SELECT count(*) FROM listeners"
    demand = Demand()
    async with (
        open_postgres(postgres_url, NOTIFY_ONLY) as store,
        store.watch(b"a", b"b", demand=demand) as watch,
    ):
        before = await on_database(postgres_url, listening)
        await writer.commit(Batch(puts={b"a1": b""}))
        demand.set(True)

        assert await next_keys(watch) == [b"a1"]  # What was committed before it listened.
        await writer.commit(Batch(puts={b"a2": b""}))
        assert await next_keys(watch) == [b"a2"]
        during = await on_database(postgres_url, listening)
        demand.set(False)
        await _until_listeners(postgres_url, 0)
        demand.set(True)
        await writer.commit(Batch(puts={b"a3": b""}))
        assert await next_keys(watch) == [b"a3"]

    assert (before, during) == (0, 1)


async def test_a_registration_that_outlived_its_connection_is_taken_back(
    postgres_url: str, writer: Store
) -> None:
    demand = Demand()
    async with (
        open_postgres(postgres_url, NOTIFY_ONLY) as store,
        store.watch(b"a", b"b", demand=demand),
    ):
        demand.set(True)
        await _until_listeners(postgres_url, 1)
        demand.set(False)
        await on_database(
            postgres_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'holdfast' AND query LIKE '%register_listener%'",
        )

        await _until_listeners(postgres_url, 0)


async def test_a_listener_that_ended_without_a_goodbye_is_forgotten(postgres_url: str, writer: Store) -> None:
    long_ago = "now() - interval '2 minutes'"
    await on_database(
        postgres_url,
        f"INSERT INTO listeners (id, seen_at) VALUES (gen_random_uuid(), {long_ago}), (gen_random_uuid(), now())",
    )

    await writer.compact()

    assert await on_database(postgres_url, "SELECT count(*) FROM listeners") == 1


async def _until_listeners(url: str, count: int) -> None:
    async with asyncio.timeout(30):
        while True:
            if await on_database(url, "SELECT count(*) FROM listeners") == count:
                return
            await asyncio.sleep(0.01)


async def test_what_is_neither_watched_nor_cached_stays_in_the_database(
    postgres_url: str, writer: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_postgres(postgres_url, NOTIFY_ONLY) as store,
        store.watch(b"a", b"b") as watch,
        store.watch(b"k", b"k\x00") as watch_of_key,
    ):
        await until_listening(store, writer)
        rows: list[bytes] = []
        read = Follower._page

        async def noted(*args: Any) -> Any:
            page = await read(*args)
            rows.extend(row[1] for row in page.changes)
            return page

        monkeypatch.setattr(Follower, "_page", noted)
        await writer.commit(Batch(puts={b"a1": b"", b"index/1": b"", b"k": b"", b"k1": b"", b"b": b""}))
        seen = [await next_keys(watch), await next_keys(watch_of_key)]
        unwatched = list(rows)

        await store.transact(lambda tx: tx.get(b"index/1"))
        await writer.commit(Batch(puts={b"a2": b"", b"index/1": b"2", b"index/2": b""}))
        await next_keys(watch)
        cached = await store.transact(lambda tx: tx.get(b"index/1"))

    assert seen == [[b"a1"], [b"k"]]
    assert sorted(unwatched) == [b"a1", b"k"]
    assert cached is not None
    assert cached.value == b"2"


def pages_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After which revisions the changes are read from now on."""
    seen: list[int] = []
    read = Follower._page

    async def counted(
        follower: Follower, query: str, after: int, events_limit: int, *ranges: list[bytes]
    ) -> Any:
        seen.append(after)
        return await read(follower, query, after, events_limit, *ranges)

    monkeypatch.setattr(Follower, "_page", counted)
    return seen


async def test_watches_that_fell_behind_the_kept_history_are_told(postgres_url: str, writer: Store) -> None:
    async with open_postgres(postgres_url, NOTIFY_ONLY) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)
        await on_database(postgres_url, "DELETE FROM listeners")
        await writer.commit(Batch(puts={b"a1": b""}))
        await on_database(postgres_url, "UPDATE store SET compacted_revision = revision; DELETE FROM changes")
        await on_database(postgres_url, f'NOTIFY "holdfast.{parse_url(postgres_url).schema}"')

        with pytest.raises(Compacted):
            await next_keys(watch)


async def test_events_are_made_only_of_what_is_watched_or_cached(
    postgres_url: str, writer: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bytes] = []

    def counted(row: Row) -> Event:
        event = change_event(row)
        made.append(event.key)
        return event

    monkeypatch.setattr("holdfast.storage.postgres.feed.follower.change_event", counted)
    async with open_postgres(postgres_url, NOTIFY_ONLY) as store, store.watch(b"a", b"b") as watch:
        await until_listening(store, writer)
        await store.transact(lambda tx: tx.get(b"cached"))
        made.clear()

        await writer.commit(Batch(puts={b"other%d" % number: b"x" for number in range(100)}))
        await writer.commit(Batch(puts={b"cached": b"1", b"other": b"2"}))
        await writer.commit(Batch(puts={b"a1": b""}))

        assert await next_keys(watch) == [b"a1"]
        assert made == [b"cached", b"a1"]


async def test_a_watch_that_comes_while_the_feed_reads_gets_previous_records(
    postgres_url: str, writer: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer.commit(Batch(puts={b"a1": b"before"}))
    async with open_postgres(postgres_url, NOTIFY_ONLY) as store, store.watch(b"a", b"b") as plain:
        follower: Any = store._follower
        page, watches = follower._page, list[Watch]()

        async def meanwhile(*args: object) -> object:
            read = await page(*args)
            if not watches:
                watches.append(
                    store.watch(b"a", b"b", after=store._follower._hub.revision, with_previous=True)
                )
            return read

        monkeypatch.setattr(follower, "_page", meanwhile)
        await store.commit(Batch(puts={b"a1": b"after"}))

        [event] = await anext(plain)
        [event_with_previous] = await anext(watches[0])

    assert event.previous is None
    assert event_with_previous.previous is not None
    assert event_with_previous.previous.value == b"before"


async def test_the_last_watch_may_end_while_changes_are_fetched(
    postgres_url: str, writer: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No range is left to ask for then, where there was one; to ask for none is not to break the connection."""
    async with open_postgres(postgres_url, NOTIFY_ONLY) as store:
        follower: Any = store._follower
        watch = store.watch(b"a", b"b")
        fetch, asked = follower._page, list[object]()

        async def ending(*arguments: object) -> object:
            asked.append(arguments)
            page = await fetch(*arguments)
            await watch.aclose()
            return page

        monkeypatch.setattr(follower, "_page", ending)
        revision = await writer.commit(Batch(puts={b"x": b""}))
        follower._has_news.set()
        async with asyncio.timeout(20):
            while len(asked) < 2 or follower._hub.revision < revision:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    assert not [record for record in caplog.records if "away" in record.getMessage()]
