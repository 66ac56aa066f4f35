"""What a store holds goes by what is in use, not by what ever was."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from holdfast.common.clock import FakeClock
from holdfast.storage.disk.store import open_disk
from holdfast.txn.layer.port import Member
from tests.conformance.backends import SMALL, Backend
from tests.infra.files import sizes_of
from tests.service.retention.kept_plane import DAY_S, KEYS_ONLY, KeptPlane

DAYS = 3
KEYS_PER_DAY = 260
DISK_KEYS = 5_000


async def test_the_number_of_records_is_the_same_every_day(backend: Backend) -> None:
    clock = FakeClock()
    async with backend.open(replace(SMALL, clock=clock)) as store:
        plane = KeptPlane(store, clock, KEYS_ONLY)
        evenings = []
        for day in range(DAYS):
            for number in range(KEYS_PER_DAY):
                await plane.use(Member("default", f"day-{day}-{number}"))
            clock.advance(DAY_S)
            await plane.forget()
            evenings.append(await plane.tables())

    assert evenings[0] == evenings[-1] == {"leasefloor": 1, "sys": 2}


async def test_the_bytes_on_disk_come_back_when_the_engine_has_compacted(tmp_path: Path) -> None:
    clock = FakeClock()
    options = replace(SMALL, clock=clock, history_revisions_max=0)
    async with open_disk(tmp_path / "store", options) as store:
        plane = KeptPlane(store, clock, KEYS_ONLY)

        async def engine_bytes() -> int:
            await store.compact()
            engine = cast(Any, store._engine)
            engine.flush()
            engine._db.compact_range(None, None)
            return sum(sizes_of(tmp_path / "store" / "shelf", "*.sst"))

        empty = await engine_bytes()
        for number in range(DISK_KEYS):
            await plane.use(Member("default", f"key-{number:06}-{'x' * 40}"))
        full = await engine_bytes()
        clock.advance(2 * DAY_S)
        assert await plane.keys.walk() == DISK_KEYS
        forgotten = await engine_bytes()

    assert full - empty > 10 * DISK_KEYS
    assert forgotten - empty < 16 << 10, (empty, full, forgotten)


async def test_a_message_with_state_leaves_nothing(backend: Backend) -> None:
    clock = FakeClock()
    async with backend.open(replace(SMALL, clock=clock)) as store:
        plane = KeptPlane(store, clock, KEYS_ONLY)
        async with plane.queue.service.running():
            for _ in range(20):
                await plane.queue.enqueue()
                await plane.queue.ack(await plane.queue.dequeue(with_state=True))

        assert await plane.tables() == {}


async def test_a_transaction_of_two_keys_leaves_its_outcome_for_a_while_and_then_nothing(
    backend: Backend,
) -> None:
    clock = FakeClock()
    async with backend.open(replace(SMALL, clock=clock)) as store:
        plane = KeptPlane(store, clock, KEYS_ONLY)
        one, other = Member("default", "one"), Member("default", "other")
        first = await plane.acquire(one)
        second = await plane.acquire(other, txn_id=first.txn_id)
        await plane.stage(one, first, b"1")
        await plane.stage(other, second, b"2")
        await plane.release(one, first)
        await plane.remove(one)
        await plane.remove(other)
        clock.advance(2 * DAY_S)
        await plane.forget()

        left = await plane.tables()

    # The sweep of the coordinator takes these two after --tc-decision-retention.
    assert left.keys() <= {"leasefloor", "sys", "txnmark", "txnmarkdue"}
