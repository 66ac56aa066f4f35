"""Two processes over one PostgreSQL store: each message to one of them, and each knows what the other did."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from holdfast.queue.layer.errors import MessageNotFound, NoMessages
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.records import deadline_bounds
from holdfast.queue.layer.message.types import Delivery
from holdfast.storage.options import StoreOptions
from holdfast.storage.postgres.store import open_postgres
from tests.infra.held_commits import held_commits
from tests.service.queue.words import ORDERS, Queue

MESSAGES = 60


@pytest.fixture
async def pair(postgres_url: str) -> AsyncIterator[tuple[Queue, Queue]]:
    async with AsyncExitStack() as stack:
        queues: list[Queue] = []
        for _ in range(2):
            store = await stack.enter_async_context(open_postgres(postgres_url, StoreOptions()))
            queues.append(Queue(store, QueueLimits(page_entries=4), has_own_clock=False))
            await stack.enter_async_context(queues[-1].service.running())
        yield queues[0], queues[1]


async def test_a_consumer_of_one_process_is_woken_by_a_message_that_came_to_the_other(
    pair: tuple[Queue, Queue],
) -> None:
    here, there = pair
    waiting = asyncio.create_task(there.dequeue(wait_s=None))
    with pytest.raises(NoMessages):
        await there.dequeue()

    message = await here.enqueue()

    delivery = await asyncio.wait_for(waiting, 30)
    assert delivery.message.message_id == message.message_id
    await here.ack(delivery)  # Any process takes the ack.
    with pytest.raises(MessageNotFound):
        await there.ack(delivery)


async def test_a_visibility_that_one_process_gave_ends_for_the_other(pair: tuple[Queue, Queue]) -> None:
    here, there = pair
    with pytest.raises(NoMessages):
        await there.dequeue()
    await here.enqueue()
    await here.dequeue(visibility_s=1)

    delivery = await asyncio.wait_for(there.dequeue(wait_s=None), 30)

    assert delivery.message.attempts == 2


async def test_every_message_goes_to_one_consumer_of_one_process(pair: tuple[Queue, Queue]) -> None:
    for _ in range(MESSAGES):
        await pair[0].enqueue()
    taken: list[Delivery] = []

    async def consume(queue: Queue) -> None:
        while len(taken) < MESSAGES:
            try:
                delivery = await queue.dequeue(wait_s=0.5)
            except NoMessages:
                continue
            taken.append(delivery)
            await queue.ack(delivery)

    await asyncio.gather(*[consume(queue) for queue in pair for _ in range(2)])

    assert len({delivery.message.message_id for delivery in taken}) == MESSAGES == len(taken)
    assert all(delivery.message.attempts == 1 for delivery in taken)
    assert await pair[1].service.peek(ORDERS, 10) == []


async def test_a_pause_holds_in_the_other_process_too(pair: tuple[Queue, Queue]) -> None:
    here, there = pair
    with pytest.raises(NoMessages):
        await there.dequeue()
    waiting = asyncio.create_task(there.dequeue(wait_s=None))
    await here.service.pause(ORDERS)
    async with asyncio.timeout(30):
        while not (await there.service.stats(ORDERS)).is_paused:
            await here.enqueue(delay_s=100)

    await here.enqueue()
    await here.service.resume(ORDERS)

    assert (await asyncio.wait_for(waiting, 30)).message.attempts == 1


@pytest.mark.parametrize("wait_ms", range(0, 8))
async def test_a_consumer_that_hangs_up_at_any_moment_of_its_claim_keeps_nothing(
    pair: tuple[Queue, Queue], wait_ms: int
) -> None:
    here, _ = pair
    message = await here.enqueue()
    gone = asyncio.create_task(here.dequeue(wait_s=None, visibility_s=600))
    await asyncio.sleep(wait_ms / 1000)
    gone.cancel()
    [outcome] = await asyncio.gather(gone, return_exceptions=True)
    if isinstance(outcome, Delivery):
        await here.service.give_back([outcome])

    delivery = await asyncio.wait_for(here.dequeue(wait_s=None), 30)

    assert delivery.message.message_id == message.message_id
    assert delivery.message.attempts == 1


@pytest.mark.parametrize("with_state", [False, True], ids=["plain", "with-state"])
async def test_a_claim_whose_commit_ends_after_its_consumer_went_is_given_back(
    pair: tuple[Queue, Queue], postgres_url: str, with_state: bool
) -> None:
    here, _ = pair
    message = await here.enqueue()
    async with held_commits(postgres_url) as begun:
        gone = asyncio.create_task(here.dequeue(wait_s=None, visibility_s=600, with_state=with_state))
        await begun()
        gone.cancel()
        await asyncio.wait([gone])
        for _ in range(20):  # A look that does not wait for the commit is over by then.
            await here.store.range(b"", None, limit=1)

    delivery = await asyncio.wait_for(here.dequeue(wait_s=10, with_state=with_state), 30)

    assert delivery.message.message_id == message.message_id
    assert delivery.message.attempts == 1


@pytest.mark.parametrize("has_sent", [True, False], ids=["sent", "unsent"])
async def test_a_batch_whose_consumer_went_is_given_back_whole(
    pair: tuple[Queue, Queue], postgres_url: str, monkeypatch: pytest.MonkeyPatch, has_sent: bool
) -> None:
    here, _ = pair
    monkeypatch.setattr("holdfast.queue.layer.delivery.endings.GIVEN_BACK_PER_COMMIT", 4)
    sent = {(await here.enqueue()).message_id for _ in range(10)}
    async with held_commits(postgres_url) as begun:
        blocker = asyncio.create_task(here.enqueue(delay_s=600))
        if not has_sent:
            await begun()  # Then the claims wait behind it, and are dropped.
        gone = asyncio.create_task(here.dequeue_many(wait_s=None, visibility_s=600, count_max=10))
        await begun()
        await asyncio.sleep(0.05)
        gone.cancel()
        await asyncio.wait([gone])
    await blocker

    taken = [await asyncio.wait_for(here.dequeue(wait_s=10), 30) for _ in range(10)]

    assert {delivery.message.message_id for delivery in taken} == sent
    assert {delivery.message.attempts for delivery in taken} == {1}


async def test_a_message_whose_process_is_gone_still_ends_at_its_deadline(postgres_url: str) -> None:
    """It is told of it when it comes in, not after a minute."""
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(open_postgres(postgres_url, StoreOptions())) for _ in range(2)
        ]
        here, there = [Queue(store, has_own_clock=False) for store in stores]
        await stack.enter_async_context(there.service.running())
        async with here.service.running():
            await here.enqueue(ttl_s=2)

        start, end = deadline_bounds()
        async with asyncio.timeout(20), stores[1].watch(start, end) as changes:
            while await stores[1].range(start, end, limit=1):
                await anext(changes)
