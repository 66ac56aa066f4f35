"""Watches over two stores on one database, as two processes would have them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.storage.errors import Compacted
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Event, Store, Watch
from holdfast.storage.postgres.connection import Row
from holdfast.storage.postgres.feed.follower import change_event
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
