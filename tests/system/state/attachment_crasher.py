"""A plane and its client in one process that dies while an attachment is uploaded or published."""

import asyncio
import random
from typing import Final, NamedTuple

from holdfast.common import failpoint
from holdfast.state.layer.attachment import service as attachments
from holdfast.storage.intake import INLINE_BYTES_MAX, Intake
from tests.system.leases.crasher import Ledger
from tests.system.leases.wire import WireClient, plane

TTL_S: Final = 30
NAME: Final = "photo"
SIZES_BYTES: Final = {"small": INLINE_BYTES_MAX // 4, "large": INLINE_BYTES_MAX * 40}
JOURNAL_STEPS: Final = ("journal.write", "journal.sync", "journal.synced")
STEPS: Final = {
    "put": ("upload.piece", "attach.stage", *JOURNAL_STEPS, "put.told"),
    "release": (*JOURNAL_STEPS, "release.answer", "release.told"),
}


class Job(NamedTuple):
    """One life of the process: it dies at this step of this operation."""

    folder: str
    ledger: str
    key: str
    seed: int
    size: str
    operation: str
    step: str

    @property
    def content(self) -> bytes:
        return random.Random(self.seed).randbytes(SIZES_BYTES[self.size])


class MortalIntake(Intake):
    """Content on its way in, with a place to die in the middle of it: some of a large one lies in a blob by then."""

    async def write(self, chunk: bytes) -> None:
        await super().write(chunk)
        if self.size_bytes > INLINE_BYTES_MAX or len(chunk) == SIZES_BYTES["small"]:
            failpoint.hit("upload.piece")


def run(job: Job) -> None:
    asyncio.run(_live(job))


async def _live(job: Job) -> None:
    ledger = Ledger(job.ledger)
    async with plane(f"disk://{job.folder}") as port:
        wire = await WireClient.connect(port)
        held = await wire.acquire(job.key, "mortal", ttl_s=TTL_S)
        assert held is not None
        ledger.write("acquired", lease=held)
        _arm(job, "put")
        ledger.write("putting")
        target = f"/v1/attachments?key={job.key}&name={NAME}"
        assert (await wire.call("POST", target, held.headers, job.content)).status == 200
        ledger.write_told("put", "put")
        _arm(job, "release")
        ledger.write("releasing")
        assert (await wire.release(held)).status == 200
        ledger.write_told("release", "released")


def _arm(job: Job, operation: str) -> None:
    if operation != job.operation:
        return
    if job.step == "upload.piece":
        attachments.__dict__["Intake"] = MortalIntake  # The process ends with it.
    failpoint.arm(f"{job.step}:crash")
