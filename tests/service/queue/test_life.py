"""The life of a message: enqueued, delivered, acked, given back, out of time, dead."""

import pytest

from holdfast.queue.layer.errors import (
    MessageLeaseExpired,
    MessageLeaseMismatch,
    MessageNotFound,
    MetadataChanged,
    NoMessages,
    QueueBusy,
)
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.types import Delivery, EnqueueOrder, ExtendOrder, NackIntent
from holdfast.storage.port import Store
from tests.service.queue.words import ORDERS, Queue, claim


async def test_a_message_is_delivered_once_and_is_gone_after_its_ack(queue: Queue) -> None:
    message = await queue.enqueue(b"hello", attributes=b'{"n":1}', content_type="text/plain")

    delivery = await queue.dequeue(visibility_s=20)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    await queue.ack(delivery)

    assert message.attempts == 0
    assert delivery.message.message_id == message.message_id
    assert delivery.message.attempts == 1
    assert delivery.message.correlation_id == "corr"
    assert delivery.message.attributes == b'{"n":1}'
    assert delivery.message.content_type == "text/plain"
    assert delivery.body.inline == b"hello"
    assert delivery.fencing_token == 1
    assert delivery.lease_expires_at_s == delivery.message.not_visible_until_s
    assert delivery.lease_expires_at_s == int(queue.clock.wall_s()) + 20
    queue.clock.advance(3600)
    with pytest.raises(NoMessages):
        await queue.dequeue()


async def test_a_second_ack_finds_nothing(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue()
    await queue.ack(delivery)

    with pytest.raises(MessageNotFound):
        await queue.ack(delivery)


async def test_messages_leave_by_priority_then_time_then_id(queue: Queue) -> None:
    ids = [(await queue.enqueue(priority=priority)).message_id for priority in (0, 5, 0, -3, 5)]

    left = [(await queue.dequeue()).message.message_id for _ in ids]

    assert left == [ids[3], ids[0], ids[2], ids[1], ids[4]]


async def test_a_delayed_message_is_not_delivered_early(queue: Queue) -> None:
    await queue.enqueue(delay_s=10)
    queue.clock.advance(9.9)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    queue.clock.advance(0.2)

    assert (await queue.dequeue()).message.attempts == 1


async def test_when_the_visibility_is_over_the_message_is_delivered_again(queue: Queue) -> None:
    await queue.enqueue()
    first = await queue.dequeue(visibility_s=5)
    queue.clock.advance(5)

    second = await queue.dequeue()

    assert second.message.attempts == 2
    assert second.message.failure_attempts == 1
    assert second.fencing_token == 2
    with pytest.raises(MessageLeaseMismatch):
        await queue.ack(first)
    await queue.ack(second)


async def test_an_ack_after_the_time_is_refused_and_the_message_stays(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(visibility_s=5)
    queue.clock.advance(5)

    with pytest.raises(MessageLeaseExpired):
        await queue.ack(delivery)

    assert (await queue.dequeue()).message.attempts == 2


async def test_an_extended_delivery_can_be_acked_after_its_first_time(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(visibility_s=5)
    queue.clock.advance(4)
    extended = await queue.service.extend(ExtendOrder(claim(delivery), 40))
    queue.clock.advance(30)
    with pytest.raises(NoMessages):
        await queue.dequeue()

    await queue.ack(delivery)  # With the ETag from before the extend, as the command line sends it.

    assert extended.visibility_s == 40
    assert extended.meta_etag != delivery.meta_etag
    with pytest.raises(NoMessages):
        await queue.dequeue()


async def test_extend_and_nack_want_the_current_etag(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue()
    await queue.service.extend(ExtendOrder(claim(delivery), 40))

    with pytest.raises(MetadataChanged):
        await queue.service.extend(ExtendOrder(claim(delivery), 40))
    with pytest.raises(MetadataChanged):
        await queue.nack(delivery)


async def test_a_nacked_message_comes_back_after_its_delay_behind_those_that_came_before(
    queue: Queue,
) -> None:
    nacked = await queue.enqueue()
    delivery = await queue.dequeue()
    await queue.nack(delivery, delay_s=2, last_error=b'{"detail":"no"}')
    other = await queue.enqueue()
    queue.clock.advance(2)

    left = [(await queue.dequeue()).message for _ in range(2)]

    assert [message.message_id for message in left] == [other.message_id, nacked.message_id]
    assert left[1].failure_attempts == 1
    assert left[1].last_error == b""


async def test_ack_nack_and_extend_after_a_nack_are_refused(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue()
    await queue.nack(delivery)

    with pytest.raises(MessageLeaseMismatch):
        await queue.ack(delivery)
    with pytest.raises(MessageLeaseMismatch):
        await queue.nack(delivery)
    with pytest.raises(MessageLeaseMismatch):
        await queue.service.extend(ExtendOrder(claim(delivery), 5))


@pytest.mark.parametrize("way", ["nack", "time"])
async def test_after_max_attempts_the_message_is_a_dead_letter(queue: Queue, way: str) -> None:
    message = await queue.enqueue(b"poison", max_attempts=2, attributes=b'{"a":1}')
    deliveries: list[Delivery] = []
    for _ in range(2):
        deliveries.append(delivery := await queue.dequeue(visibility_s=1))
        if way == "nack":
            await queue.nack(delivery)
        else:
            queue.clock.advance(1)
    with pytest.raises(NoMessages):
        await queue.dequeue()

    [letter] = await queue.service.dead_letters(ORDERS, 10)

    assert letter.message.message_id == message.message_id
    assert letter.message.failure_attempts == 2
    assert letter.message.attributes == b'{"a":1}'
    assert letter.body.inline == b"poison"
    assert letter.message.last_error.startswith(b'{"reason":"max_attempts_exceeded"')
    with pytest.raises(MessageNotFound):
        await queue.ack(deliveries[-1])


async def test_the_last_attempt_can_still_be_acked(queue: Queue) -> None:
    await queue.enqueue(max_attempts=1)
    delivery = await queue.dequeue()

    await queue.ack(delivery)

    assert await queue.service.dead_letters(ORDERS, 10) == []


async def test_deferring_counts_no_failure(queue: Queue) -> None:
    await queue.enqueue(max_attempts=1)
    for _ in range(5):
        await queue.nack(await queue.dequeue(), intent=NackIntent.DEFER)

    delivery = await queue.dequeue()

    assert (delivery.message.attempts, delivery.message.failure_attempts) == (6, 0)


async def test_a_message_past_its_deadline_is_never_delivered(queue: Queue) -> None:
    await queue.enqueue(ttl_s=5)
    queue.clock.advance(5)

    with pytest.raises(NoMessages):
        await queue.dequeue()

    assert await queue.service.dead_letters(ORDERS, 10) == []


async def test_a_message_leased_before_its_deadline_can_be_acked_but_not_requeued(queue: Queue) -> None:
    await queue.enqueue(ttl_s=5)
    await queue.enqueue(ttl_s=5)
    acked, nacked = await queue.dequeue(), await queue.dequeue()
    queue.clock.advance(6)

    await queue.ack(acked)
    await queue.nack(nacked)

    with pytest.raises(NoMessages):
        await queue.dequeue()
    with pytest.raises(MessageNotFound):
        await queue.ack(nacked)


async def test_a_delivery_that_was_never_sent_goes_back_to_its_place(queue: Queue) -> None:
    first = await queue.enqueue()
    await queue.enqueue()
    delivery = await queue.dequeue()

    await queue.service.give_back([delivery])
    again = await queue.dequeue()

    assert again.message.message_id == first.message_id
    assert again.message.attempts == 1
    assert again.message.failure_attempts == 0
    assert again.fencing_token == 2
    with pytest.raises(MessageLeaseMismatch):
        await queue.ack(delivery)


async def test_many_are_enqueued_delivered_and_acked_in_one_commit_each(queue: Queue) -> None:
    content = await queue.service.arrivals.content_of(ORDERS, b"x")
    before = queue.store.revision

    messages = await queue.service.arrivals.enqueue(
        [(EnqueueOrder(ORDERS, f"c{n}"), content) for n in range(10)]
    )
    deliveries = await queue.dequeue_many(count_max=100)
    acked = await queue.service.ack_many([claim(delivery) for delivery in deliveries])

    assert [delivery.message.message_id for delivery in deliveries] == [m.message_id for m in messages]
    assert [getattr(one, "correlation_id", None) for one in acked] == [f"c{n}" for n in range(10)]
    assert queue.store.revision == before + 3


async def test_of_many_acks_the_refused_one_does_not_stop_the_others(queue: Queue) -> None:
    for _ in range(3):
        await queue.enqueue()
    deliveries = await queue.dequeue_many(count_max=3)
    await queue.ack(deliveries[1])

    outcomes = await queue.service.ack_many([claim(delivery) for delivery in deliveries])

    assert [type(outcome).__name__ for outcome in outcomes] == ["Acked", "MessageNotFound", "Acked"]


async def test_a_full_queue_of_deliveries_says_so(store: Store) -> None:
    queue = Queue(store, QueueLimits(out_max=2))
    async with queue.service.running():
        for _ in range(3):
            await queue.enqueue()
        first = await queue.dequeue()
        await queue.dequeue()
        with pytest.raises(QueueBusy):
            await queue.dequeue()
        await queue.ack(first)

        await queue.dequeue()


async def test_redriven_letters_are_delivered_again_and_purged_ones_are_gone(queue: Queue) -> None:
    for _ in range(3):
        await queue.enqueue(max_attempts=1)
    for _ in range(3):
        await queue.nack(await queue.dequeue())
    letters = await queue.service.dead_letters(ORDERS, 10)

    redriven = await queue.service.redrive(ORDERS, [letters[1].message.message_id, "unknown"], 10)
    purged = await queue.service.purge(ORDERS, None, 1)

    assert (redriven, purged) == (1, 1)
    assert [x.message.message_id for x in await queue.service.dead_letters(ORDERS, 10)] == [
        letters[2].message.message_id
    ]
    delivery = await queue.dequeue()
    assert delivery.message.message_id == letters[1].message.message_id
    assert delivery.message.failure_attempts == 0
    assert delivery.fencing_token == 2


async def test_a_message_that_is_named_twice_among_many_acks_is_acked_once(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue()

    outcomes = await queue.service.ack_many([claim(delivery), claim(delivery)])

    assert [type(outcome).__name__ for outcome in outcomes] == ["Acked", "MessageNotFound"]
