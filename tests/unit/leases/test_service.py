"""Leases over a store in memory: exclusive, first come first served, fenced, ended by time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.common.clock import FakeClock, SteadyClock, SystemClock
from holdfast.leases.layer.errors import (
    AlreadyExists,
    FencingMismatch,
    LeaseExpired,
    LeaseRequired,
    TxnMismatch,
    Waiting,
)
from holdfast.leases.layer.grant import AcquireParams, Claim, Grant
from holdfast.leases.layer.records import held_range
from holdfast.leases.layer.service import LeaseService
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.document.staging import Expectation
from holdfast.state.layer.records import DOCUMENTS
from holdfast.storage.disk.store import open_disk
from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store
from holdfast.txn.layer import port as resource
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.port import Decision, Member, TooManyParticipants
from tests.infra.files import GatedFile

A, B, C = Member("default", "a"), Member("default", "b"), Member("default", "c")


class Plane:
    """Leases and state over one store, with a clock that the test owns."""

    def __init__(self, store: Store, clock: SteadyClock, *, follows_all: bool = True) -> None:
        coordinator = Coordinator()
        self.store = store
        self.leases = LeaseService(store, coordinator, clock, follows_all=follows_all)
        self.state = StateService(store, clock)
        coordinator.enlist(self.state)
        coordinator.enlist(self.leases)

    async def acquire(self, member: Member = A, **params: object) -> Grant:
        asked = {"owner": "worker", "ttl_s": 30, "wait_s": 0.0, **params}
        return await self.leases.acquire(AcquireParams(member, **asked))  # type: ignore[arg-type]

    async def update(self, member: Member, grant: Grant, text: bytes) -> None:
        content = await self.state.content_of(member, text)
        await self.state.update(member, claim(grant), content, Expectation())

    async def release(self, member: Member, grant: Grant, decision: Decision = Decision.COMMIT) -> None:
        await self.leases.release(member, claim(grant), decision)

    async def read(self, member: Member) -> bytes | None:
        view = await self.state.get_public(member)
        return None if view.content is None else view.content.inline


def claim(grant: Grant) -> Claim:
    return Claim(grant.lease_id, grant.fencing_token, grant.txn_id)


@asynccontextmanager
async def open_plane(
    store: Store, clock: FakeClock | SystemClock | None = None, *, follows_all: bool = True
) -> AsyncIterator[Plane]:
    plane = Plane(store, SteadyClock(clock or FakeClock()), follows_all=follows_all)
    async with plane.leases.running():
        yield plane


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_memory(StoreOptions()) as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def plane(store: Store, clock: FakeClock) -> AsyncIterator[Plane]:
    async with open_plane(store, clock) as opened:
        yield opened


class DistantStore(LocalStore):
    """As a database does: what was sent is carried out in its order, also when its sender has gone."""

    def __init__(self, *, url: str, engine: MemoryEngine, options: StoreOptions) -> None:
        super().__init__(url=url, engine=engine, options=options)
        self.way = asyncio.Event()
        self.way.set()
        self._turn = asyncio.Lock()

    async def commit(self, batch: Batch) -> int:
        return await asyncio.shield(asyncio.ensure_future(self._arrive(batch)))

    async def _arrive(self, batch: Batch) -> int:
        async with self._turn:
            await self.way.wait()
            return await super().commit(batch)


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_lease_is_exclusive_also_for_its_own_owner(plane: Plane) -> None:
    first = await plane.acquire()

    with pytest.raises(Waiting) as refused:
        await plane.acquire()

    assert refused.value.retry_after_s == 30
    await plane.release(A, first)
    second = await plane.acquire()
    assert second.fencing_token == first.fencing_token + 1


async def test_waiters_are_served_in_the_order_they_came(plane: Plane) -> None:
    grant = await plane.acquire()
    order: list[int] = []

    async def wait(number: int) -> None:
        mine = await plane.acquire(wait_s=None)
        order.append(number)
        await plane.release(A, mine)

    waiters: list[asyncio.Task[None]] = []
    for number in range(50):
        waiters.append(asyncio.create_task(wait(number)))
        await asyncio.sleep(0)
    await turns()
    assert plane.leases.waiters == 50
    await plane.release(A, grant)
    await asyncio.gather(*waiters)

    assert order == list(range(50))
    assert plane.leases.waiters == 0


async def test_nobody_overtakes_the_line(plane: Plane) -> None:
    grant = await plane.acquire()
    waiter = asyncio.create_task(plane.acquire(wait_s=None))
    await turns()
    await plane.release(A, grant)

    with pytest.raises(Waiting):
        await plane.acquire()

    assert (await waiter).fencing_token == 2


async def test_a_waiter_that_hangs_up_is_gone_at_once_and_never_granted(plane: Plane) -> None:
    grant = await plane.acquire()
    first = asyncio.create_task(plane.acquire(wait_s=None))
    second = asyncio.create_task(plane.acquire(wait_s=None))
    await turns()

    first.cancel()
    await turns()
    assert plane.leases.waiters == 1
    await plane.release(A, grant)

    assert (await second).fencing_token == 2


async def test_a_grant_that_nobody_waits_for_any_more_is_given_back(tmp_path: Path) -> None:
    GatedFile.gate.set()
    options = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=0)
    async with open_disk(tmp_path, options, file_factory=GatedFile) as store, open_plane(store) as plane:
        GatedFile.gate.clear()
        asking = asyncio.create_task(plane.acquire(wait_s=None))
        await turns()
        asking.cancel()
        await turns()
        assert asking.cancelled()

        GatedFile.gate.set()
        second = await plane.acquire(wait_s=None)

        assert second.fencing_token == 2
        assert len(await store.range(*held_range(), limit=10)) == 1


async def test_waiters_hear_of_a_release_whose_caller_did_not_wait_for_the_answer(tmp_path: Path) -> None:
    GatedFile.gate.set()
    options = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=0)
    async with open_disk(tmp_path, options, file_factory=GatedFile) as store, open_plane(store) as plane:
        grant = await plane.acquire(A)
        other = await plane.acquire(B, txn_id=grant.txn_id)
        waiters = [asyncio.create_task(plane.acquire(member, wait_s=None)) for member in (A, B)]
        await turns()
        GatedFile.gate.clear()
        releasing = asyncio.create_task(plane.release(B, other))
        await turns()
        releasing.cancel()
        await turns()
        assert releasing.cancelled()

        GatedFile.gate.set()
        async with asyncio.timeout(10):
            tokens = [(await waiter).fencing_token for waiter in waiters]

        assert tokens == [2, 2]


async def test_a_grant_on_its_way_to_a_database_is_given_back_when_it_arrives_without_its_caller() -> None:
    store = DistantStore(url="mem://", engine=MemoryEngine(), options=StoreOptions())
    async with open_plane(store) as plane:
        store.way.clear()
        asking = asyncio.create_task(plane.acquire(wait_s=None))
        await turns()
        asking.cancel()
        await turns()

        store.way.set()
        async with asyncio.timeout(10):
            second = await plane.acquire(wait_s=None)

        assert second.fencing_token == 2
        assert len(await store.range(*held_range(), limit=10)) == 1


async def test_the_wait_ends_when_the_patience_does(store: Store) -> None:
    async with open_plane(store, SystemClock()) as plane:
        await plane.acquire()

        with pytest.raises(Waiting) as refused:
            await plane.acquire(wait_s=0.05)

        assert refused.value.retry_after_s is not None
        assert plane.leases.waiters == 0


async def test_waiters_are_woken_by_the_expiry_itself(store: Store) -> None:
    async with open_plane(store, SystemClock()) as plane:
        await plane.acquire(ttl_s=1)

        async with asyncio.timeout(20):
            second = await plane.acquire(wait_s=None)

        assert second.fencing_token == 2


async def test_what_ends_by_time_alone_is_counted(store: Store) -> None:
    async with open_plane(store, SystemClock()) as plane:
        ended = asyncio.get_running_loop().create_future()
        plane.leases.on_expired = ended.set_result
        await plane.acquire(ttl_s=1)

        async with asyncio.timeout(20):
            assert await ended == 1


async def test_an_expired_holder_is_refused_everywhere(plane: Plane, clock: FakeClock) -> None:
    grant = await plane.acquire(ttl_s=10)
    await plane.update(A, grant, b"1")
    clock.advance(10)

    with pytest.raises(LeaseExpired):
        await plane.update(A, grant, b"2")
    with pytest.raises(LeaseExpired):
        await plane.leases.keepalive(A, claim(grant), 10)
    await plane.release(A, grant)

    assert await plane.read(A) is None
    with pytest.raises(LeaseRequired):
        await plane.update(A, grant, b"3")


async def test_jumps_of_the_wall_clock_change_nothing(plane: Plane, clock: FakeClock) -> None:
    grant = await plane.acquire(ttl_s=10)

    for jump_s in (3600, -7200, 86_400):
        clock.jump_wall(jump_s)
        with pytest.raises(Waiting):
            await plane.acquire()
    clock.advance(9)
    await plane.leases.keepalive(A, claim(grant), 10)
    clock.advance(9)
    with pytest.raises(Waiting):
        await plane.acquire()
    clock.advance(1)

    assert (await plane.acquire()).fencing_token == 2


async def test_a_takeover_throws_away_what_the_old_holder_staged(plane: Plane, clock: FakeClock) -> None:
    old = await plane.acquire(ttl_s=10)
    await plane.update(A, old, b'"old"')
    clock.advance(11)

    new = await plane.acquire()
    await plane.update(A, new, b'"new"')
    with pytest.raises(LeaseRequired):
        await plane.update(A, old, b'"late"')
    await plane.release(A, old)
    await plane.release(A, new)

    assert await plane.read(A) == b'"new"'


async def test_tokens_rise_over_removal_and_restart(store: Store) -> None:
    async with open_plane(store) as plane:
        grant = await plane.acquire()
        await plane.update(A, grant, b"1")
        await plane.release(A, grant)
        grant = await plane.acquire()
        await plane.state.remove(A, claim(grant), Expectation())
        await plane.release(A, grant)

    async with open_plane(store) as plane:
        assert (await plane.acquire()).fencing_token == 3


async def test_a_restart_knows_what_is_held_and_ends_what_is_over(store: Store) -> None:
    clock = FakeClock()
    async with open_plane(store, clock) as plane:
        await plane.acquire(A, ttl_s=10)
        await plane.acquire(B, ttl_s=100)
    clock.advance(20)

    async with open_plane(store, clock) as plane:
        await turns()
        assert plane.leases.active == 1
        with pytest.raises(Waiting):
            await plane.acquire(B)
        assert (await plane.acquire(A)).fencing_token == 2


async def test_a_wrong_token_or_transaction_is_refused(plane: Plane) -> None:
    grant = await plane.acquire()

    with pytest.raises(FencingMismatch):
        await plane.leases.keepalive(A, claim(grant)._replace(fencing_token=9), 10)
    with pytest.raises(TxnMismatch):
        await plane.leases.keepalive(A, claim(grant)._replace(txn_id="other"), 10)
    with pytest.raises(TxnMismatch):
        await plane.leases.release(A, claim(grant)._replace(txn_id="other"), Decision.COMMIT)
    await plane.leases.release(A, claim(grant)._replace(fencing_token=9), Decision.COMMIT)

    with pytest.raises(Waiting):
        await plane.acquire()


async def test_release_is_idempotent(plane: Plane) -> None:
    grant = await plane.acquire()
    await plane.update(A, grant, b"1")

    for _ in range(3):
        await plane.release(A, grant)
    await plane.release(A, grant, Decision.ROLLBACK)

    assert await plane.read(A) == b"1"


async def test_create_only_refuses_a_key_that_was_ever_leased(plane: Plane) -> None:
    grant = await plane.acquire(is_create_only=True)
    await plane.release(A, grant)

    with pytest.raises(AlreadyExists):
        await plane.acquire(is_create_only=True)


async def test_create_only_is_refused_at_once_also_when_others_wait_for_the_key(plane: Plane) -> None:
    await plane.acquire()
    waiter = asyncio.create_task(plane.acquire(wait_s=None))
    await turns()

    for wait_s in (0.0, None):
        with pytest.raises(AlreadyExists):
            async with asyncio.timeout(5):
                await plane.acquire(is_create_only=True, wait_s=wait_s)

    waiter.cancel()


@pytest.mark.parametrize("decision", list(Decision))
async def test_joined_keys_end_together_whoever_releases(plane: Plane, decision: Decision) -> None:
    for releaser in (A, B, C):
        first = await plane.acquire(A)
        grants = {A: first, **{m: await plane.acquire(m, txn_id=first.txn_id) for m in (B, C)}}
        text = b'"%s"' % releaser.key.encode()
        for member in (A, B, C):
            await plane.update(member, grants[member], text)

        await plane.release(releaser, grants[releaser], decision)
        opposite = Decision.ROLLBACK if decision is Decision.COMMIT else Decision.COMMIT
        for member in (A, B, C):
            await plane.release(member, grants[member], opposite)

        wanted = text if decision is Decision.COMMIT else None
        assert [await plane.read(member) for member in (A, B, C)] == [wanted] * 3


async def test_nobody_joins_a_transaction_that_has_as_many_members_as_one_commit_takes(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "MEMBERS_MAX", 2)
    first = await plane.acquire(A)
    await plane.acquire(B, txn_id=first.txn_id)

    with pytest.raises(TooManyParticipants):
        await plane.acquire(C, txn_id=first.txn_id)

    await plane.release(A, first)
    assert plane.leases.active == 0


async def test_releasing_an_untouched_key_commits_the_others(plane: Plane) -> None:
    first = await plane.acquire(A)
    second = await plane.acquire(B, txn_id=first.txn_id)
    await plane.update(A, first, b"1")

    await plane.release(B, second)

    assert await plane.read(A) == b"1"
    assert plane.leases.active == 0


async def test_expiry_rolls_the_whole_transaction_back(plane: Plane, clock: FakeClock) -> None:
    first = await plane.acquire(A, ttl_s=10)
    second = await plane.acquire(B, ttl_s=20, txn_id=first.txn_id)
    for member, grant in ((A, first), (B, second)):
        await plane.update(member, grant, b"1")
    clock.advance(15)
    await plane.leases.keepalive(A, claim(first), 1)

    clock.advance(2)
    taken = await plane.acquire(A)
    await plane.release(B, second)
    await plane.release(A, taken)

    assert [await plane.read(A), await plane.read(B)] == [None, None]


async def test_keepalive_keeps_the_whole_transaction_alive(plane: Plane, clock: FakeClock) -> None:
    first = await plane.acquire(A, ttl_s=10)
    second = await plane.acquire(B, ttl_s=10, txn_id=first.txn_id)
    await plane.update(A, first, b"1")
    await plane.update(B, second, b"1")
    for _ in range(5):
        clock.advance(8)
        await plane.leases.keepalive(B, claim(second), 10)

    await plane.release(B, second)

    assert [await plane.read(A), await plane.read(B)] == [b"1", b"1"]


async def test_staged_data_is_seen_by_its_holder_only(plane: Plane, store: Store) -> None:
    grant = await plane.acquire()
    await plane.update(A, grant, b"1")
    await plane.release(A, grant)
    grant = await plane.acquire()
    await plane.update(A, grant, b"2")

    mine = await plane.state.get_leased(A, claim(grant)._replace(txn_id=None))
    assert mine.content is not None
    assert (mine.content.inline, mine.version) == (b"2", 2)
    assert await plane.read(A) == b"1"
    document = await DOCUMENTS.fetch(store, *A)
    assert document is not None
    assert document.version == 1


async def test_a_thousand_waiters_on_one_key_all_get_it_once(plane: Plane) -> None:
    grant = await plane.acquire()
    tokens: list[int] = []

    async def wait() -> None:
        mine = await plane.acquire(wait_s=None)
        tokens.append(mine.fencing_token)
        await plane.release(A, mine)

    waiters = [asyncio.create_task(wait()) for _ in range(1000)]
    await turns()
    await plane.release(A, grant)
    await asyncio.gather(*waiters)

    assert tokens == list(range(2, 1002))
