"""kill -9 at every named step of acquire, update and release: what was promised holds after the restart."""

import json
import random
from collections import defaultdict
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.system.leases import crasher as lease_crasher
from tests.system.leases.crasher import OPERATIONS, STEPS, TTL_S, Death, Job
from tests.system.leases.fast_time import ShiftedClock
from tests.system.leases.wire import Held, WireClient, plane

SINGLE, JOINED = ("single",), ("left", "middle", "right")
KILLS = 20
KILLS_BRIEF = 1
SEED = 20260702


class Life:
    """What a dead process had asked and been told, by its ledger."""

    def __init__(self, lines: list[str]) -> None:
        self.events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self.leases = [Held(*event["lease"]) for event in self._of("acquired")]
        self.updating = {event["key"] for event in self._of("updating")}
        self.updated = {event["key"] for event in self._of("updated")}
        self.is_releasing = bool(self._of("releasing"))
        self.is_released = bool(self._of("released"))
        self.other_clients = {event["key"]: event for event in self._of("other_client")}

    def _of(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]


class Survey:
    """Looks at the store after each death, and remembers what must not be lost."""

    def __init__(self, folder: Path, clock: ShiftedClock) -> None:
        self._folder = folder
        self._clock = clock
        self._documents: dict[str, object] = {}
        self._tokens: dict[str, int] = defaultdict(int)

    async def check(self, job: Job, life: Life) -> None:
        self._clock.lead_s = 0
        async with plane(f"disk://{self._folder}") as port:
            wire = await WireClient.connect(port)
            is_published = await self._check_documents(wire, job, life)
            if is_published:
                self._documents.update(dict.fromkeys(job.keys, job.document))
            else:
                await self._check_leases(wire, job, life)
            await self._check_other_clients(wire, life)
            for held in life.leases:
                self._tokens[held.key] = max(self._tokens[held.key], held.token)
            if not is_published:
                self._clock.lead_s += TTL_S + 1
            await self._check_tokens(wire, job)
            wire.close()

    async def _check_documents(self, wire: WireClient, job: Job, life: Life) -> bool:
        """Whether the release took effect: promised if it was answered, else all or nothing."""
        found = [await wire.read(key) for key in job.keys]
        new = [job.document for _ in job.keys]
        old = [self._documents.get(key) for key in job.keys]
        allowed = [new] if life.is_released else [old, new] if life.is_releasing else [old]
        assert found in allowed
        return found == new

    async def _check_leases(self, wire: WireClient, job: Job, life: Life) -> None:
        """What was granted and not released is held until its time is over, with what was staged under it."""
        for held in life.leases:
            assert await wire.acquire(held.key, "other", ttl_s=TTL_S) is None
            old = self._documents.get(held.key)
            allowed = [job.document] if held.key in life.updated else [old]
            if held.key in life.updating:
                allowed.append(job.document)
            assert await wire.read_leased(held) in allowed

    async def _check_other_clients(self, wire: WireClient, life: Life) -> None:
        for key, event in life.other_clients.items():
            assert await wire.read(key) in (event["count"], event["count"] + 1)

    async def _check_tokens(self, wire: WireClient, job: Job) -> None:
        """The next holder's is higher than any that was told, and nothing that was staged has survived."""
        for key in job.keys:
            fresh = await wire.acquire(key, "next", ttl_s=TTL_S)
            assert fresh is not None
            assert fresh.token > self._tokens[key]
            self._tokens[key] = fresh.token
            assert await wire.read_leased(fresh) == await wire.read(key) == self._documents.get(key)
            assert (await wire.release(fresh, rollback=True)).status == 200


@pytest.mark.parametrize("kills", [KILLS_BRIEF, pytest.param(KILLS, marks=pytest.mark.long)])
@pytest.mark.parametrize("keys", [SINGLE, JOINED], ids=["single", "joined"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_promises_hold_after_a_kill_at_each_step(
    tmp_path: Path,
    processes: ForkServerContext,
    clock: ShiftedClock,
    keys: tuple[str, ...],
    operation: str,
    kills: int,
) -> None:
    rng = random.Random(f"{SEED} {operation} {keys}")
    survey = Survey(tmp_path / "store", clock)

    for number, step in enumerate(step for step in STEPS for _ in range(kills)):
        job = Job(
            folder=str(tmp_path / "store"),
            ledger=str(tmp_path / f"ledger-{number}"),
            keys=keys,
            document=f"life-{number}",
            has_other_clients=number % 2 == 1,
            death=Death(operation, step, rng.randrange(len(keys))),
        )
        await survey.check(job, lived(processes, job))


@pytest.mark.parametrize(
    ("mutant", "operation"),
    [
        *(("answered_before_durable", operation) for operation in OPERATIONS),
        ("one_key_published", "release"),
    ],
)
async def test_a_mutant_is_caught(
    tmp_path: Path,
    processes: ForkServerContext,
    clock: ShiftedClock,
    mutant: Literal["answered_before_durable", "one_key_published"],
    operation: str,
) -> None:
    job = Job(
        folder=str(tmp_path / "store"),
        ledger=str(tmp_path / "ledger"),
        keys=JOINED,
        document="life",
        has_other_clients=False,
        death=Death(operation, "told", 1),
        mutant=mutant,
    )

    life = lived(processes, job)

    with pytest.raises(AssertionError):
        await Survey(tmp_path / "store", clock).check(job, life)


def lived(processes: ForkServerContext, job: Job) -> Life:
    process = processes.Process(target=lease_crasher.run, args=(job,))
    process.start()
    process.join(60)
    assert process.exitcode == -9, job
    ledger = Path(job.ledger)
    return Life(ledger.read_text().splitlines() if ledger.exists() else [])
