"""Messages that a transaction sends: staged by enqueue, in their queue with its commit, gone with its rollback."""

import asyncio

import pytest

from holdfast.common.ids import new_xid
from holdfast.leases.layer.grant import AcquireParams, Claim, Grant
from holdfast.leases.layer.records import held_range
from holdfast.queue.layer.errors import InvalidTxn, NoMessages, TxnTooLarge
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.records import MESSAGES, SENT
from holdfast.queue.layer.message.types import DequeueOrder, EnqueueOrder, Policy, QueueAddress
from holdfast.state.layer.document.staging import Expectation
from holdfast.storage.port import Store
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.decisions import Decisions
from holdfast.txn.layer.errors import TxnConflict
from holdfast.txn.layer.port import MEMBERS_MAX, Decision, Member, TooManyParticipants
from holdfast.txn.layer.records import RECORDS, Due, due_bounds
from holdfast.txn.layer.rules import Ask, State
from tests.service.queue.words import ORDERS, Queue

KEY = Member("default", "account")
OTHER = QueueAddress("default", "parcels")


async def acquire(queue: Queue, txn_id: str = "", ttl_s: int = 30) -> Grant:
    return await queue.leases.acquire(AcquireParams(KEY, "worker", ttl_s, 0.0, txn_id))


async def stage(queue: Queue, grant: Grant) -> None:
    content = await queue.state.content_of(KEY, b'{"n":1}')
    held = Claim(grant.lease_id, grant.fencing_token, grant.txn_id)
    await queue.state.update(KEY, held, content, Expectation())


async def release(queue: Queue, grant: Grant, decision: Decision) -> None:
    await queue.leases.release(KEY, Claim(grant.lease_id, grant.fencing_token, grant.txn_id), decision)


async def document(queue: Queue) -> bytes | None:
    view = await queue.state.get_public(KEY)
    return None if view.content is None else view.content.inline


def decisions_of(queue: Queue) -> Decisions:
    return Decisions(queue.store, queue.coordinator, queue.steady, queue.leases)


async def sweep(queue: Queue) -> None:
    """What the sweep of the coordinator does with what is due by now."""
    records = await queue.store.range(*due_bounds(queue.steady.now_ms()), limit=10)
    for record in records:
        await decisions_of(queue).resume(Due(record))


async def is_nothing_there(queue: Queue, queues: tuple[QueueAddress, ...] = (ORDERS,)) -> bool:
    """No record of a message, of a transaction or of what one holds."""
    held = await queue.store.range(*held_range(), limit=10)
    sent = await queue.store.range(*SENT.bounds(), limit=10)
    pending = await queue.store.range(*RECORDS.bounds(), limit=10)
    messages = [await MESSAGES.fetch_range(queue.store, *address, limit=10) for address in queues]
    return not (held or sent or pending or any(messages))


# -- who decides


async def test_nobody_sees_a_message_before_the_commit(queue: Queue) -> None:
    txn_id = new_xid()
    sent = await queue.enqueue(txn_id=txn_id)

    with pytest.raises(NoMessages):
        await queue.dequeue()

    stats = await queue.service.stats(ORDERS)
    assert sent.txn_id == txn_id
    assert (stats.pending_candidates, stats.in_flight, stats.head) == (0, 0, None)
    assert await queue.service.peek(ORDERS, 10) == []
    assert await queue.service.dead_letters(ORDERS, 10) == []
    assert queue.service.pending == 0


async def test_releasing_a_key_publishes_message_and_document_in_one_commit(queue: Queue) -> None:
    grant = await acquire(queue, new_xid())
    await stage(queue, grant)
    sent = await queue.enqueue(b"parcel", txn_id=grant.txn_id, priority=3, attributes=b'{"a":1}')
    before = queue.store.revision

    await release(queue, grant, Decision.COMMIT)

    assert queue.store.revision == before + 1
    assert await document(queue) == b'{"n":1}'
    delivery = await queue.dequeue()
    assert delivery.message.message_id == sent.message_id
    assert (delivery.body.inline, delivery.message.priority) == (b"parcel", 3)
    assert (delivery.message.attempts, delivery.message.correlation_id) == (1, "corr")
    await queue.ack(delivery)
    assert await is_nothing_there(queue)


async def test_rolling_a_key_back_drops_the_message(queue: Queue) -> None:
    grant = await acquire(queue, new_xid())
    await stage(queue, grant)
    await queue.enqueue(txn_id=grant.txn_id)

    await release(queue, grant, Decision.ROLLBACK)

    assert await document(queue) is None
    with pytest.raises(NoMessages):
        await queue.dequeue()
    assert await is_nothing_there(queue)


async def test_the_key_that_minted_the_transaction_commits_what_is_sent_under_its_id(queue: Queue) -> None:
    grant = await acquire(queue)
    await queue.enqueue(txn_id=grant.txn_id)

    await release(queue, grant, Decision.COMMIT)

    await queue.ack(await queue.dequeue())
    assert await is_nothing_there(queue)


async def test_the_ack_of_a_delivery_publishes_what_was_sent_under_its_id(queue: Queue) -> None:
    """Consume, process, produce: the message that is done and the one that follows from it change places."""
    await queue.enqueue(b"first")
    delivery = await queue.dequeue()
    sent = await queue.enqueue(b"second", txn_id=delivery.txn_id)

    await queue.ack(delivery)

    following = await queue.dequeue()
    assert following.message.message_id == sent.message_id
    await queue.ack(following)
    assert await is_nothing_there(queue)


async def test_the_nack_of_a_delivery_drops_what_was_sent_under_its_id(queue: Queue) -> None:
    await queue.enqueue(b"first")
    delivery = await queue.dequeue()
    await queue.enqueue(b"second", txn_id=delivery.txn_id)

    await queue.nack(delivery)

    again = await queue.dequeue()
    assert (again.body.inline, again.message.attempts) == (b"first", 2)
    with pytest.raises(NoMessages):
        await queue.dequeue()


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
async def test_a_decision_by_name_decides_on_what_was_sent(queue: Queue, state: State) -> None:
    txn_id = new_xid()
    await queue.enqueue(txn_id=txn_id)

    assert await decisions_of(queue).decide(txn_id, Ask(state)) is state
    assert await decisions_of(queue).decide(txn_id, Ask(state)) is state

    if state is State.COMMIT:
        await queue.ack(await queue.dequeue())
    with pytest.raises(NoMessages):
        await queue.dequeue()
    assert await is_nothing_there(queue)


async def test_a_commit_publishes_into_every_queue(queue: Queue) -> None:
    txn_id = new_xid()
    content = await queue.service.arrivals.content_of(OTHER, b"other")
    await queue.enqueue(txn_id=txn_id)
    await queue.service.arrivals.enqueue([(EnqueueOrder(OTHER, "corr", txn_id=txn_id), content)])

    await decisions_of(queue).decide(txn_id, Ask(State.COMMIT))

    await queue.dequeue()
    (other,) = await queue.service.dequeue(DequeueOrder(OTHER, "worker"))
    assert other.body.inline == b"other"


async def test_a_commit_that_fails_publishes_nothing(queue: Queue) -> None:
    """A delivery whose time is over refuses the commit, so nothing of the transaction may show."""
    txn_id = new_xid()
    await queue.enqueue(b"first")
    await queue.dequeue(txn_id=txn_id, visibility_s=5)
    await queue.enqueue(b"second", txn_id=txn_id)
    queue.clock.advance(5)

    await queue.service.dead_letters(ORDERS, 1)  # Ends what is over.

    again = await queue.dequeue()
    assert again.body.inline == b"first"
    with pytest.raises(NoMessages):
        await queue.dequeue()


# -- consumers


async def test_a_consumer_that_waits_is_woken_by_the_commit(queue: Queue) -> None:
    grant = await acquire(queue, new_xid())
    waiter = asyncio.create_task(queue.dequeue(wait_s=None))
    await asyncio.sleep(0)
    sent = await queue.enqueue(txn_id=grant.txn_id)
    assert not waiter.done()

    await release(queue, grant, Decision.COMMIT)

    delivery = await asyncio.wait_for(waiter, 5)
    assert delivery.message.message_id == sent.message_id


async def test_messages_leave_in_the_order_of_commits_and_within_one_in_the_order_of_enqueues(
    queue: Queue,
) -> None:
    first, second = new_xid(), new_xid()
    for payload in (b"c", b"d"):
        await queue.enqueue(payload, txn_id=second)
    await queue.enqueue(b"e", txn_id=first)
    await queue.enqueue(b"a")
    queue.clock.advance(1)
    await decisions_of(queue).decide(second, Ask(State.COMMIT))
    queue.clock.advance(1)
    await decisions_of(queue).decide(first, Ask(State.COMMIT))

    assert [(await queue.dequeue()).body.inline for _ in range(4)] == [b"a", b"c", b"d", b"e"]


async def test_delay_ttl_and_age_count_from_the_commit(queue: Queue) -> None:
    grant = await acquire(queue, new_xid(), ttl_s=600)
    await queue.enqueue(b"late", txn_id=grant.txn_id, delay_s=10, ttl_s=100)
    queue.clock.advance(200)
    await release(queue, grant, Decision.COMMIT)
    committed_at_s = queue.steady.now_ms() // 1000

    with pytest.raises(NoMessages):
        await queue.dequeue()
    queue.clock.advance(11)

    ((peeked, _),) = await queue.service.peek(ORDERS, 1)
    assert peeked.enqueued_at_s == committed_at_s
    assert 99 <= peeked.expires_at_s - committed_at_s <= 101
    stats = await queue.service.stats(ORDERS)
    assert stats.head is not None
    assert stats.head.age_s == 11
    queue.clock.advance(100)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    await queue.service.dead_letters(ORDERS, 1)


async def test_the_policy_of_the_queue_holds_for_what_a_transaction_sends(queue: Queue) -> None:
    await queue.service.set_policy(ORDERS, Policy(max_attempts=2))
    txn_id = new_xid()
    sent = await queue.enqueue(txn_id=txn_id)
    await decisions_of(queue).decide(txn_id, Ask(State.COMMIT))

    assert sent.max_attempts == 2
    assert (await queue.dequeue()).message.max_attempts == 2


# -- transactions that are over, or never end


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
async def test_an_enqueue_into_a_decided_transaction_is_refused(queue: Queue, state: State) -> None:
    txn_id = new_xid()
    await queue.enqueue(txn_id=txn_id)
    await decisions_of(queue).decide(txn_id, Ask(state))

    with pytest.raises(TxnConflict, match=state.value):
        await queue.enqueue(b"late", txn_id=txn_id)

    assert not await queue.store.range(*SENT.bounds(), limit=10)


@pytest.mark.parametrize("decision", list(Decision))
async def test_an_enqueue_under_the_id_of_a_lease_that_ended_is_refused(
    queue: Queue, decision: Decision
) -> None:
    grant = await acquire(queue)
    await release(queue, grant, decision)

    with pytest.raises(TxnConflict):
        await queue.enqueue(txn_id=grant.txn_id)

    assert await is_nothing_there(queue)


async def test_an_enqueue_under_the_id_of_a_delivery_that_ended_is_refused(queue: Queue) -> None:
    await queue.enqueue()
    nacked = await queue.dequeue()
    await queue.nack(nacked)
    with pytest.raises(TxnConflict):
        await queue.enqueue(txn_id=nacked.txn_id)
    acked = await queue.dequeue()
    await queue.ack(acked)

    with pytest.raises(TxnConflict):
        await queue.enqueue(txn_id=acked.txn_id)

    assert await is_nothing_there(queue)


async def test_an_id_that_another_plane_minted_opens_a_transaction_as_one_of_the_client_does(
    queue: Queue,
) -> None:
    elsewhere = Coordinator(queue.steady, backend_hash="another store").mint()

    sent = await queue.enqueue(txn_id=elsewhere)

    assert sent.txn_id == elsewhere
    assert await decisions_of(queue).decide(elsewhere, Ask(State.COMMIT)) is State.COMMIT
    await queue.ack(await queue.dequeue())


async def test_an_enqueue_into_a_transaction_whose_time_is_over_is_refused(queue: Queue) -> None:
    grant = await acquire(queue, ttl_s=5)
    queue.clock.advance(5)

    with pytest.raises(TxnConflict, match="over"):
        await queue.enqueue(txn_id=grant.txn_id)


async def test_what_nobody_decides_on_ends_after_the_default_ttl(queue: Queue) -> None:
    txn_id = new_xid()
    await queue.enqueue(txn_id=txn_id)
    queue.clock.advance(20)
    await sweep(queue)
    await queue.enqueue(txn_id=txn_id)  # Begins the time anew.
    queue.clock.advance(20)
    await sweep(queue)
    assert not await is_nothing_there(queue)
    queue.clock.advance(11)

    await sweep(queue)

    assert await is_nothing_there(queue)
    with pytest.raises(TxnConflict, match="rollback"):
        await queue.enqueue(txn_id=txn_id)


async def test_what_was_sent_lives_as_long_as_what_the_transaction_holds(queue: Queue) -> None:
    grant = await acquire(queue, new_xid(), ttl_s=10)
    await queue.enqueue(txn_id=grant.txn_id)
    lease = await queue.leases.describe(KEY)
    assert lease.expires_at_unix - queue.steady.now_ms() // 1000 <= 11  # Sending prolongs nothing.
    held = Claim(grant.lease_id, grant.fencing_token, grant.txn_id)
    await queue.leases.keepalive(KEY, held, 100)
    queue.clock.advance(60)
    await sweep(queue)

    await release(queue, grant, Decision.COMMIT)

    await queue.dequeue()


async def test_the_end_of_a_lease_drops_what_its_transaction_sent(queue: Queue) -> None:
    grant = await acquire(queue, ttl_s=5)
    await queue.enqueue(txn_id=grant.txn_id)
    queue.clock.advance(6)

    await queue.leases.end_expired(KEY)

    assert await is_nothing_there(queue)


# -- limits and bad input


async def test_a_transaction_sends_as_many_messages_as_it_may_have_participants(queue: Queue) -> None:
    txn_id = new_xid()
    content = await queue.service.arrivals.content_of(ORDERS, b"p")
    order = EnqueueOrder(ORDERS, "corr", ttl_s=60, txn_id=txn_id)
    await queue.service.arrivals.enqueue([(order, content)] * (MEMBERS_MAX - 1))
    await queue.enqueue(txn_id=txn_id, ttl_s=60)
    with pytest.raises(TooManyParticipants):
        await queue.enqueue(txn_id=txn_id)
    with pytest.raises(TooManyParticipants):
        await acquire(queue, txn_id)

    await decisions_of(queue).decide(txn_id, Ask(State.COMMIT))

    assert len(await queue.dequeue_many(count_max=MEMBERS_MAX)) == MEMBERS_MAX


async def test_a_transaction_sends_so_many_bytes_and_no_more(store: Store) -> None:
    queue = Queue(store, QueueLimits(sent_bytes_max=10))
    async with queue.service.running():
        txn_id = new_xid()
        await queue.enqueue(b"123456", txn_id=txn_id)
        with pytest.raises(TxnTooLarge):
            await queue.enqueue(b"12345", txn_id=txn_id)
        await queue.enqueue(b"1234", txn_id=txn_id)


async def test_all_messages_of_a_call_belong_to_one_transaction(queue: Queue) -> None:
    content = await queue.service.arrivals.content_of(ORDERS, b"p")
    orders = [EnqueueOrder(ORDERS, "corr", txn_id=txn_id) for txn_id in (new_xid(), "")]

    with pytest.raises(InvalidTxn):
        await queue.service.arrivals.enqueue([(order, content) for order in orders])

    with pytest.raises(NoMessages):
        await queue.dequeue()


async def test_a_transaction_id_that_is_no_xid_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidTxn):
        await queue.enqueue(txn_id="nope")


async def test_an_enqueue_that_is_repeated_stages_a_second_message(queue: Queue) -> None:
    txn_id = new_xid()
    sent = [await queue.enqueue(txn_id=txn_id) for _ in range(2)]
    await decisions_of(queue).decide(txn_id, Ask(State.COMMIT))

    taken = [(await queue.dequeue()).message.message_id for _ in range(2)]

    assert taken == [one.message_id for one in sent]


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
async def test_a_large_payload_stays_while_it_is_staged_and_goes_with_a_rollback(
    queue: Queue, state: State
) -> None:
    txn_id = new_xid()
    payload = b"x" * 200_000
    sent = await queue.enqueue(payload, txn_id=txn_id)
    (row,) = await MESSAGES.fetch_range(queue.store, *ORDERS, limit=1)
    await queue.store.blobs.sweep(grace_s=0)

    await decisions_of(queue).decide(txn_id, Ask(state))
    await queue.store.blobs.sweep(grace_s=0)

    assert sent.payload_bytes == len(payload)
    assert row.message.payload.HasField("blob")
    if state is State.ROLLBACK:
        assert await queue.store.blobs.info(row.message.payload.blob.id) is None
        assert await is_nothing_there(queue)
        return
    delivery = await queue.dequeue()
    pieces = [piece async for piece in queue.service.open_payload(ORDERS, delivery.body)]
    assert b"".join(pieces) == payload
