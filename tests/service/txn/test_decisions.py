"""What is recorded of transactions, how long, and what the sweep makes of what was not ended."""

import asyncio

import pytest

from holdfast.common.ids import new_xid
from holdfast.leases.layer.errors import LeaseRequired
from holdfast.leases.layer.grant import AcquireParams
from holdfast.queue.layer.message.types import DequeueOrder, EnqueueOrder, QueueAddress
from holdfast.storage.keys import prefix_range
from holdfast.txn.layer.errors import TxnFanoutFailed, TxnNotFound
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.rules import Ask, Participant, State
from tests.service.txn.conftest import HERE, RETENTION_S, Plane, claim

A, B = Member("default", "a"), Member("default", "b")
ORDERS = QueueAddress("default", "orders")


def ask(state: State, *members: Member, **more: int) -> Ask:
    return Ask(state, [Participant(member) for member in members], **more)


async def left(plane: Plane, *names: str) -> int:
    """How many records of these kinds there are."""
    count = 0
    for name in names:
        start, end = prefix_range((name,))
        count += len(await plane.store.range(start, end, limit=100))
    return count


async def test_a_decision_is_one_commit_with_all_it_does(plane: Plane) -> None:
    txn_id = new_xid()
    await plane.staged("a", txn_id)
    await plane.staged("b", txn_id)
    before = plane.store.revision

    assert await plane.decisions.decide(txn_id, ask(State.COMMIT, A)) is State.COMMIT

    assert plane.store.revision == before + 1
    assert (await plane.document("a"), await plane.document("b")) == (b'{"n":1}', b'{"n":1}')
    assert await left(plane, "txn", "txndue", "held", "stage") == 0


async def test_a_waiter_is_told_of_a_decision(plane: Plane) -> None:
    txn_id = new_xid()
    await plane.staged("a", txn_id)
    waiter = asyncio.create_task(plane.leases.acquire(AcquireParams(A, "other", 30, None)))
    await asyncio.sleep(0)

    await plane.decisions.decide(txn_id, ask(State.ROLLBACK, A))

    await waiter


async def test_replays_change_nothing_any_more(plane: Plane) -> None:
    txn_id = new_xid()
    await plane.staged("a", txn_id)
    await plane.decisions.decide(txn_id, ask(State.COMMIT, A))
    before = plane.store.revision

    for _ in range(3):
        assert await plane.decisions.replay(txn_id) is State.COMMIT

    assert plane.store.revision == before
    assert await plane.version("a") == 1


async def test_a_release_without_a_transaction_writes_nothing_more(plane: Plane) -> None:
    await plane.release("a", await plane.staged("a", ""))

    assert await left(plane, "txn", "txndue", "txnmark", "txnmarkdue") == 0


async def test_a_decision_is_forgotten_after_its_time(plane: Plane) -> None:
    txn_id = new_xid()
    await plane.release("a", await plane.staged("a", txn_id))
    plane.clock.advance(RETENTION_S - 1)
    await plane.sweep.sweep()
    assert await plane.decisions.replay(txn_id) is State.COMMIT

    plane.clock.advance(1)
    with pytest.raises(TxnNotFound):
        await plane.decisions.replay(txn_id)
    await plane.sweep.sweep()

    assert await left(plane, "txnmark", "txnmarkdue") == 0


async def test_a_transaction_that_is_used_again_is_remembered_by_its_last_end(plane: Plane) -> None:
    txn_id = new_xid()
    await plane.release("a", await plane.staged("a", txn_id), Decision.ROLLBACK)
    plane.clock.advance(10)
    await plane.release("a", await plane.staged("a", txn_id))
    plane.clock.advance(RETENTION_S - 5)

    await plane.sweep.sweep()

    assert await plane.decisions.replay(txn_id) is State.COMMIT
    assert await left(plane, "txnmark", "txnmarkdue") == 2


async def test_a_prepared_transaction_whose_time_is_over_is_rolled_back_by_the_sweep(plane: Plane) -> None:
    txn_id = new_xid()
    await plane.decisions.decide(txn_id, ask(State.PENDING, A))
    await plane.sweep.sweep()
    assert await plane.decisions.replay(txn_id) is State.PENDING
    plane.clock.advance(30)

    await plane.sweep.sweep()

    assert await plane.decisions.decide(txn_id, ask(State.COMMIT, A)) is State.ROLLBACK
    assert await left(plane, "txn", "txndue") == 0


async def test_a_replay_rolls_back_what_is_over(plane: Plane) -> None:
    txn_id = new_xid()
    expires_at_ms = int(plane.clock.wall_s() + 60) * 1000
    await plane.decisions.decide(txn_id, ask(State.PENDING, A, expires_at_ms=expires_at_ms))
    plane.clock.advance(59)
    assert await plane.decisions.replay(txn_id) is State.PENDING
    plane.clock.advance(1)

    assert await plane.decisions.replay(txn_id) is State.ROLLBACK


async def test_a_keepalive_keeps_a_prepared_transaction(plane: Plane) -> None:
    txn_id = new_xid()
    grant = await plane.staged("a", txn_id, ttl_s=30)
    await plane.decisions.decide(txn_id, ask(State.PENDING, A))
    plane.clock.advance(20)
    await plane.leases.keepalive(A, claim(grant), 60)
    plane.clock.advance(20)

    await plane.sweep.sweep()

    assert await plane.decisions.replay(txn_id) is State.PENDING
    await plane.release("a", grant)
    assert await plane.document("a") == b'{"n":1}'


async def test_a_lease_that_ends_takes_its_prepared_transaction_with_it(plane: Plane) -> None:
    txn_id = new_xid()
    await plane.staged("a", txn_id, ttl_s=5)
    await plane.staged("b", txn_id, ttl_s=5)
    far_ms = int(plane.clock.wall_s() + 600) * 1000
    await plane.decisions.decide(txn_id, ask(State.PENDING, A, B, expires_at_ms=far_ms))
    plane.clock.advance(5)

    await plane.leases.acquire(AcquireParams(A, "other", 30, 0.0))

    assert await plane.decisions.replay(txn_id) is State.ROLLBACK
    assert await left(plane, "txn", "txndue", "stage") == 0


async def test_the_time_of_a_transaction_does_not_undo_its_decision(plane: Plane) -> None:
    txn_id = new_xid()
    far = Participant(Member("default", "far"), "island-2")
    grant = await plane.staged("a", txn_id, ttl_s=5)
    with pytest.raises(TxnFanoutFailed):
        await plane.decisions.decide(txn_id, Ask(State.COMMIT, [Participant(A, HERE), far]))
    plane.clock.advance(60)

    await plane.sweep.sweep()

    assert await plane.decisions.replay(txn_id) is State.COMMIT
    assert await plane.document("a") == b'{"n":1}'
    with pytest.raises(LeaseRequired):
        await plane.leases.keepalive(A, claim(grant), 30)


async def test_a_decision_that_reaches_no_participant_is_given_up_with_its_retention(plane: Plane) -> None:
    txn_id = new_xid()
    far = Participant(Member("default", "far"), "island-2")
    with pytest.raises(TxnFanoutFailed):
        await plane.decisions.decide(txn_id, Ask(State.COMMIT, [far]))
    plane.clock.advance(RETENTION_S + 60)

    await plane.sweep.sweep()

    assert await left(plane, "txn", "txndue") == 0


async def test_who_joins_after_the_decision_follows_it(plane: Plane) -> None:
    txn_id = new_xid()
    far = Participant(Member("default", "far"), "island-2")
    with pytest.raises(TxnFanoutFailed):
        await plane.decisions.decide(txn_id, Ask(State.ROLLBACK, [far]))

    await plane.release("a", await plane.staged("a", txn_id), Decision.COMMIT)

    assert await plane.document("a") is None
    assert await left(plane, "stage", "held") == 0


async def test_a_late_message_whose_time_ran_out_goes_back_though_the_decision_is_commit(
    plane: Plane,
) -> None:
    txn_id = new_xid()
    content = await plane.queue.arrivals.content_of(ORDERS, b"m")
    await plane.queue.arrivals.enqueue([(EnqueueOrder(ORDERS, "corr"), content)])
    far = Participant(Member("default", "far"), "island-2")
    with pytest.raises(TxnFanoutFailed):
        await plane.decisions.decide(txn_id, Ask(State.COMMIT, [far]))
    await plane.queue.dequeue(DequeueOrder(ORDERS, "worker", visibility_s=5, txn_id=txn_id))
    plane.clock.advance(5)

    assert await plane.decisions.replay(txn_id) is State.COMMIT

    (again,) = await plane.queue.dequeue(DequeueOrder(ORDERS, "worker"))
    assert again.message.attempts == 2


async def test_the_sweep_goes_on_by_itself(plane: Plane) -> None:
    txn_id = new_xid()
    plane.coordinator.on_due = plane.sweep.wake
    due_ms = int(plane.clock.wall_s() * 1000)  # Over as soon as it is recorded.
    async with plane.sweep.running(), asyncio.timeout(10):
        await plane.decisions.decide(txn_id, ask(State.PENDING, A, expires_at_ms=due_ms))
        start, end = prefix_range(("txnmark",))
        async with plane.store.watch(start, end) as watch:
            if not await left(plane, "txnmark"):
                await anext(aiter(watch))

    assert await plane.decisions.replay(txn_id) is State.ROLLBACK
