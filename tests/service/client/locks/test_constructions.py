"""What is made of locks and signals, by both twins against a real plane: read-write locks, barriers, elections."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from holdfast.client import AsyncClient, Client, LeaseHeld, RequestRefused
from holdfast.client.aio.locks.election import Election
from holdfast.client.aio.locks.lock import HeldLock
from holdfast.client.aio.locks.read_write import ReadWriteLock
from holdfast.client.locks.calls import WantedLock
from holdfast.client.locks.meeting import READERS_MAX_DEFAULT
from holdfast.client.wire.hang_up import hang_up
from tests.service.client.locks.conftest import Plane, started
from tests.service.client.locks.test_locks import POLL_S, WAIT_S, free, until_waiting


async def until_held(client: AsyncClient, key: str, count: int) -> None:
    while (view := await client.locks.describe(key)) is None or view.held != count:  # noqa: ASYNC110  # Seen over HTTP only.
        await asyncio.sleep(POLL_S)


# -- signals


async def test_signals_are_heard_by_those_who_listen(async_client: AsyncClient) -> None:
    async with async_client.signals("orders.*") as signals:
        heard = aiter(signals)
        first = asyncio.ensure_future(anext(heard))
        async with asyncio.timeout(WAIT_S):
            await signals.opened.wait()

        assert await async_client.signal("orders.new", "4711") == 1
        assert await async_client.signal("orders.old", "4712") == 1

        assert (await first).payload == "4711"
        assert (await anext(heard)).channel == "orders.old"


async def test_a_stream_of_signals_that_breaks_off_is_opened_again(async_client: AsyncClient) -> None:
    async with async_client.signals("again") as signals:
        reading = asyncio.ensure_future(anext(aiter(signals)))
        async with asyncio.timeout(WAIT_S):
            await signals.opened.wait()
        assert signals._socket is not None  # As a network that breaks.
        hang_up(signals._socket)

        while not reading.done():  # What is sent meanwhile is lost.
            await async_client.signal("again", "x")
            await asyncio.sleep(POLL_S)

        assert (await reading).payload == "x"


def test_the_blocking_twin_hears_signals(client: Client) -> None:
    with client.signals("sync.*") as signals:
        first = started(lambda: next(iter(signals)))
        assert signals.opened.wait(WAIT_S)

        assert client.signal("sync.one", "x") == 1

        assert first.result(WAIT_S).payload == "x"


# -- read-write locks


async def test_readers_read_together_and_a_writer_writes_alone(async_client: AsyncClient) -> None:
    lock = async_client.rwlock("rw", readers_max=3)

    async with lock.read(), lock.read(), lock.read():
        with pytest.raises(LeaseHeld):
            await lock.write(wait_s=0)
        with pytest.raises(LeaseHeld):
            await lock.read(wait_s=0)
    async with lock.write(wait_s=5):
        with pytest.raises(LeaseHeld):
            await lock.read(wait_s=0)
        with pytest.raises(LeaseHeld):
            await lock.write(wait_s=0)
    async with lock.read(wait_s=0):
        pass


async def test_a_reader_that_comes_after_a_writer_waits_for_it(async_client: AsyncClient) -> None:
    lock = async_client.rwlock("rw-fair", readers_max=2)
    order: list[str] = []

    async def write() -> None:
        async with lock.write(wait_s=WAIT_S):
            order.append("writer")

    async def read() -> None:
        async with lock.read(wait_s=WAIT_S):
            order.append("reader")

    async with lock.read():
        writer = asyncio.ensure_future(write())
        await until_waiting(async_client, "rw-fair.readers", 1)
        reader = asyncio.ensure_future(read())
        await until_waiting(async_client, "rw-fair.gate", 1)
    await asyncio.gather(writer, reader)

    assert order == ["writer", "reader"]


async def test_readers_and_writers_never_meet_and_never_stand_still(plane: Plane) -> None:
    chance = random.Random(20261119)
    readers, writers = 0, 0
    most_readers = 0

    async def work(client: AsyncClient, *, writes: bool) -> None:
        nonlocal readers, writers, most_readers
        lock = client.rwlock("rw-load", readers_max=3)
        if writes:
            async with lock.write(wait_s=WAIT_S):
                writers += 1
                assert (readers, writers) == (0, 1)
                await asyncio.sleep(chance.random() / 100)
                writers -= 1
            return
        async with lock.read(wait_s=WAIT_S):
            readers += 1
            most_readers = max(most_readers, readers)
            assert writers == 0
            assert readers <= 3
            await asyncio.sleep(chance.random() / 100)
            readers -= 1

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(plane.url)) for _ in range(4)]
        work_of = [work(chance.choice(clients), writes=chance.random() < 0.3) for _ in range(40)]
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*work_of)

    assert most_readers > 1


async def test_a_writer_takes_every_slot_of_the_readers_once(async_client: AsyncClient) -> None:
    asked: list[str] = []

    async def acquire(wanted: WantedLock) -> HeldLock:
        asked.append(wanted.key)
        return await async_client.locks.acquire(wanted)

    channel = async_client._channel
    lock = ReadWriteLock(acquire, channel, "rw-count", readers_max=3, ttl_s=30, owner="")
    async with lock.write():
        view = await async_client.locks.describe("rw-count.readers")

    assert asked == ["rw-count.gate", *["rw-count.readers"] * 3]
    assert view is not None
    assert (view.limit, view.held) == (3, 0)


async def test_sixteen_read_at_once_if_nothing_is_said(async_client: AsyncClient) -> None:
    async with async_client.rwlock("rw-default").read():
        view = await async_client.locks.describe("rw-default.readers")

    assert view is not None
    assert view.limit == READERS_MAX_DEFAULT == 16


async def test_all_users_of_a_read_write_lock_name_the_same_number(async_client: AsyncClient) -> None:
    async with async_client.rwlock("rw-number", readers_max=2).read():
        pass

    with pytest.raises(RequestRefused, match="limit_mismatch"):
        await async_client.rwlock("rw-number", readers_max=3).read()


async def test_a_writer_that_gives_up_leaves_nothing_behind(async_client: AsyncClient) -> None:
    lock = async_client.rwlock("rw-gone", readers_max=2)

    async with lock.read():
        with pytest.raises(LeaseHeld):
            await lock.write(wait_s=1)
        async with lock.read(wait_s=0):
            pass


def test_the_blocking_twin_reads_and_writes(client: Client) -> None:
    lock = client.rwlock("rw-sync", readers_max=2)

    with lock.read():
        writing = started(lambda: lock.write(wait_s=WAIT_S))
        assert not writing.done()
    with writing.result(WAIT_S), pytest.raises(LeaseHeld):
        lock.read(wait_s=0)


# -- barriers


async def test_nobody_passes_a_barrier_before_all_have_come(async_client: AsyncClient) -> None:
    first = [asyncio.ensure_future(async_client.barrier("meet", 3).wait(wait_s=WAIT_S)) for _ in range(2)]
    await until_held(async_client, "meet.0", 2)
    assert not any(one.done() for one in first)

    await async_client.barrier("meet", 3).wait(wait_s=WAIT_S)

    assert await asyncio.gather(*first) == [0, 0]


async def test_a_barrier_is_used_round_after_round(async_client: AsyncClient) -> None:
    rounds: list[int] = []

    async def work() -> None:
        barrier = async_client.barrier("rounds", 3)
        for number in range(4):
            rounds.append(number)
            assert await barrier.wait(wait_s=WAIT_S) == number
            assert rounds.count(number) == 3

    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(work(), work(), work())


async def test_one_that_comes_too_many_is_not_let_through(async_client: AsyncClient) -> None:
    barrier = [async_client.barrier("crowd", 2) for _ in range(3)]

    results = await asyncio.gather(*[one.wait(wait_s=2) for one in barrier], return_exceptions=True)

    assert sum(result == 0 for result in results) == 2
    assert sum(isinstance(result, LeaseHeld) for result in results) == 1


async def test_a_party_that_gives_up_is_not_counted(async_client: AsyncClient) -> None:
    with pytest.raises(LeaseHeld):
        await async_client.barrier("given-up", 2).wait(wait_s=0.2)

    with pytest.raises(LeaseHeld):
        await async_client.barrier("given-up", 2).wait(wait_s=0.2)


@pytest.mark.parametrize("ttl_s", [9.2, 9.5, 9.999, 10])
async def test_a_lease_of_a_fraction_of_a_second_lets_nobody_through_too_early(
    async_client: AsyncClient, ttl_s: float
) -> None:
    """It goes over the wire rounded up, and must not look like the mark of one that has passed."""
    parties = [async_client.barrier(f"early-{ttl_s}", 3, ttl_s=ttl_s) for _ in range(2)]

    results = await asyncio.gather(*[one.wait(wait_s=0.5) for one in parties], return_exceptions=True)

    assert [type(result) for result in results] == [LeaseHeld, LeaseHeld]


def test_a_lease_of_a_fraction_lets_nobody_through_the_blocking_twin(client: Client) -> None:
    other = started(lambda: client.barrier("sync-early", 3, ttl_s=9.2).wait(wait_s=0.5))
    with pytest.raises(LeaseHeld):
        client.barrier("sync-early", 3, ttl_s=9.2).wait(wait_s=0.5)
    with pytest.raises(LeaseHeld):
        other.result(WAIT_S)


def test_the_blocking_twin_meets(client: Client) -> None:
    others = [started(lambda: client.barrier("sync-meet", 3).wait(wait_s=WAIT_S)) for _ in range(2)]

    client.barrier("sync-meet", 3).wait(wait_s=WAIT_S)

    assert [one.result(WAIT_S) for one in others] == [0, 0]


# -- elections


async def test_one_leads_and_the_others_see_who(async_client: AsyncClient) -> None:
    one = async_client.election("lead", candidate="one")
    two = async_client.election("lead", candidate="two")
    seen = two.observe()
    assert await anext(seen) is None

    lead = await one.campaign()
    assert await anext(seen) == "one"
    following = asyncio.ensure_future(campaign(two))
    await until_waiting(async_client, "lead", 1)
    assert await one.leader() == "one"
    await lead.release()

    second = await following
    assert await anext(seen) == "two"
    assert second.fencing_token > lead.fencing_token
    await seen.aclose()


async def campaign(election: Election) -> HeldLock:
    return await election.campaign()


async def test_observers_see_that_a_leader_is_gone_without_a_word(async_client: AsyncClient) -> None:
    election = async_client.election("lead-gone", candidate="one", ttl_s=1)
    lead = await election.campaign()
    seen = election.observe()
    assert await anext(seen) == "one"

    lead.detach()

    async with asyncio.timeout(WAIT_S):
        assert await anext(seen) is None
    await seen.aclose()


async def test_a_leader_that_is_freed_by_force_knows_it(async_client: AsyncClient) -> None:
    async with AsyncExitStack() as stack:
        lead = await async_client.election("lead-forced", ttl_s=1).campaign()
        stack.callback(lead.detach)

        await free(async_client, "lead-forced")

        async with asyncio.timeout(WAIT_S):
            await lead.lost.wait()


def test_the_blocking_twin_leads_and_observes(client: Client) -> None:
    election = client.election("sync-lead", candidate="one")

    with election.campaign():
        assert election.leader() == "one"
        seen = election.observe()
        assert next(seen) == "one"
        seen.close()

    assert election.leader() is None
