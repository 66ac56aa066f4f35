"""kill -9 at every named step of enqueue, claim, ack, nack and the move to the dead letters: what was told holds."""

import json
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.clock import FakeClock
from holdfast.leases.layer.grant import Claim
from holdfast.leases.layer.records import held_members, held_range
from holdfast.queue.layer.errors import MessageLeaseMismatch, MessageNotFound, NoMessages
from holdfast.queue.layer.message.records import DEAD, MESSAGES, READY, SENT, TAKEN
from holdfast.queue.layer.message.types import LeaseClaim
from holdfast.storage.disk.store import open_disk
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from holdfast.txn.layer.port import Decision, Member
from tests.service.queue.words import ORDERS, Queue
from tests.system.queue import crasher as queue_crasher
from tests.system.queue.crasher import (
    DOCUMENT,
    KEY,
    OPERATIONS,
    RELEASING_STEPS,
    SENDING_STEPS,
    STEPS,
    VISIBILITY_S,
    Job,
    SentJob,
)

KILLS_BRIEF, KILLS = 1, 20
ROWS_MAX = 1000


class Life:
    """What a dead process had asked and been told, by its ledger."""

    def __init__(self, lines: list[str]) -> None:
        events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self._told = {event["event"]: event for event in events}

    def has(self, event: str) -> bool:
        return event in self._told

    @property
    def message_id(self) -> str:
        message_id: str = self._told["enqueued"]["id"]
        return message_id

    @property
    def lease(self) -> Claim:
        """Of the key that a message is sent with."""
        return Claim(*self._told["acquired"]["claim"])

    @property
    def claim(self) -> LeaseClaim:
        told = self._told["claimed"]
        return LeaseClaim(ORDERS, self.message_id, told["lease_id"], told["token"])


def lived(processes: ForkServerContext, job: Job | SentJob) -> Life:
    run = queue_crasher.run if isinstance(job, Job) else queue_crasher.send
    process = processes.Process(target=run, args=(job,))
    process.start()
    process.join(60)
    assert process.exitcode == -9, job
    return Life(Path(job.ledger).read_text().splitlines())


class Places:
    """Where each message is, by the records of the store."""

    def __init__(self, messages: set[str], ready: set[str], taken: set[str], dead: set[str]) -> None:
        self.messages, self.ready, self.taken, self.dead = messages, ready, taken, dead

    @classmethod
    async def read(cls, store: Store) -> "Places":
        ids = [
            {str(row.parts[-1]) for row in await table.fetch_range(store, *ORDERS, limit=ROWS_MAX)}
            for table in (MESSAGES, READY, TAKEN, DEAD)
        ]
        return cls(*ids)

    def check(self) -> None:
        """Each message in exactly one place."""
        assert not self.ready & self.taken
        assert self.messages == self.ready | self.taken
        assert not self.messages & self.dead


async def check(job: Job, life: Life) -> None:
    async with open_disk(Path(job.folder), StoreOptions()) as store:
        places = await Places.read(store)
        places.check()
        queue = Queue(store, clock=FakeClock(wall_s=time.time()))
        async with queue.service.running():
            if not life.has("enqueued"):
                await drain(queue, job, count_max=1)
            elif not life.has("claimed"):
                await check_claim(queue, job, life)
            else:
                await check_end(queue, job, life, places)
        assert await store.range(*held_range(), limit=10) == []
        (await Places.read(store)).check()


async def drain(queue: Queue, job: Job | SentJob, *, count_max: int) -> list[int]:
    """Ack all there is, now or when its lease is over; returns how often each was delivered."""
    attempts: list[int] = []
    for _ in range(2):
        while True:
            try:
                delivery = await queue.dequeue()
            except NoMessages:
                break
            assert delivery.body.inline == job.payload
            attempts.append(delivery.message.attempts)
            await queue.ack(delivery)
        queue.clock.advance(VISIBILITY_S + 1)
        await queue.service.purge(ORDERS, None, ROWS_MAX)
    assert len(attempts) <= count_max
    return attempts


async def check_claim(queue: Queue, job: Job, life: Life) -> None:
    """It was not told of a lease: the message is free, or is so when the lease that was not told is over."""
    [attempts] = await drain(queue, job, count_max=1)
    assert attempts in (1, 2)


async def check_end(queue: Queue, job: Job, life: Life, places: Places) -> None:
    message_id = life.message_id
    is_taken = message_id in places.taken
    if job.operation == "ack":
        assert is_taken or message_id not in places.messages
        assert not (life.has("ended") and is_taken)
    else:
        aim = places.dead if job.operation == "dlq" else places.ready
        assert is_taken or message_id in aim
        assert message_id in aim or not life.has("ended")
    if is_taken:
        await queue.service.ack(life.claim)  # What was delivered is still its consumer's.
    else:
        with pytest.raises((MessageNotFound, MessageLeaseMismatch)):
            await queue.service.ack(life.claim)
    attempts = await drain(queue, job, count_max=1)
    assert attempts == ([2] if message_id in places.ready else [])


@pytest.mark.parametrize("kills", [KILLS_BRIEF, pytest.param(KILLS, marks=pytest.mark.long)])
@pytest.mark.parametrize("is_joined", [False, True], ids=["alone", "joined"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_each_message_is_in_one_place_and_what_was_told_holds_after_a_kill(
    tmp_path: Path, processes: ForkServerContext, operation: str, is_joined: bool, kills: int
) -> None:
    for number, step in enumerate(step for step in STEPS for _ in range(kills)):
        job = Job(
            folder=str(tmp_path / "store"),
            ledger=str(tmp_path / f"ledger-{number}"),
            payload=f"life-{number}".encode(),
            operation=operation,
            step=step,
            is_joined=is_joined,
        )
        await check(job, lived(processes, job))


async def check_sent(job: SentJob, life: Life) -> None:
    """Message and document come together or not at all, and what was told holds."""
    async with open_disk(Path(job.folder), StoreOptions()) as store:
        queue = Queue(store, clock=FakeClock(wall_s=time.time()))
        async with queue.service.running():
            ready = (await Places.read(store)).ready
            staged = {str(row.parts[-1]) for row in await SENT.fetch_range(store, limit=ROWS_MAX)}
            assert not ready or await is_published(queue)
            assert not (ready and staged)
            if life.has("enqueued"):
                assert bool(ready) is await is_published(queue)
                is_rolled_back = job.decision is Decision.ROLLBACK and not await held_members_of(queue, life)
                assert (staged | ready) == (set() if is_rolled_back else {life.message_id})
            # The client tries again, and is told what it was.
            await queue.leases.release(KEY, life.lease, job.decision)
            is_committed = job.decision is Decision.COMMIT
            assert await is_published(queue) is is_committed
            sent = await drain(queue, job, count_max=1)
            assert bool(sent) is (is_committed and bool(ready | staged))
        assert await SENT.fetch_range(store, limit=1) == []
        assert await MESSAGES.fetch_range(store, *ORDERS, limit=1) == []
        assert await store.range(*held_range(), limit=1) == []


async def is_published(queue: Queue) -> bool:
    content = (await queue.state.get_public(KEY)).content
    return content is not None and content.inline == DOCUMENT


async def held_members_of(queue: Queue, life: Life) -> list[Member]:
    return await queue.store.transact(lambda tx: held_members(tx, life.lease.txn_id or ""))


@pytest.mark.parametrize("kills", [KILLS_BRIEF, pytest.param(KILLS, marks=pytest.mark.long)])
@pytest.mark.parametrize("decision", list(Decision))
async def test_a_message_sent_inside_a_transaction_comes_with_its_commit_or_not_at_all_after_a_kill(
    tmp_path: Path, processes: ForkServerContext, decision: Decision, kills: int
) -> None:
    steps = [(step, True) for step in SENDING_STEPS] + [(step, False) for step in RELEASING_STEPS]
    for number, (step, is_of_enqueue) in enumerate(one for one in steps for _ in range(kills)):
        job = SentJob(
            folder=str(tmp_path / f"store-{number}"),
            ledger=str(tmp_path / f"ledger-{number}"),
            payload=b"follows",
            decision=decision,
            step=step,
            is_of_enqueue=is_of_enqueue,
        )
        life = lived(processes, job)
        assert life.has("enqueued") is not is_of_enqueue
        await check_sent(job, life)
