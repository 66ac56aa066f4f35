"""Messages that a transaction dequeued follow its decision, together with its keys; state follows its message."""

import asyncio

import pytest

from holdfast.common.ids import new_xid
from holdfast.leases.layer.errors import FencingMismatch, LeaseRequired
from holdfast.leases.layer.grant import AcquireParams, Claim, Grant
from holdfast.leases.layer.records import LEASES, held_range
from holdfast.queue.layer.errors import (
    InvalidTxn,
    MessageLeaseMismatch,
    MetadataChanged,
    NoMessages,
    StateNotFound,
)
from holdfast.queue.layer.message.records import member_of_message, member_of_state
from holdfast.queue.layer.message.types import Delivery, DequeueOrder, ExtendOrder, NackOrder, StateClaim
from holdfast.state.layer.document.staging import Expectation, View
from holdfast.state.layer.records import DOCUMENTS
from holdfast.storage.port import Store
from holdfast.txn.layer.port import Decision, Member
from tests.service.queue.away import led_from_away
from tests.service.queue.words import ORDERS, Queue, claim

KEY = Member("default", "account")


async def acquire(queue: Queue, txn_id: str, ttl_s: int = 30, member: Member = KEY) -> Grant:
    return await queue.leases.acquire(AcquireParams(member, "worker", ttl_s, 0.0, txn_id))


async def stage(queue: Queue, grant: Grant, text: bytes = b'{"n":1}', member: Member = KEY) -> None:
    content = await queue.state.content_of(member, text)
    held = Claim(grant.lease_id, grant.fencing_token, grant.txn_id)
    await queue.state.update(member, held, content, Expectation())


async def release(queue: Queue, grant: Grant, decision: Decision) -> None:
    await queue.leases.release(KEY, Claim(grant.lease_id, grant.fencing_token, grant.txn_id), decision)


async def document(queue: Queue, member: Member = KEY) -> bytes | None:
    view = await queue.state.get_public(member)
    return None if view.content is None else view.content.inline


async def nothing_is_held(queue: Queue) -> bool:
    start, end = held_range()
    return not await queue.store.range(start, end, limit=10)


async def test_releasing_a_key_of_the_transaction_acks_its_messages(queue: Queue) -> None:
    txn_id = new_xid()
    await queue.enqueue()
    grant = await acquire(queue, txn_id)
    await stage(queue, grant)
    delivery = await queue.dequeue(txn_id=txn_id)
    before = queue.store.revision

    await release(queue, grant, Decision.COMMIT)

    assert delivery.txn_id == txn_id
    assert queue.store.revision == before + 1
    assert await document(queue) == b'{"n":1}'
    queue.clock.advance(3600)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    assert await nothing_is_held(queue)


async def test_rolling_the_key_back_returns_the_message_at_once_without_a_failure(queue: Queue) -> None:
    txn_id = new_xid()
    await queue.enqueue(max_attempts=1)
    grant = await acquire(queue, txn_id)
    await stage(queue, grant)
    await queue.dequeue(txn_id=txn_id)

    await release(queue, grant, Decision.ROLLBACK)

    again = await queue.dequeue()
    assert (again.message.attempts, again.message.failure_attempts) == (2, 0)
    assert await document(queue) is None


async def test_an_ack_commits_the_whole_transaction(queue: Queue) -> None:
    txn_id = new_xid()
    await queue.enqueue()
    await queue.enqueue()
    grant = await acquire(queue, txn_id)
    await stage(queue, grant)
    first = await queue.dequeue(txn_id=txn_id)
    await queue.dequeue(txn_id=txn_id)
    waiter = asyncio.create_task(queue.leases.acquire(AcquireParams(KEY, "other", 30, None)))

    await queue.ack(first)

    assert await document(queue) == b'{"n":1}'
    queue.clock.advance(3600)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    await waiter  # The waiter of the key is told.


async def test_a_nack_rolls_the_whole_transaction_back_and_keeps_its_delay(queue: Queue) -> None:
    txn_id = new_xid()
    nacked = await queue.enqueue()
    other = await queue.enqueue()
    grant = await acquire(queue, txn_id)
    await stage(queue, grant)
    first = await queue.dequeue(txn_id=txn_id)
    await queue.dequeue(txn_id=txn_id)

    await queue.nack(first, delay_s=10)

    assert await document(queue) is None
    assert (await queue.dequeue()).message.message_id == other.message_id
    with pytest.raises(NoMessages):
        await queue.dequeue()
    queue.clock.advance(10)
    again = await queue.dequeue()
    assert again.message.message_id == nacked.message_id


async def test_the_key_that_minted_the_transaction_belongs_to_it_once_a_dequeue_names_it(
    queue: Queue,
) -> None:
    await queue.enqueue()
    grant = await acquire(queue, "")
    await stage(queue, grant)
    delivery = await queue.dequeue(txn_id=grant.txn_id)

    await queue.ack(delivery)

    assert await document(queue) == b'{"n":1}'


async def test_a_keepalive_of_a_key_keeps_the_messages_of_its_transaction(queue: Queue) -> None:
    txn_id = new_xid()
    await queue.enqueue()
    grant = await acquire(queue, txn_id, ttl_s=10)
    await stage(queue, grant)
    await queue.dequeue(txn_id=txn_id, visibility_s=10)
    queue.clock.advance(5)
    kept = Claim(grant.lease_id, grant.fencing_token, grant.txn_id)
    await queue.leases.keepalive(KEY, kept, 30)
    queue.clock.advance(20)  # Longer than the visibility; the keepalive kept the message as well.

    await release(queue, grant, Decision.COMMIT)

    assert await document(queue) == b'{"n":1}'
    with pytest.raises(NoMessages):
        await queue.dequeue()


async def test_a_decision_that_names_a_message_the_transaction_does_not_hold_is_refused(queue: Queue) -> None:
    message = await queue.enqueue()
    member = member_of_message(ORDERS, message.message_id)

    async def decide() -> None:
        await queue.store.transact(
            lambda tx: queue.service.apply(
                tx, new_xid(), Decision.COMMIT, [member, KEY], queue.steady.now_ms()
            )
        )

    with pytest.raises(MessageLeaseMismatch):
        await decide()
    await queue.ack(await queue.dequeue())
    await decide()  # The message is gone: there is nothing to do.


async def test_a_commit_after_the_time_of_the_message_is_refused_and_the_message_stays(queue: Queue) -> None:
    txn_id = new_xid()
    await queue.enqueue()
    delivery = await queue.dequeue(txn_id=txn_id, visibility_s=5)
    member = member_of_message(ORDERS, delivery.message.message_id)
    queue.clock.advance(5)

    with pytest.raises(MessageLeaseMismatch):
        now_ms = queue.steady.now_ms()
        await queue.store.transact(
            lambda tx: queue.service.apply(tx, txn_id, Decision.COMMIT, [member], now_ms)
        )

    with pytest.raises(
        NoMessages
    ):  # It is given back by the rollback, which this look at the clock asks for.
        await queue.dequeue()
    await queue.service.dead_letters(ORDERS, 1)
    assert (await queue.dequeue()).message.attempts == 2


async def test_a_transaction_whose_time_is_over_rolls_back_and_counts_a_failure(queue: Queue) -> None:
    txn_id = new_xid()
    await queue.enqueue(max_attempts=1)
    grant = await acquire(queue, txn_id, ttl_s=5)
    await stage(queue, grant)
    await queue.dequeue(txn_id=txn_id, visibility_s=5)
    queue.clock.advance(5)

    letters = await queue.service.dead_letters(ORDERS, 10)

    assert [letter.message.failure_attempts for letter in letters] == [1]
    assert await document(queue) is None
    assert await nothing_is_held(queue)


async def test_an_extend_keeps_the_keys_of_the_transaction(queue: Queue) -> None:
    txn_id = new_xid()
    await queue.enqueue()
    grant = await acquire(queue, txn_id, ttl_s=5)
    await stage(queue, grant)
    delivery = await queue.dequeue(txn_id=txn_id, visibility_s=5)
    queue.clock.advance(4)
    await queue.service.extend(ExtendOrder(claim(delivery), 60))
    queue.clock.advance(50)

    await queue.ack(delivery)

    assert await document(queue) == b'{"n":1}'


async def test_a_transaction_id_that_is_none_is_refused(queue: Queue) -> None:
    await queue.enqueue()

    with pytest.raises(InvalidTxn):
        await queue.dequeue(txn_id="nope")


# -- state


def with_state(delivery: Delivery, **changes: object) -> NackOrder:
    assert delivery.state is not None
    sent = StateClaim(delivery.state.lease_id, delivery.state.fencing_token, delivery.state.etag)
    return NackOrder(claim(delivery)._replace(state=sent), **changes)  # type: ignore[arg-type]


async def write_state(queue: Queue, delivery: Delivery, text: bytes) -> View:
    assert delivery.state is not None
    member = member_of_state(ORDERS, delivery.message.message_id)
    held = Claim(delivery.state.lease_id, delivery.state.fencing_token, delivery.state.txn_id)
    content = await queue.state.content_of(member, text)
    return await queue.state.update(member, held, content, Expectation())


async def read_state(queue: Queue, delivery: Delivery) -> bytes | None:
    return await document(queue, member_of_state(ORDERS, delivery.message.message_id))


async def test_the_state_of_a_nacked_message_is_there_at_the_next_delivery(queue: Queue) -> None:
    await queue.enqueue()
    first = await queue.dequeue(with_state=True)
    assert first.state is not None
    view = await write_state(queue, first, b'{"step":1}')
    await queue.service.nack(with_state(first))

    second = await queue.dequeue(with_state=True)

    assert view.is_hidden
    assert first.state.txn_id == first.txn_id
    assert second.state is not None
    assert second.state.etag == first.state.etag
    assert second.state.fencing_token == first.state.fencing_token + 1
    assert await read_state(queue, second) == b'{"step":1}'


async def test_a_nack_without_the_state_drops_what_was_written(queue: Queue) -> None:
    await queue.enqueue()
    first = await queue.dequeue(with_state=True)
    await write_state(queue, first, b'{"step":1}')

    await queue.nack(first)

    second = await queue.dequeue(with_state=True)
    assert await read_state(queue, second) is None


async def test_an_ack_leaves_nothing_of_the_state(queue: Queue) -> None:
    await queue.enqueue()
    first = await queue.dequeue(with_state=True)
    await write_state(queue, first, b'{"step":1}')
    await queue.service.nack(with_state(first))
    second = await queue.dequeue(with_state=True)
    await write_state(queue, second, b'{"step":2}')

    await queue.service.ack(with_state(second).claim)

    member = member_of_state(ORDERS, second.message.message_id)
    assert await read_state(queue, second) is None
    assert await LEASES.fetch(queue.store, *member) is None
    assert await DOCUMENTS.fetch(queue.store, *member) is None
    assert await nothing_is_held(queue)


async def test_an_ack_with_another_state_etag_changes_nothing(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(with_state=True)
    assert delivery.state is not None
    wrong = claim(delivery)._replace(state=StateClaim(delivery.state.lease_id, etag="other"))

    with pytest.raises(MetadataChanged):
        await queue.service.ack(wrong)

    await queue.ack(delivery)


async def test_an_extend_names_the_state_lease_or_is_refused(queue: Queue) -> None:
    await queue.enqueue()
    await queue.enqueue()
    stateful = await queue.dequeue(with_state=True, visibility_s=5)
    stateless = await queue.dequeue()
    assert stateful.state is not None
    lease_id = stateful.state.lease_id

    for sent, refusal in (
        (StateClaim("other"), LeaseRequired),
        (StateClaim(lease_id, 99), FencingMismatch),
    ):
        with pytest.raises(refusal):
            await queue.service.extend(ExtendOrder(claim(stateful)._replace(state=sent), 60))
    with pytest.raises(StateNotFound):
        await queue.service.extend(ExtendOrder(claim(stateless)._replace(state=StateClaim(lease_id)), 60))
    extended = await queue.service.extend(
        ExtendOrder(claim(stateful)._replace(state=StateClaim(lease_id)), 60)
    )

    assert extended.state_lease_expires_at_s == extended.lease_expires_at_s
    queue.clock.advance(30)
    await write_state(queue, stateful, b"{}")


async def test_a_message_whose_state_somebody_holds_waits_for_it(queue: Queue) -> None:
    message = await queue.enqueue()
    member = member_of_state(ORDERS, message.message_id)
    await acquire(queue, "", ttl_s=10, member=member)
    with pytest.raises(NoMessages):
        await queue.dequeue(with_state=True)
    queue.clock.advance(10)

    delivery = await queue.dequeue(with_state=True)

    assert delivery.message.message_id == message.message_id


async def test_a_transaction_with_state_commits_both_or_neither(queue: Queue) -> None:
    await queue.enqueue()
    txn_id = new_xid()
    first = await queue.dequeue(with_state=True, txn_id=txn_id)
    await write_state(queue, first, b'{"step":1}')
    await queue.nack(first)
    assert await read_state(queue, first) is None
    txn_id = new_xid()
    grant = await acquire(queue, txn_id)
    second = await queue.dequeue(with_state=True, txn_id=txn_id)
    await write_state(queue, second, b'{"step":1}')

    await release(queue, grant, Decision.COMMIT)

    assert await DOCUMENTS.fetch(queue.store, *member_of_state(ORDERS, second.message.message_id)) is None
    assert await nothing_is_held(queue)
    queue.clock.advance(3600)
    with pytest.raises(NoMessages):
        await queue.dequeue()


async def test_a_stateful_delivery_of_a_transaction_that_was_never_sent_leaves_nothing_held(
    queue: Queue,
) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(with_state=True, txn_id=new_xid())

    await queue.service.give_back([delivery])

    assert await nothing_is_held(queue)
    assert (await queue.dequeue(with_state=True)).message.attempts == 1


async def test_a_transaction_that_nobody_can_decide_on_now_disturbs_no_other_consumer(store: Store) -> None:
    before = Queue(store)
    await before.enqueue()
    await before.dequeue(txn_id=new_xid(), visibility_s=1)
    for _ in range(2):
        await before.enqueue()
    service, coordinator = led_from_away(Queue(store, has_own_clock=False))  # It is much later there.
    async with service.running():
        stream = service.subscribe(DequeueOrder(ORDERS, "worker", wait_s=None, count_max=1))
        [in_hand] = await stream.next()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.next(), 2.5)  # It is tried more than once meanwhile.
        assert await service.dead_letters(ORDERS, 1) == []
        await stream.aclose()
        coordinator.is_away = False
        [second, first] = [
            (await service.dequeue(DequeueOrder(ORDERS, "worker", wait_s=None)))[0] for _ in range(2)
        ]

    assert len({delivery.message.message_id for delivery in (in_hand, second, first)}) == 3
    assert first.message.attempts == 2
