"""A message with a TTL goes when it is over, also if no client asks for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.common.ids import new_xid
from holdfast.queue.layer.message.records import MESSAGES, READY, TAKEN, deadline_bounds
from holdfast.storage.port import Store
from tests.service.queue.away import led_from_away
from tests.service.queue.words import ORDERS, Queue


@pytest.fixture
async def live(store: Store) -> AsyncIterator[Queue]:
    queue = Queue(store, has_own_clock=False)
    async with queue.service.running():
        yield queue


async def count(store: Store) -> int:
    """Every record that is left of messages."""
    tables = [MESSAGES.bounds(*ORDERS), READY.bounds(*ORDERS), TAKEN.bounds(*ORDERS), deadline_bounds()]
    return sum([len(await store.range(start, end, limit=100)) for start, end in tables])


async def wait_until_gone(store: Store) -> None:
    """The order of deadlines is what is tidied up last."""
    start, end = deadline_bounds()
    async with asyncio.timeout(30), store.watch(start, end) as changes:
        if not await store.range(start, end, limit=1):
            return
        async for _ in changes:
            if not await store.range(start, end, limit=1):
                return


async def test_a_message_nobody_asks_for_goes_at_its_deadline(live: Queue) -> None:
    await live.enqueue(ttl_s=1)
    await live.enqueue(ttl_s=1, delay_s=100)

    await wait_until_gone(live.store)

    assert await count(live.store) == 0


async def test_a_delivered_message_goes_when_its_lease_is_over_too(live: Queue) -> None:
    await live.enqueue(ttl_s=1)
    await live.dequeue(visibility_s=2)

    await wait_until_gone(live.store)

    assert await count(live.store) == 0


async def test_what_was_over_before_the_start_goes_at_the_start(store: Store) -> None:
    before = Queue(store)
    await before.enqueue(ttl_s=1)
    before.clock.advance(5)
    after = Queue(store, clock=before.clock)

    async with after.service.running():
        await wait_until_gone(store)

    assert await count(store) == 0


async def test_acked_nacked_and_buried_messages_leave_no_deadline_behind(queue: Queue) -> None:
    for _ in range(2):
        await queue.enqueue(ttl_s=100, max_attempts=1)
    await queue.ack(await queue.dequeue())
    await queue.nack(await queue.dequeue())

    assert await count(queue.store) == 0
    assert len(await queue.service.dead_letters(ORDERS, 10)) == 1


async def test_a_coordinator_that_is_away_holds_up_only_the_messages_it_has_to_decide_on(
    store: Store,
) -> None:
    before = Queue(store)
    await before.enqueue(ttl_s=1)
    await before.dequeue(visibility_s=2, txn_id=new_xid())
    await before.enqueue(ttl_s=3)
    before.clock.advance(5)
    after, coordinator = led_from_away(before)

    async with after.running():
        async with asyncio.timeout(30), store.watch(*MESSAGES.bounds(*ORDERS)) as changes:
            async for _ in changes:
                break
        left = await count(store)
        coordinator.is_away = False
        await wait_until_gone(store)

    assert left == 3  # The message, its delivery and its deadline.
    assert await count(store) == 0
