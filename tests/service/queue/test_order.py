"""Order and delay under load: no message passes one that its producer sent before, none comes early."""

import asyncio
import itertools
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from holdfast.queue.layer.limits import QueueLimits
from holdfast.storage.port import Store
from tests.service.queue.words import Queue

PRODUCERS, MESSAGES = 4, 60
SEED = 20261116


class Sent(NamedTuple):
    """What a payload says of its message."""

    producer: int
    number: int
    is_delayed: bool
    due_s: float

    def payload(self) -> bytes:
        return "/".join(map(repr, self)).encode()

    @classmethod
    def of(cls, payload: bytes) -> "Sent":
        producer, number, is_delayed, due_s = payload.decode().split("/")
        return cls(int(producer), int(number), is_delayed == "True", float(due_s))


@pytest.fixture
async def live(store: Store) -> AsyncIterator[Queue]:
    """A window that is smaller than the queue."""
    queue = Queue(store, QueueLimits(page_entries=8), has_own_clock=False)
    async with queue.service.running():
        yield queue


async def produce(queue: Queue, producer: int, rng: random.Random) -> None:
    for number in range(MESSAGES):
        delay_s = rng.choice([0.0, 0.0, 0.05, 0.3])
        sent = Sent(producer, number, bool(delay_s), time.time() + delay_s)
        await queue.enqueue(sent.payload(), delay_s=delay_s)


async def test_no_inversion_and_no_early_delivery(live: Queue) -> None:
    rng = random.Random(SEED)
    producing = asyncio.gather(
        *[produce(live, name, random.Random(rng.random())) for name in range(PRODUCERS)]
    )

    taken: list[tuple[float, Sent]] = []
    while len(taken) < PRODUCERS * MESSAGES:
        delivery = await live.dequeue(wait_s=None)
        taken.append((time.time(), Sent.of(delivery.body.inline)))
        await live.ack(delivery)
    await producing

    prompt: dict[int, list[int]] = defaultdict(list)
    for at_s, sent in taken:
        assert at_s >= sent.due_s - 0.001  # Times are kept in whole milliseconds.
        if not sent.is_delayed:
            prompt[sent.producer].append(sent.number)
    for numbers in prompt.values():
        assert all(before < after for before, after in itertools.pairwise(numbers))


async def test_a_backlog_leaves_in_the_order_of_priority_time_and_id(live: Queue) -> None:
    rng = random.Random(SEED)
    messages = [await live.enqueue(priority=rng.choice([-1, 0, 7])) for _ in range(3 * MESSAGES)]

    left = [(await live.dequeue()).message.message_id for _ in messages]

    expected = sorted(messages, key=lambda message: (message.priority, message.message_id))
    assert left == [message.message_id for message in expected]
