"""The end that a caller is told is the end that is judged: a call a millisecond before it succeeds, one at it does not."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast.common.clock import FakeClock
from holdfast.common.ids import new_xid
from holdfast.leases.layer.errors import LeaseExpired
from holdfast.leases.layer.grant import AcquireParams, Claim
from holdfast.queue.layer.errors import MessageLeaseExpired, NoMessages
from holdfast.queue.layer.message.records import member_of_state
from holdfast.queue.layer.message.types import ExtendOrder, StateClaim
from holdfast.state.layer.document.staging import Expectation
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.txn.layer.listing import list_transactions
from holdfast.txn.layer.port import Member
from holdfast.txn.layer.rules import Ask, Participant, State
from tests.service.queue.words import ORDERS, Queue, claim
from tests.service.txn.conftest import Plane

KEY, OTHER = Member("default", "key"), Member("default", "other")
FRACTIONS_MS = (0, 1, 499, 500, 999)


@pytest.fixture(params=FRACTIONS_MS)
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[Queue]:
    async with open_memory(StoreOptions()) as store:
        queue = Queue(store, clock=at_fraction(request.param))
        async with queue.service.running():
            yield queue


def at_fraction(fraction_ms: int) -> FakeClock:
    """A little past the millisecond, so that no rounding of floats decides."""
    return FakeClock(wall_s=1_700_000_000 + (fraction_ms + 0.3) / 1000)


def move_to(queue: Queue | Plane, at_ms: int) -> None:
    queue.clock.advance((at_ms + 0.3) / 1000 - queue.clock.wall_s())


async def check_told(
    queue: Queue, told_s: int, call: Callable[[], Awaitable[object]], refusal: type[Exception]
) -> None:
    """`call` needs the lease and does not change it."""
    move_to(queue, told_s * 1000 - 1)
    await call()
    move_to(queue, told_s * 1000)
    with pytest.raises(refusal):
        await call()


async def acquire(queue: Queue, member: Member = KEY, ttl_s: int = 7, txn_id: str = "") -> tuple[int, Claim]:
    grant = await queue.leases.acquire(AcquireParams(member, "worker", ttl_s, 0.0, txn_id))
    return grant.expires_at_unix, Claim(grant.lease_id, grant.fencing_token, grant.txn_id)


def update(queue: Queue, member: Member, held: Claim) -> Callable[[], Awaitable[object]]:
    async def update() -> None:
        content = await queue.state.content_of(member, b"{}")
        await queue.state.update(member, held, content, Expectation())

    return update


async def test_acquire(queue: Queue) -> None:
    told_s, held = await acquire(queue)

    assert 6.999 < told_s - queue.clock.wall_s() < 8
    await check_told(queue, told_s, update(queue, KEY, held), LeaseExpired)


async def test_keepalive(queue: Queue) -> None:
    _, held = await acquire(queue)
    queue.clock.advance(1.2345)

    told_s = await queue.leases.keepalive(KEY, held, 11)

    await check_told(queue, told_s, update(queue, KEY, held), LeaseExpired)


async def test_describe(queue: Queue) -> None:
    told_s, _ = await acquire(queue)
    queue.clock.advance(1.2345)

    described = await queue.leases.describe(KEY)

    assert described.expires_at_unix == told_s
    move_to(queue, told_s * 1000 - 1)
    assert (await queue.leases.describe(KEY)).expires_at_unix == told_s
    move_to(queue, told_s * 1000)
    assert (await queue.leases.describe(KEY)).lease is None


async def test_an_acquire_that_joins_a_transaction_is_told_the_end_of_the_whole(queue: Queue) -> None:
    txn_id = new_xid()
    _, first = await acquire(queue, OTHER, ttl_s=20, txn_id=txn_id)
    queue.clock.advance(1.2345)

    told_s, held = await acquire(queue, KEY, ttl_s=7, txn_id=txn_id)

    await update(queue, OTHER, first)()
    await check_told(queue, told_s, update(queue, KEY, held), LeaseExpired)


async def test_a_waiter_gets_the_lease_at_its_end(queue: Queue) -> None:
    told_s, _ = await acquire(queue)

    move_to(queue, told_s * 1000)

    assert (await acquire(queue))[1].fencing_token == 2


async def test_dequeue(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(visibility_s=7)
    told_s = delivery.lease_expires_at_s

    assert told_s == delivery.message.not_visible_until_s
    move_to(queue, told_s * 1000 - 1)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    await queue.ack(delivery)


async def test_a_delivery_is_over_and_the_message_visible_at_the_told_second(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(visibility_s=7)

    move_to(queue, delivery.lease_expires_at_s * 1000)

    with pytest.raises(MessageLeaseExpired):
        await queue.ack(delivery)
    assert (await queue.dequeue()).message.attempts == 2


async def test_extend(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(visibility_s=7)
    queue.clock.advance(1.2345)
    extended = await queue.service.extend(ExtendOrder(claim(delivery), 11))
    kept = delivery._replace(meta_etag=extended.meta_etag)

    move_to(queue, extended.lease_expires_at_s * 1000 - 1)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    move_to(queue, extended.lease_expires_at_s * 1000)
    with pytest.raises(MessageLeaseExpired):
        await queue.ack(kept)
    assert (await queue.dequeue()).message.attempts == 2


async def test_the_lease_on_the_state_of_a_message(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(with_state=True, visibility_s=7)
    assert delivery.state is not None
    member = member_of_state(ORDERS, delivery.message.message_id)
    held = Claim(delivery.state.lease_id, delivery.state.fencing_token, delivery.state.txn_id)

    assert delivery.state.expires_at_s == delivery.lease_expires_at_s
    await check_told(queue, delivery.state.expires_at_s, update(queue, member, held), LeaseExpired)


async def test_extend_of_the_lease_on_the_state(queue: Queue) -> None:
    await queue.enqueue()
    delivery = await queue.dequeue(with_state=True, visibility_s=7)
    assert delivery.state is not None
    queue.clock.advance(1.2345)
    sent = claim(delivery)._replace(state=StateClaim(delivery.state.lease_id))

    extended = await queue.service.extend(ExtendOrder(sent, 11))

    member = member_of_state(ORDERS, delivery.message.message_id)
    held = Claim(delivery.state.lease_id, delivery.state.fencing_token, delivery.state.txn_id)
    assert extended.state_lease_expires_at_s == extended.lease_expires_at_s
    await check_told(queue, extended.state_lease_expires_at_s, update(queue, member, held), LeaseExpired)


async def test_a_delay_ends_at_the_told_second(queue: Queue) -> None:
    message = await queue.enqueue(delay_s=3)

    move_to(queue, message.not_visible_until_s * 1000 - 1)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    move_to(queue, message.not_visible_until_s * 1000)
    assert (await queue.dequeue()).message.message_id == message.message_id


async def test_a_message_without_a_delay_is_visible_at_once(queue: Queue) -> None:
    message = await queue.enqueue()

    assert message.not_visible_until_s <= queue.clock.wall_s()
    assert (await queue.dequeue()).message.message_id == message.message_id


async def test_the_delay_of_a_nack_ends_at_the_second_that_a_peek_tells(queue: Queue) -> None:
    await queue.enqueue()
    await queue.nack(await queue.dequeue(), delay_s=3)
    end_s = -(-int(queue.clock.wall_s() * 1000) // 1000) + 3

    move_to(queue, end_s * 1000 - 1)
    with pytest.raises(NoMessages):
        await queue.dequeue()
    move_to(queue, end_s * 1000)
    [(peeked, _)] = await queue.service.peek(ORDERS, 10)
    assert peeked.not_visible_until_s == end_s
    assert (await queue.dequeue()).message.attempts == 2


async def test_a_message_with_a_ttl_ends_at_the_told_second(queue: Queue) -> None:
    message = await queue.enqueue(ttl_s=5)

    move_to(queue, message.expires_at_s * 1000 - 1)
    delivery = await queue.dequeue(visibility_s=1)
    await queue.nack(delivery)
    move_to(queue, message.expires_at_s * 1000)
    with pytest.raises(NoMessages):
        await queue.dequeue()


@pytest.mark.parametrize("fraction_ms", FRACTIONS_MS)
async def test_a_pending_transaction_ends_at_the_second_that_is_listed(fraction_ms: int) -> None:
    async with open_memory(StoreOptions()) as store:
        plane = Plane(store)
        plane.clock.advance((fraction_ms + 0.3) / 1000)
        txn_id = new_xid()
        await plane.decisions.decide(txn_id, Ask(State.PENDING, [Participant(KEY)]))
        [listed], _ = await list_transactions(store, plane.clock, 10)

        move_to(plane, listed.expires_at_s * 1000 - 1)
        assert await plane.decisions.replay(txn_id) is State.PENDING
        move_to(plane, listed.expires_at_s * 1000)
        assert await plane.decisions.replay(txn_id) is State.ROLLBACK
