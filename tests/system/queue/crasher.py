"""A queue and its client in one process that dies at a chosen step; what was told outlives it in a ledger."""

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.common import failpoint
from holdfast.common.ids import new_xid
from holdfast.leases.layer.grant import AcquireParams, Claim
from holdfast.state.layer.document.staging import Expectation
from holdfast.storage.disk.store import open_disk
from holdfast.storage.options import StoreOptions
from holdfast.txn.layer.port import Decision, Member
from tests.service.queue.words import Queue
from tests.system.leases.crasher import Ledger

VISIBILITY_S: Final = 30
OPERATIONS: Final = ("enqueue", "claim", "ack", "nack", "dlq")
JOURNAL_STEPS: Final = ("journal.write", "journal.sync", "journal.synced")
SENDING_STEPS: Final = ("queue.enqueue.commit", *JOURNAL_STEPS, "queue.enqueue.answer")
RELEASING_STEPS: Final = ("release.commit", *JOURNAL_STEPS, "release.answer")
KEY: Final = Member("default", "account")
DOCUMENT: Final = b'{"n":1}'
STEPS: Final = ("commit", "journal.write", "journal.sync", "journal.synced", "answer")


class Job(NamedTuple):
    """One life of the process: it dies at this step of this operation."""

    folder: str
    ledger: str
    payload: bytes
    operation: str
    step: str
    is_joined: bool  # The delivery belongs to a transaction.

    @property
    def failpoint(self) -> str:
        return self.step if self.step.startswith("journal") else f"queue.{self.operation}.{self.step}"


def run(job: Job) -> None:
    asyncio.run(_live(job))


async def _live(job: Job) -> None:
    ledger = Ledger(job.ledger)
    async with open_disk(Path(job.folder), StoreOptions()) as store:
        queue = Queue(store, has_own_clock=False)
        async with queue.service.running():
            await _cycle(queue, ledger, job)


async def _cycle(queue: Queue, ledger: Ledger, job: Job) -> None:
    _arm(job, "enqueue")
    ledger.write("enqueuing")
    message = await queue.enqueue(job.payload, max_attempts=1 if job.operation == "dlq" else 5)
    ledger.write("enqueued", id=message.message_id)
    _arm(job, "claim")
    txn_id = new_xid() if job.is_joined else ""
    delivery = await queue.dequeue(visibility_s=VISIBILITY_S, txn_id=txn_id)
    ledger.write("claimed", lease_id=delivery.lease_id, token=delivery.fencing_token)
    _arm(job, job.operation)
    ledger.write("ending")
    if job.operation == "ack":
        await queue.ack(delivery)
    else:
        await queue.nack(delivery)
    ledger.write("ended")


def _arm(job: Job, operation: str) -> None:
    if job.operation == operation:
        failpoint.arm(f"{job.failpoint}:crash")


class SentJob(NamedTuple):
    """One life of a process that sends a message inside a transaction: it dies at this step of enqueue or of its end."""

    folder: str
    ledger: str
    payload: bytes
    decision: Decision
    step: str
    is_of_enqueue: bool


def send(job: SentJob) -> None:
    asyncio.run(_sending(job))


async def _sending(job: SentJob) -> None:
    ledger = Ledger(job.ledger)
    async with open_disk(Path(job.folder), StoreOptions()) as store:
        queue = Queue(store, has_own_clock=False)
        async with queue.service.running():
            grant = await queue.leases.acquire(AcquireParams(KEY, "worker", VISIBILITY_S, 0.0, ""))
            claim = Claim(grant.lease_id, grant.fencing_token, grant.txn_id)
            content = await queue.state.content_of(KEY, DOCUMENT)
            await queue.state.update(KEY, claim, content, Expectation())
            ledger.write("acquired", claim=claim)
            if job.is_of_enqueue:
                failpoint.arm(f"{job.step}:crash")
            message = await queue.enqueue(job.payload, txn_id=grant.txn_id)
            ledger.write("enqueued", id=message.message_id)
            failpoint.arm(f"{job.step}:crash")
            await queue.leases.release(KEY, claim, job.decision)
