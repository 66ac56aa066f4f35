"""A delivery that minted its transaction id belongs to the transaction as soon as another call names it, not before."""

from collections.abc import Awaitable, Callable

import pytest

from holdfast.leases.layer.grant import Claim, Grant
from holdfast.leases.layer.records import LEASES
from holdfast.queue.layer.errors import MessageLeaseMismatch, MessageNotFound, NoMessages
from holdfast.queue.layer.message.records import member_of_state
from holdfast.queue.layer.message.types import ExtendOrder, StateClaim
from holdfast.state.layer.records import DOCUMENTS
from holdfast.txn.layer.port import Decision
from tests.service.queue.test_transactions import (
    KEY,
    acquire,
    document,
    nothing_is_held,
    release,
    stage,
    with_state,
    write_state,
)
from tests.service.queue.words import ORDERS, Queue, claim

HOUR_S = 3600


async def joined_key(queue: Queue, txn_id: str, ttl_s: int = 30) -> Grant:
    """A key with something staged, acquired under the id of a delivery."""
    grant = await acquire(queue, txn_id, ttl_s)
    await stage(queue, grant)
    return grant


async def is_empty(queue: Queue) -> bool:
    """Whether no message is left, held or not."""
    queue.clock.advance(HOUR_S)
    try:
        await queue.dequeue()
    except NoMessages:
        return True
    return False


# -- keys that join


async def test_the_release_of_a_key_that_joined_acks_the_message(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue()
    grant = await joined_key(queue, delivery.txn_id)
    before = queue.store.revision

    await release(queue, grant, Decision.COMMIT)

    assert queue.store.revision == before + 1
    assert await document(queue) == b'{"n":1}'
    assert await nothing_is_held(queue)
    assert await is_empty(queue)


async def test_the_rollback_of_a_key_that_joined_returns_the_message_without_a_failure(queue: Queue) -> None:
    await queue.enqueue(max_attempts=1)
    delivery = await queue.dequeue()
    grant = await joined_key(queue, delivery.txn_id)

    await release(queue, grant, Decision.ROLLBACK)

    again = await queue.dequeue()
    assert (again.message.attempts, again.message.failure_attempts) == (2, 0)
    assert await document(queue) is None
    with pytest.raises(MessageLeaseMismatch):
        await queue.ack(delivery)


async def test_the_ack_commits_the_key_that_joined_and_may_be_repeated(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue()
    await joined_key(queue, delivery.txn_id)

    await queue.ack(delivery)
    await queue.ack(delivery)

    assert await document(queue) == b'{"n":1}'
    assert await nothing_is_held(queue)


async def test_the_acks_of_a_batch_commit_the_keys_that_joined_its_messages(queue: Queue) -> None:
    await queue.enqueue()
    await queue.enqueue()
    first, second = await queue.dequeue_many(count_max=2)
    await joined_key(queue, second.txn_id)

    acked = await queue.service.ack_many([claim(first), claim(second)])

    assert len(acked) == 2
    assert await document(queue) == b'{"n":1}'
    assert await nothing_is_held(queue)
    assert await is_empty(queue)


async def test_the_nack_rolls_back_the_key_that_joined_and_keeps_its_delay(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue()
    await joined_key(queue, delivery.txn_id)

    await queue.nack(delivery, delay_s=10)

    assert await document(queue) is None
    assert await nothing_is_held(queue)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    queue.clock.advance(10)
    assert (await queue.dequeue()).message.attempts == 2


async def test_the_message_lives_as_long_as_the_key_that_joined(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(visibility_s=5)
    grant = await joined_key(queue, delivery.txn_id, ttl_s=30)
    queue.clock.advance(20)
    held = Claim(grant.lease_id, grant.fencing_token, grant.txn_id)
    await queue.leases.keepalive(KEY, held, 30)
    queue.clock.advance(20)

    await queue.ack(delivery)

    assert await document(queue) == b'{"n":1}'


async def test_the_key_that_joined_lives_as_long_as_the_message(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(visibility_s=60)
    grant = await joined_key(queue, delivery.txn_id, ttl_s=5)
    queue.clock.advance(30)
    await queue.service.extend(ExtendOrder(claim(delivery), 60))
    queue.clock.advance(50)

    await release(queue, grant, Decision.COMMIT)

    assert await document(queue) == b'{"n":1}'
    assert await is_empty(queue)


async def test_a_joined_delivery_whose_time_is_over_rolls_back_the_key(queue: Queue) -> None:
    await queue.enqueue(max_attempts=1)
    delivery = await queue.dequeue(visibility_s=5)
    await joined_key(queue, delivery.txn_id, ttl_s=5)
    queue.clock.advance(5)

    letters = await queue.service.dead_letters(ORDERS, 10)

    assert [letter.message.failure_attempts for letter in letters] == [1]
    assert await document(queue) is None
    assert await nothing_is_held(queue)


# -- whom a name does not join


async def test_a_delivery_that_nobody_joined_is_acked_alone(queue: Queue) -> None:
    await queue.enqueue()
    await queue.enqueue()
    delivery = await queue.dequeue()
    other = await queue.dequeue()
    grant = await joined_key(queue, other.txn_id)

    await queue.ack(delivery)
    with pytest.raises(MessageNotFound):
        await queue.ack(delivery)

    assert await document(queue) is None
    await release(queue, grant, Decision.COMMIT)
    assert await document(queue) == b'{"n":1}'


async def test_a_delivery_that_has_ended_takes_no_part_in_what_names_it_later(queue: Queue) -> None:
    await queue.enqueue()
    first = await queue.dequeue()
    await queue.nack(first)
    second = await queue.dequeue()
    grant = await joined_key(queue, first.txn_id)

    await release(queue, grant, Decision.ROLLBACK)

    await queue.ack(second)
    assert await nothing_is_held(queue)


async def test_a_delivery_whose_time_is_over_takes_no_part_in_what_names_it_later(queue: Queue) -> None:
    await queue.enqueue()
    first = await queue.dequeue(visibility_s=5)
    queue.clock.advance(5)
    grant = await joined_key(queue, first.txn_id)

    await release(queue, grant, Decision.COMMIT)

    assert await document(queue) == b'{"n":1}'
    second = await queue.dequeue()
    assert (second.message.attempts, second.message.failure_attempts) == (2, 1)
    await queue.ack(second)
    assert await nothing_is_held(queue)


async def test_a_message_may_be_delivered_again_under_the_id_of_a_delivery_whose_time_is_over(
    queue: Queue,
) -> None:
    await queue.enqueue()
    first = await queue.dequeue(visibility_s=5)
    queue.clock.advance(5)

    second = await queue.dequeue(txn_id=first.txn_id)

    assert (second.message.attempts, second.txn_id) == (2, first.txn_id)
    grant = await joined_key(queue, first.txn_id)
    await release(queue, grant, Decision.COMMIT)
    assert await nothing_is_held(queue)
    assert await is_empty(queue)


# -- messages that join


@pytest.mark.parametrize("acked", [0, 1])
async def test_the_ack_of_either_of_two_deliveries_acks_both(queue: Queue, acked: int) -> None:
    await queue.enqueue()
    await queue.enqueue()
    first = await queue.dequeue()
    second = await queue.dequeue(txn_id=first.txn_id)

    await queue.ack((first, second)[acked])

    assert await nothing_is_held(queue)
    assert await is_empty(queue)


@pytest.mark.parametrize("nacked", [0, 1])
async def test_the_nack_of_either_of_two_deliveries_returns_both(queue: Queue, nacked: int) -> None:
    await queue.enqueue()
    await queue.enqueue()
    first = await queue.dequeue()
    second = await queue.dequeue(txn_id=first.txn_id)

    await queue.nack((first, second)[nacked])

    assert await nothing_is_held(queue)
    again = await queue.dequeue_many(count_max=3)
    assert [delivery.message.attempts for delivery in again] == [2, 2]


# -- state


async def test_a_stateful_delivery_that_a_key_joined_follows_its_release(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(with_state=True)
    await write_state(queue, delivery, b'{"step":1}')
    grant = await joined_key(queue, delivery.txn_id)

    await release(queue, grant, Decision.COMMIT)

    member = member_of_state(ORDERS, delivery.message.message_id)
    assert await document(queue) == b'{"n":1}'
    assert await DOCUMENTS.fetch(queue.store, *member) is None
    assert await LEASES.fetch(queue.store, *member) is None
    assert await nothing_is_held(queue)
    assert await is_empty(queue)


async def test_the_ack_of_a_stateful_delivery_commits_the_key_that_joined(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(with_state=True)
    await write_state(queue, delivery, b'{"step":1}')
    await joined_key(queue, delivery.txn_id)

    await queue.service.ack(with_state(delivery).claim)

    assert await document(queue) == b'{"n":1}'
    assert await nothing_is_held(queue)


async def test_the_nack_of_a_stateful_delivery_rolls_back_the_key_that_joined(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(with_state=True)
    await write_state(queue, delivery, b'{"step":1}')
    await joined_key(queue, delivery.txn_id)

    await queue.service.nack(with_state(delivery))

    assert await document(queue) is None
    assert await nothing_is_held(queue)
    assert (await queue.dequeue(with_state=True)).message.attempts == 2


async def test_the_state_alone_does_not_join_its_message(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(with_state=True)
    assert delivery.state is not None
    await write_state(queue, delivery, b'{"step":1}')
    member = member_of_state(ORDERS, delivery.message.message_id)
    held = Claim(delivery.state.lease_id, delivery.state.fencing_token, delivery.state.txn_id)

    await queue.leases.release(member, held, Decision.COMMIT)

    assert await document(queue, member) == b'{"step":1}'
    await queue.ack(delivery)  # It is its consumer's still.
    assert await nothing_is_held(queue)


# -- however a delivery ends, nothing of it stays among what is held


async def acked(queue: Queue) -> None:
    await queue.ack(await queue.dequeue())


async def acked_in_a_batch(queue: Queue) -> None:
    await queue.service.ack_many([claim(await queue.dequeue())])


async def acked_by_a_restarted_process(queue: Queue) -> None:
    delivery = await queue.dequeue()
    other = Queue(queue.store, clock=queue.clock)
    await other.ack(delivery)


async def nacked(queue: Queue) -> None:
    await queue.nack(await queue.dequeue(), delay_s=10)


async def given_back(queue: Queue) -> None:
    await queue.service.give_back([await queue.dequeue()])


async def delivered_again(queue: Queue) -> None:
    await queue.dequeue(visibility_s=1)
    queue.clock.advance(1)
    await queue.ack(await queue.dequeue())


async def delivered_again_with_state(queue: Queue) -> None:
    await queue.dequeue(visibility_s=1)
    queue.clock.advance(1)
    delivery = await queue.dequeue(with_state=True)
    assert delivery.state is not None
    sent = StateClaim(delivery.state.lease_id)
    await queue.service.ack(claim(delivery)._replace(state=sent))


async def deferred(queue: Queue) -> None:
    """Its time is over, and a consumer that wants it with its state finds that held by another one."""
    delivery = await queue.dequeue(visibility_s=1)
    queue.clock.advance(1)
    member = member_of_state(ORDERS, delivery.message.message_id)
    grant = await acquire(queue, "", member=member)
    with pytest.raises(NoMessages):
        await queue.dequeue(with_state=True)
    held = Claim(grant.lease_id, grant.fencing_token, grant.txn_id)
    await queue.leases.release(member, held, Decision.COMMIT)


async def dead_by_nacks(queue: Queue) -> None:
    for _ in range(3):
        await queue.nack(await queue.dequeue())
    assert len(await queue.service.dead_letters(ORDERS, 10)) == 1


async def dead_by_time(queue: Queue) -> None:
    for _ in range(3):
        await queue.dequeue(visibility_s=1)
        queue.clock.advance(1)
    assert len(await queue.service.dead_letters(ORDERS, 10)) == 1


async def redriven_and_purged(queue: Queue) -> None:
    await dead_by_time(queue)
    await queue.service.redrive(ORDERS, None, 10)
    await dead_by_time(queue)
    await queue.service.purge(ORDERS, None, 10)


async def past_its_deadline(queue: Queue) -> None:
    await queue.dequeue(visibility_s=1)
    queue.clock.advance(HOUR_S)
    await queue.service.dead_letters(ORDERS, 10)  # Returns when what is over has been ended.


@pytest.mark.parametrize(
    "end",
    [
        acked,
        acked_in_a_batch,
        acked_by_a_restarted_process,
        nacked,
        given_back,
        delivered_again,
        delivered_again_with_state,
        deferred,
        dead_by_nacks,
        dead_by_time,
        redriven_and_purged,
        past_its_deadline,
    ],
)
async def test_a_delivery_that_ended_is_held_by_nobody(
    queue: Queue, end: Callable[[Queue], Awaitable[None]]
) -> None:
    await queue.enqueue(max_attempts=3, ttl_s=HOUR_S if end is past_its_deadline else 0)

    await end(queue)

    assert await nothing_is_held(queue)
