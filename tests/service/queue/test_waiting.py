"""Waiting consumers: first come, first served, woken by what makes a message ready, and gone without a trace."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.common import failpoint
from holdfast.queue.layer.errors import NoMessages, QueueBusy
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.types import Availability, Delivery, DequeueOrder, Policy
from holdfast.storage.port import Store
from tests.service.queue.words import ORDERS, Queue


@pytest.fixture
async def live(store: Store) -> AsyncIterator[Queue]:
    """With the machine's clock, so that its timers come by themselves."""
    queue = Queue(store, has_own_clock=False)
    async with queue.service.running():
        yield queue


async def start(queue: Queue, **order: object) -> "asyncio.Task[Delivery]":
    """A consumer that stands in the line when this returns."""
    before = (await queue.service.stats(ORDERS)).waiting_consumers
    task = asyncio.create_task(queue.dequeue(wait_s=None, **order))
    await asyncio.sleep(0)  # A store of this process answers at once, so one step is all it takes.
    assert (await queue.service.stats(ORDERS)).waiting_consumers == before + 1
    return task


async def test_waiting_consumers_are_served_in_the_order_they_came(queue: Queue) -> None:
    consumers = [await start(queue, owner=f"worker-{number}") for number in range(5)]
    messages = [await queue.enqueue() for _ in consumers]

    deliveries = await asyncio.gather(*consumers)

    assert [delivery.message.message_id for delivery in deliveries] == [m.message_id for m in messages]


async def test_a_late_caller_without_patience_does_not_pass_those_who_wait(queue: Queue) -> None:
    waiting = await start(queue)
    enqueued = asyncio.create_task(queue.enqueue())

    with pytest.raises(NoMessages):
        await queue.dequeue()

    assert (await waiting).message.message_id == (await enqueued).message_id


async def test_a_nack_wakes_a_waiting_consumer(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue()
    waiting = await start(queue)

    await queue.nack(delivery)

    assert (await waiting).message.attempts == 2


async def test_the_end_of_a_delay_wakes_a_waiting_consumer(live: Queue) -> None:
    message = await live.enqueue(delay_s=0.05)

    delivery = await live.dequeue(wait_s=None)

    assert delivery.message.message_id == message.message_id


async def test_the_end_of_a_visibility_wakes_a_waiting_consumer(live: Queue) -> None:
    await live.enqueue()
    await live.dequeue(visibility_s=1)

    delivery = await live.dequeue(wait_s=None)

    assert delivery.message.attempts == 2


async def test_the_end_of_a_nack_delay_wakes_a_waiting_consumer(live: Queue) -> None:
    await live.enqueue()
    await live.nack(await live.dequeue(), delay_s=0.05)

    assert (await live.dequeue(wait_s=None)).message.attempts == 2


async def test_patience_ends(live: Queue) -> None:
    with pytest.raises(NoMessages) as refused:
        await live.dequeue(wait_s=0.01)

    assert refused.value.retry_after_s == 0.01
    assert (await live.service.stats(ORDERS)).waiting_consumers == 0


async def test_a_consumer_that_hangs_up_leaves_no_waiter_and_takes_no_message(queue: Queue) -> None:
    gone = await start(queue)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    message = await queue.enqueue()

    delivery = await queue.dequeue()

    assert delivery.message.message_id == message.message_id
    assert delivery.message.attempts == 1


@pytest.mark.parametrize("steps", range(6))
async def test_a_consumer_that_hangs_up_at_any_step_of_its_claim_gives_the_message_back(
    queue: Queue, steps: int
) -> None:
    waiting = await start(queue)
    message = await queue.enqueue()
    for _ in range(steps):
        await asyncio.sleep(0)
    if not waiting.done():
        waiting.cancel()
    [outcome] = await asyncio.gather(waiting, return_exceptions=True)
    if isinstance(outcome, Delivery):
        await queue.service.give_back([outcome])

    delivery = await queue.dequeue(wait_s=None)

    assert delivery.message.message_id == message.message_id
    assert delivery.message.attempts == 1


@pytest.mark.parametrize("steps", range(4))
async def test_a_producer_that_hangs_up_at_any_step_hides_no_message(queue: Queue, steps: int) -> None:
    waiting = await start(queue)
    producer = asyncio.create_task(queue.enqueue(b"first"))
    for _ in range(steps):
        await asyncio.sleep(0)
    producer.cancel()
    await asyncio.gather(producer, return_exceptions=True)
    stored = bool(await queue.service.peek(ORDERS, 10)) or waiting.done()
    if not stored:
        await queue.enqueue(b"second")

    assert (await waiting).body.inline in (b"first", b"second")


async def test_more_consumers_than_allowed_are_refused(store: Store) -> None:
    queue = Queue(store, QueueLimits(consumers_max=2))
    async with queue.service.running():
        consumers = [await start(queue) for _ in range(2)]
        with pytest.raises(QueueBusy):
            await queue.dequeue(wait_s=None)
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)


# -- streams


async def test_a_stream_holds_back_while_its_deliveries_are_unresolved(queue: Queue) -> None:
    for _ in range(5):
        await queue.enqueue()
    stream = queue.service.subscribe(DequeueOrder(ORDERS, "worker", wait_s=None, count_max=2))
    first, second = await stream.next()
    further = asyncio.create_task(stream.next())
    await asyncio.sleep(0)
    assert not further.done()

    await queue.ack(first)
    [third] = await further
    queue.clock.advance(0.01)
    await queue.nack(second)
    [fourth] = await stream.next()

    assert len({d.message.message_id for d in (first, second, third, fourth)}) == 4
    await stream.aclose()


async def test_a_stream_goes_on_when_a_delivery_expires(live: Queue) -> None:
    await live.enqueue()
    await live.enqueue()
    stream = live.service.subscribe(DequeueOrder(ORDERS, "worker", wait_s=None, count_max=1, visibility_s=1))
    [first] = await stream.next()

    [second] = await stream.next()

    assert second.message.message_id != first.message.message_id
    await stream.aclose()


async def test_a_stream_waits_for_its_first_message_only_so_long(live: Queue) -> None:
    stream = live.service.subscribe(DequeueOrder(ORDERS, "worker", wait_s=0.01, count_max=4))
    with pytest.raises(NoMessages):
        await stream.next()
    await live.enqueue()
    assert len(await stream.next()) == 1
    later = asyncio.create_task(stream.next())
    await asyncio.sleep(0.05)

    await live.enqueue()

    assert len(await later) == 1
    assert (await live.service.stats(ORDERS)).total_consumers == 1
    await stream.aclose()
    assert (await live.service.stats(ORDERS)).total_consumers == 0


# -- looking, pausing, pacing


async def test_a_watch_tells_the_present_state_and_every_change_of_it(queue: Queue) -> None:
    changes = queue.service.watch(ORDERS)
    seen: list[Availability] = [await anext(changes)]
    first = await queue.enqueue()
    seen.append(await anext(changes))
    await queue.enqueue()
    await queue.ack(await queue.dequeue())
    seen.append(await anext(changes))
    await queue.ack(await queue.dequeue())
    seen.append(await anext(changes))

    assert [change.is_available for change in seen] == [False, True, True, False]
    assert seen[1].head_message_id == first.message_id


async def test_peek_shows_what_would_leave_next_and_takes_nothing(queue: Queue) -> None:
    late = await queue.enqueue(b"late", delay_s=100)
    expired = await queue.enqueue(b"expired")
    await queue.dequeue(visibility_s=1)
    queue.clock.advance(1)
    urgent = await queue.enqueue(b"urgent", priority=-1)
    ready = await queue.enqueue(b"ready")

    peeked = await queue.service.peek(ORDERS, 10)

    assert [message.message_id for message, _ in peeked] == [
        message.message_id for message in (urgent, expired, ready)
    ]
    assert [body.inline for _, body in peeked] == [b"urgent", b"expired", b"ready"]
    assert late.message_id not in {message.message_id for message, _ in peeked}
    assert (await queue.service.stats(ORDERS)).in_flight == 0


async def test_a_paused_queue_delivers_nothing_until_it_is_resumed(queue: Queue) -> None:
    await queue.service.pause(ORDERS)
    await queue.enqueue()
    with pytest.raises(NoMessages):
        await queue.dequeue()
    waiting = await start(queue)

    policy = await queue.service.resume(ORDERS)

    assert not policy.is_paused
    assert (await waiting).message.attempts == 1


async def test_a_policy_gives_what_the_producer_did_not_say(queue: Queue) -> None:
    await queue.service.set_policy(ORDERS, Policy(visibility_s=7, max_attempts=2, ttl_s=60))

    message = await queue.enqueue()
    own = await queue.enqueue(max_attempts=9, visibility_s=8)
    delivery = await queue.dequeue()

    assert (message.visibility_s, message.max_attempts) == (7, 2)
    assert (own.visibility_s, own.max_attempts) == (8, 9)
    assert message.expires_at_s == int(queue.clock.wall_s()) + 60
    assert delivery.message.visibility_s == 7


async def test_a_queue_with_a_pace_delivers_no_faster(queue: Queue) -> None:
    await queue.service.set_policy(ORDERS, Policy(deliveries_per_s=2))
    for _ in range(5):
        await queue.enqueue()
    burst = await queue.dequeue_many(count_max=5)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    queue.clock.advance(0.5)

    later = await queue.dequeue_many(count_max=5)

    assert (len(burst), len(later)) == (2, 1)


async def test_a_pace_wakes_its_waiting_consumers_in_time(live: Queue) -> None:
    await live.service.set_policy(ORDERS, Policy(deliveries_per_s=20))
    for _ in range(25):
        await live.enqueue()

    deliveries = [await live.dequeue(wait_s=None) for _ in range(25)]

    assert len({delivery.message.message_id for delivery in deliveries}) == 25


async def test_an_ack_whose_caller_hangs_up_frees_the_stream_all_the_same(queue: Queue) -> None:
    await queue.enqueue()
    await queue.enqueue()
    stream = queue.service.subscribe(DequeueOrder(ORDERS, "worker", wait_s=None, count_max=1))
    [first] = await stream.next()
    acking = asyncio.create_task(queue.ack(first))
    await asyncio.sleep(0)
    acking.cancel()
    await asyncio.gather(acking, return_exceptions=True)

    [second] = await asyncio.wait_for(stream.next(), 30)

    assert second.message.message_id != first.message.message_id
    await stream.aclose()


async def test_a_message_whose_claim_failed_goes_to_the_next_one(queue: Queue) -> None:
    waiting = await start(queue)
    with failpoint.armed("queue.claim.commit:error*1"):
        await queue.enqueue()
        with pytest.raises(failpoint.FailpointError):
            await waiting

    assert (await queue.dequeue()).message.attempts == 1
