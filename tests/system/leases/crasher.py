"""A plane and its client in one process that dies at a chosen step; what was asked and told outlives it in a ledger."""

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from holdfast.common import failpoint
from holdfast.storage.port import Transaction
from holdfast.txn import layers as txn_layers
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.port import Decision, Member
from tests.system.leases.wire import Held, WireClient, plane

TTL_S: Final = 30
OPERATIONS: Final = ("acquire", "update", "release")
STEPS: Final = ("journal.write", "journal.sync", "journal.synced", "answer", "told")
# The journal's thread sleeps before it writes: a commit that does not wait for it promises what is not there.
ANSWERED_BEFORE_DURABLE: Final = "commit.answer_before_durable:skip,journal.write:sleep(60000)"


class Death(NamedTuple):
    """When the process is to die: at this step of this operation, on the key of this number."""

    operation: str
    step: str
    number: int

    @property
    def failpoint(self) -> str:
        return f"{self.operation}.{self.step}" if self.step in ("answer", "told") else self.step


class Job(NamedTuple):
    """One life of the process."""

    folder: str
    ledger: str
    keys: Sequence[str]
    document: str
    has_other_clients: bool
    death: Death
    mutant: Literal["", "answered_before_durable", "one_key_published"] = ""
    """A fault that the checks must find."""


class Ledger:
    """WaitQueues that the kernel has once they are written, whatever becomes of the process."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, event: str, **members: Any) -> None:
        os.write(self._descriptor, json.dumps({"event": event, **members}).encode() + b"\n")

    def write_told(self, operation: str, event: str, **members: Any) -> None:
        """The client has its answer: from now on it counts on it."""
        self.write(event, **members)
        failpoint.hit(f"{operation}.told")


def run(job: Job) -> None:
    asyncio.run(_live(job))


class ForgetfulCoordinator(Coordinator):
    """A mutant: of a transaction it decides one key only."""

    def decide(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int
    ) -> None:
        super().decide(tx, txn_id, decision, members[:1], now_ms)


async def _live(job: Job) -> None:
    if job.mutant == "one_key_published":
        txn_layers.__dict__["Coordinator"] = ForgetfulCoordinator  # The process ends with it.
    ledger = Ledger(job.ledger)
    async with plane(f"disk://{job.folder}") as port:
        other_clients = [
            asyncio.create_task(_other_client(port, ledger, f"{job.document}-{number}"))
            for number in range(3 if job.has_other_clients else 0)
        ]
        try:
            await _cycle(await WireClient.connect(port), ledger, job)
        finally:
            for other_client in other_clients:
                other_client.cancel()


async def _cycle(wire: WireClient, ledger: Ledger, job: Job) -> None:
    leases: list[Held] = []
    for number, key in enumerate(job.keys):
        _arm(job, "acquire", number)
        held = await wire.acquire(key, "mortal", ttl_s=TTL_S, txn_id=leases[0].txn_id if leases else "")
        assert held is not None
        leases.append(held)
        ledger.write_told("acquire", "acquired", lease=held)
    for number, held in enumerate(leases):
        _arm(job, "update", number)
        ledger.write("updating", key=held.key)
        assert (await wire.update(held, job.document)).status == 200
        ledger.write_told("update", "updated", key=held.key)
    _arm(job, "release", job.death.number)
    ledger.write("releasing")
    assert (await wire.release(leases[job.death.number])).status == 200
    ledger.write_told("release", "released")


def _arm(job: Job, operation: str, number: int) -> None:
    if (operation, number) == (job.death.operation, job.death.number):
        failpoint.arm(f"{job.death.failpoint}:crash")
        if job.mutant == "answered_before_durable":
            failpoint.arm(ANSWERED_BEFORE_DURABLE)


async def _other_client(port: int, ledger: Ledger, key: str) -> None:
    """Another client at work, so that the dying step may be shared with others or be theirs."""
    wire = await WireClient.connect(port)
    count = 0
    while True:
        held = await wire.acquire(key, "other_client", ttl_s=TTL_S)
        assert held is not None
        await wire.update(held, count)
        await wire.release(held)
        ledger.write("other_client", key=key, count=count, token=held.token)
        count += 1
