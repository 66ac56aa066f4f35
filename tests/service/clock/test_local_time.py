"""The time of a store on disk: it goes on from where it was, whatever became of the machine's clock meanwhile."""

import shutil
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.common.clock import FakeClock
from holdfast.leases.layer.errors import LeaseExpired, LeaseRequired, Waiting
from holdfast.leases.layer.grant import AcquireParams, Claim
from holdfast.leases.layer.service import LeaseService
from holdfast.storage.disk.clock_mark import open_mark
from holdfast.storage.disk.store import open_disk
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store
from holdfast.storage.store_clock import StoreClock
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.port import Member

KEY = Member("default", "key")
START_S = 1_700_000_000.0
HOUR_S = 3600.0


@asynccontextmanager
async def opened(
    folder: Path, clock: FakeClock, **options: object
) -> AsyncIterator[tuple[Store, LeaseService]]:
    async with open_disk(folder, StoreOptions(clock=clock, **options)) as store:  # type: ignore[arg-type]
        coordinator = Coordinator(store.clock)
        leases = LeaseService(store, coordinator, store.clock)
        coordinator.enlist(leases)
        yield store, leases


async def acquire(leases: LeaseService, ttl_s: int = 10) -> Claim:
    grant = await leases.acquire(AcquireParams(KEY, "worker", ttl_s, 0.0))
    return Claim(grant.lease_id, grant.fencing_token, grant.txn_id)


async def test_a_lease_of_ten_seconds_ends_in_ten_after_the_clock_went_back_an_hour(tmp_path: Path) -> None:
    async with opened(tmp_path, FakeClock(START_S)) as (_, leases):
        await acquire(leases)

    clock = FakeClock(START_S - HOUR_S)
    async with opened(tmp_path, clock) as (_, leases):
        with pytest.raises(Waiting):
            await acquire(leases)
        clock.advance(10)

        assert (await acquire(leases)).fencing_token == 2


async def test_time_does_not_go_back_over_a_crash(tmp_path: Path) -> None:
    clock = FakeClock(START_S)
    async with opened(tmp_path / "store", clock) as (store, leases):
        await acquire(leases)
        clock.advance(5)
        await leases.describe(KEY)
        await store.commit(Batch(puts={b"k": b"v"}))
        # As kill -9 would leave it; what is being made ahead may come and go meanwhile.
        passing = shutil.ignore_patterns("*.ahead", "incoming")
        shutil.copytree(tmp_path / "store", tmp_path / "copy", ignore=passing)

    async with opened(tmp_path / "copy", FakeClock(START_S - HOUR_S)) as (store, _):
        assert store.clock.now_ms() >= (START_S + 5) * 1000


async def test_time_does_not_go_back_when_the_history_is_compacted_away(tmp_path: Path) -> None:
    clock = FakeClock(START_S)
    async with opened(tmp_path, clock, history_revisions_max=0) as (store, _):
        clock.advance(7)
        await store.commit(Batch(puts={b"k": b"v"}))
        await store.compact()
    (tmp_path / "clock").unlink()

    async with opened(tmp_path, FakeClock(START_S - HOUR_S)) as (store, _):
        assert store.clock.now_ms() == (START_S + 7) * 1000


async def test_what_was_refused_as_expired_stays_refused_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock(START_S)
    async with opened(tmp_path, clock) as (_, leases):
        held = await acquire(leases)
        clock.advance(11)
        with pytest.raises(LeaseExpired):
            await leases.keepalive(KEY, held, 10)

    async with opened(tmp_path, FakeClock(START_S - HOUR_S)) as (_, leases):
        with pytest.raises((LeaseExpired, LeaseRequired)):
            await leases.keepalive(KEY, held, 10)


async def test_a_jump_of_the_clock_during_a_run_changes_no_time(tmp_path: Path) -> None:
    clock = FakeClock(START_S)
    async with opened(tmp_path, clock) as (store, _):
        for jump_s in (HOUR_S, -2 * HOUR_S):
            clock.jump_wall(jump_s)
            assert store.clock.now_ms() == START_S * 1000


async def test_a_store_whose_time_is_ahead_says_so_once_and_serves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with opened(tmp_path, FakeClock(START_S)) as (store, _):
        await store.commit(Batch(puts={b"k": b"v"}))

    async with opened(tmp_path, FakeClock(START_S - HOUR_S)) as (store, leases):
        await acquire(leases)
        assert store.clock.skew_s == -HOUR_S
        assert store.clock.lead_s == HOUR_S
        assert store.clock.problem is None
        assert "skew -3600.000 s" in store.clock.note()
    told = capsys.readouterr().err
    assert told.count("storage.clock.ahead") == 1
    assert '"cure"' in told


def test_an_unasked_clock_writes_no_mark(tmp_path: Path) -> None:
    machine = FakeClock(START_S)
    clock = StoreClock(machine)

    with open_mark(tmp_path, clock) as mark:
        machine.advance(60)
        mark.write()
        assert (tmp_path / "clock").stat().st_size == 0
        clock.now_ms()
        mark.write()

    assert (tmp_path / "clock").stat().st_size > 0


@pytest.mark.parametrize(
    "mark",
    [
        b"\xff" * 12,
        *(struct.pack(">QI", at_ms, zlib.crc32(struct.pack(">Q", at_ms))) for at_ms in (2**62, 2**64 - 1)),
    ],
    ids=["torn", "absurd", "largest"],
)
def test_a_torn_or_absurd_mark_counts_as_none(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "clock").write_bytes(mark)
    clock = StoreClock(FakeClock(START_S))

    with open_mark(tmp_path, clock):
        assert clock.now_ms() == START_S * 1000


def test_a_time_that_is_ahead_comes_back_slowly_and_never_goes_back() -> None:
    machine = FakeClock(START_S)
    clock = StoreClock(machine)
    clock.raise_to(START_S + HOUR_S)

    seen = []
    for _ in range(1000):
        machine.advance(1)
        clock.come_back(1)
        seen.append(clock.now_ms())

    assert seen == sorted(seen)
    assert clock.lead_s == pytest.approx(HOUR_S - 5, abs=0.01)


def test_a_time_that_is_behind_the_clock_is_left_alone() -> None:
    machine = FakeClock(START_S)
    clock = StoreClock(machine)

    machine.jump_wall(HOUR_S)
    clock.come_back(1)

    assert clock.now_ms() == START_S * 1000


def test_a_clock_that_is_set_forward_during_a_run_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    machine = FakeClock(START_S)
    clock = StoreClock(machine)

    clock.tell_lag("disk://here")
    machine.jump_wall(HOUR_S)
    clock.tell_lag("disk://here")
    clock.tell_lag("disk://here")

    assert capsys.readouterr().err.count("storage.clock.behind") == 1
