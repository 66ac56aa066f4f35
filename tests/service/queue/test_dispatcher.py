"""The dispatcher of one queue over a store that is some way off: what happens between its question and the answer."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from holdfast.queue.layer.dispatch.dispatcher import Dispatcher
from holdfast.queue.layer.dispatch.window import Entry
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.types import Policy
from holdfast.queue.layer.records_pb2 import QueuePolicy
from tests.service.queue.distance import DistantStore, open_distant
from tests.service.queue.words import ORDERS, Queue

LIMITS = QueueLimits(page_entries=2)
STEPS_MAX = 16  # Loading takes fewer; so each of its steps is tried.


class Around:
    """What a dispatcher needs: its tasks run on, and what expired may be delivered again."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        return task

    def expired(self, dispatcher: Dispatcher, entry: Entry) -> bool:
        return True


@pytest.fixture
async def store() -> AsyncIterator[DistantStore]:
    async with open_distant() as store:
        yield store


@pytest.fixture
async def queue(store: DistantStore) -> AsyncIterator[Queue]:
    queue = Queue(store)
    async with queue.service.running():
        yield queue


@pytest.fixture
async def dispatcher(queue: Queue) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(ORDERS, queue.store, queue.steady, Around(), LIMITS)
    yield dispatcher
    dispatcher.close()


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def enqueue(queue: Queue) -> set[str]:
    """Several pages of two priorities."""
    messages = [await queue.enqueue(priority=number % 2) for number in range(10)]
    return {message.message_id for message in messages}


async def take_all(dispatcher: Dispatcher) -> set[str]:
    taken: set[str] = set()
    while entries := await dispatcher.take(3):
        taken |= {entry.message_id for entry in entries}
    return taken


@pytest.mark.parametrize("count", range(STEPS_MAX))
async def test_a_reset_at_any_step_of_loading_hides_nothing(
    queue: Queue, dispatcher: Dispatcher, count: int
) -> None:
    known = await enqueue(queue)
    out = {(await queue.dequeue()).message.message_id for _ in range(2)}
    loading = asyncio.create_task(dispatcher.load())
    await steps(count)

    dispatcher.reset()
    await loading
    await dispatcher.load()

    assert dispatcher.window.out == len(out)
    assert await take_all(dispatcher) == known - out


async def test_a_page_that_was_asked_for_before_a_reset_hides_nothing(
    queue: Queue, dispatcher: Dispatcher, store: DistantStore
) -> None:
    known = await enqueue(queue)
    await dispatcher.load()
    await dispatcher.take(2)
    held = store.hold_next_read()
    taking = asyncio.create_task(take_all(dispatcher))
    await steps(3)

    dispatcher.reset()
    await dispatcher.load()
    held.set()
    await taking

    assert taking.result() | await take_all(dispatcher) == known


async def test_a_consumer_that_joins_after_a_reset_is_served(queue: Queue, dispatcher: Dispatcher) -> None:
    message = await queue.enqueue()
    await dispatcher.load()
    dispatcher.reset()

    waiter = dispatcher.join(1)

    [entry] = await asyncio.wait_for(waiter.turn, 10)
    assert entry.message_id == message.message_id


async def test_a_reset_makes_nobody_believe_that_a_queue_is_empty(
    queue: Queue, dispatcher: Dispatcher
) -> None:
    await queue.enqueue()
    await dispatcher.load()
    dispatcher.reset()

    assert len(await dispatcher.take(1)) == 1


async def test_a_caller_that_hangs_up_while_an_entry_is_read_again_does_not_hide_it(
    queue: Queue, dispatcher: Dispatcher
) -> None:
    await queue.enqueue()
    await dispatcher.load()
    [entry] = await dispatcher.take(1)
    reading = asyncio.create_task(dispatcher.read_again([entry]))
    await steps(1)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

    dispatcher.put_back([entry])

    assert await dispatcher.take(1) == [entry]


@pytest.mark.parametrize("policy", [Policy(deliveries_per_s=5, is_paused=True), Policy(deliveries_per_s=5)])
async def test_a_consumer_that_no_pace_holds_up_is_not_looked_at_again_and_again(
    queue: Queue, policy: Policy
) -> None:
    full = LIMITS._replace(out_max=0)
    limits = LIMITS if policy.is_paused else full
    dispatcher = Dispatcher(ORDERS, queue.store, queue.steady, Around(), limits)
    await queue.enqueue()
    await dispatcher.load()
    dispatcher.set_policy(QueuePolicy(**policy._asdict()))
    looks: list[None] = []
    dispatcher.join(1)
    dispatcher.watchers.add(lambda: looks.append(None))

    await asyncio.sleep(0.05)

    dispatcher.close()
    assert len(looks) <= 1


@pytest.mark.parametrize("order", [{}, {"with_state": True}])
async def test_a_claim_that_arrives_after_its_caller_hung_up_is_given_back(
    queue: Queue, store: DistantStore, order: dict[str, object]
) -> None:
    message = await queue.enqueue()
    store.is_open.clear()
    gone = asyncio.create_task(queue.dequeue(**order))
    await steps(5)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await steps(5)
    store.is_open.set()

    delivery = await asyncio.wait_for(queue.dequeue(wait_s=None), 10)

    assert delivery.message.message_id == message.message_id
    assert delivery.message.attempts == 1
