"""The time of a store on PostgreSQL: every process follows the database, whatever its own machine's clock says."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from holdfast.common.clock import FakeClock, SystemClock
from holdfast.leases.layer.errors import Waiting
from holdfast.leases.layer.grant import AcquireParams
from holdfast.leases.layer.service import LeaseService
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store
from holdfast.storage.postgres.clock import DatabaseClock, Sample
from holdfast.storage.postgres.store import open_postgres
from holdfast.storage.postgres.url import parse_url
from holdfast.storage.store_clock import ClockSkewed
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.port import Member

KEY = Member("default", "key")
HOUR_S = 3600.0
SOON_S = 20.0


class WrongClock(SystemClock):
    """A machine whose clock is wrong by so much."""

    def __init__(self, wrong_s: float) -> None:
        self.wrong_s = wrong_s

    def wall_s(self) -> float:
        return super().wall_s() + self.wrong_s


@asynccontextmanager
async def opened(url: str, wrong_s: float = 0.0, *, bound_s: float = 0.0) -> AsyncIterator[Store]:
    options = StoreOptions(
        clock=WrongClock(wrong_s), clock_skew_s_max=bound_s, postgres_clock_interval_s=0.02
    )
    async with open_postgres(url, options) as store:
        yield store


@asynccontextmanager
async def leases_of(store: Store) -> AsyncIterator[LeaseService]:
    coordinator = Coordinator(store.clock)
    leases = LeaseService(store, coordinator, store.clock)
    coordinator.enlist(leases)
    async with leases.running():
        yield leases


async def set_database_clock(url: str, shift: str) -> None:
    """As if the database ran on a machine whose clock is off by `shift`."""
    parsed = parse_url(url)
    connection = await asyncpg.connect(parsed.dsn, server_settings={"search_path": parsed.schema})
    await connection.execute(
        "CREATE OR REPLACE FUNCTION database_clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
        f"$$SELECT clock_timestamp() + interval '{shift}'$$"
    )
    await connection.close()


def now_s(store: Store) -> float:
    return store.clock.now_ms() / 1000


@pytest.mark.parametrize("wrong_s", [HOUR_S, -HOUR_S])
async def test_a_process_with_a_wrong_clock_has_the_time_of_the_others(
    postgres_url: str, wrong_s: float
) -> None:
    async with opened(postgres_url) as right, opened(postgres_url, wrong_s) as wrong:
        assert abs(now_s(right) - now_s(wrong)) < 1
        assert wrong.clock.skew_s == pytest.approx(wrong_s, abs=1)
        assert wrong.clock.uncertainty_s < 5


async def test_a_process_that_starts_with_a_wrong_clock_takes_no_live_lease(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        right = await stack.enter_async_context(opened(postgres_url))
        holder = await stack.enter_async_context(leases_of(right))
        grant = await holder.acquire(AcquireParams(KEY, "holder", 60, 0.0))
        wrong = await stack.enter_async_context(opened(postgres_url, HOUR_S))
        other = await stack.enter_async_context(leases_of(wrong))

        with pytest.raises(Waiting):
            await other.acquire(AcquireParams(KEY, "other", 60, 0.0))

        described = await holder.describe(KEY)
        assert described.lease is not None
        assert described.lease.lease_id == grant.lease_id


@pytest.mark.parametrize("wrong_s", [HOUR_S, -HOUR_S])
async def test_beyond_the_bound_nothing_is_served_until_the_clocks_agree(
    postgres_url: str, wrong_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = WrongClock(wrong_s)
    options = StoreOptions(clock=machine, clock_skew_s_max=30.0, postgres_clock_interval_s=0.02)
    async with open_postgres(postgres_url, options) as store:
        with pytest.raises(ClockSkewed, match=r"3600.* s .*--clock-skew-max 30s; set both by NTP"):
            store.clock.check()

        machine.wrong_s = 0.0
        async with asyncio.timeout(SOON_S):
            while store.clock.problem is not None:  # noqa: ASYNC110 - what ends it is a measurement
                await asyncio.sleep(0.01)
        store.clock.check()
    told = capsys.readouterr().err
    assert (told.count("storage.clock.skewed"), told.count("storage.clock.agrees")) == (1, 1)


async def test_without_a_bound_everything_is_served(postgres_url: str) -> None:
    async with opened(postgres_url, HOUR_S) as store:
        store.clock.check()
        assert store.clock.problem is None


async def test_time_does_not_go_back_with_the_database(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        before_s = now_s(store)
        await store.commit(Batch(puts={b"k": b"v"}))
        await set_database_clock(postgres_url, "-1 hour")
        await asyncio.sleep(0.2)  # A few measurements.
        assert before_s <= now_s(store) < before_s + 60

    async with opened(postgres_url) as again:
        assert before_s <= now_s(again) < before_s + 60
        assert again.clock.lead_s == pytest.approx(HOUR_S, abs=60)


async def test_time_does_not_go_back_when_the_history_is_compacted_away(postgres_url: str) -> None:
    async with open_postgres(postgres_url, StoreOptions(history_revisions_max=0)) as store:
        await store.commit(Batch(puts={b"k": b"v"}))
        before_s = now_s(store)
        await store.compact()
    await set_database_clock(postgres_url, "-1 hour")

    async with opened(postgres_url) as again:
        assert now_s(again) > before_s - 1


async def test_processes_agree_while_the_database_is_behind(postgres_url: str) -> None:
    async with opened(postgres_url) as first:
        await set_database_clock(postgres_url, "-1 hour")
        await asyncio.sleep(0.5)  # Nothing is committed; the first process leaves its time for others.

        async with opened(postgres_url) as second:
            assert abs(now_s(first) - now_s(second)) < 1


async def test_a_step_of_the_database_ends_leases_that_sleep_until_later(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with opened(postgres_url) as store, leases_of(store) as leases:
        await leases.acquire(AcquireParams(KEY, "holder", 600, 0.0))
        waiter = asyncio.create_task(leases.acquire(AcquireParams(KEY, "waiter", 600, None)))
        await asyncio.sleep(0)

        await set_database_clock(postgres_url, "1 hour")

        async with asyncio.timeout(SOON_S):
            assert (await waiter).fencing_token == 2
        assert now_s(store) > time.time() + HOUR_S - 60
    assert "storage.clock.stepped" in capsys.readouterr().err


async def test_the_clock_of_a_test_is_the_time_of_its_store(postgres_url: str) -> None:
    clock = FakeClock()
    async with open_postgres(postgres_url, StoreOptions(clock=clock)) as store:
        clock.advance(5)
        assert store.clock.now_ms() == 1_700_000_005_000


# -- without a database: how answers are followed

WALL_S = 1_700_000_000.0


def followed(machine: FakeClock, *, clock_s: float = WALL_S, mark_s: float = 0.0) -> DatabaseClock:
    return DatabaseClock(machine, Sample(machine.monotonic_s(), 0.01, clock_s, mark_s), skew_s_max=30.0)


def sample(machine: FakeClock, clock_s: float, uncertainty_s: float = 0.01, mark_s: float = 0.0) -> Sample:
    return Sample(machine.monotonic_s(), uncertainty_s, clock_s, mark_s)


def test_an_answer_within_its_uncertainty_moves_nothing() -> None:
    machine = FakeClock(WALL_S)
    clock = followed(machine)

    for apart_s in (-0.9, 0.9):
        clock.follow(sample(machine, WALL_S + apart_s, uncertainty_s=1.0))

    assert clock.now_ms() == WALL_S * 1000


def test_a_later_answer_is_followed_at_once_and_an_earlier_one_slowly() -> None:
    machine = FakeClock(WALL_S)
    clock = followed(machine)

    clock.follow(sample(machine, WALL_S + 5))
    assert clock.now_ms() == (WALL_S + 5) * 1000
    machine.advance(2)
    clock.follow(sample(machine, WALL_S + 2))

    assert clock.now_ms() == pytest.approx((WALL_S + 7) * 1000 - 10, abs=2)


def test_the_mark_of_the_store_counts_as_the_database_clock_does() -> None:
    machine = FakeClock(WALL_S)

    assert followed(machine, mark_s=WALL_S + 100).now_ms() == (WALL_S + 100) * 1000
    clock = followed(machine)
    clock.follow(sample(machine, WALL_S, mark_s=WALL_S + 100))
    assert clock.now_ms() == (WALL_S + 100) * 1000


def test_the_uncertainty_grows_while_the_database_is_away_and_has_a_bound() -> None:
    machine = FakeClock(WALL_S)
    clock = followed(machine)

    machine.advance(1000)
    assert clock.uncertainty_s == pytest.approx(0.11)
    machine.advance(1_000_000)
    clock.judge()

    with pytest.raises(ClockSkewed, match="known within 100"):
        clock.check()
