"""kill -9 while an attachment comes in, is staged or published: nothing is half there, and nothing is left behind."""

import json
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from holdfast.state.layer.attachment.records import (
    ATTACHMENTS,
    STAGED_ATTACHMENTS,
    blobs_of,
    small_content_id,
)
from holdfast.state.layer.records import STAGE_COSTS, STAGES
from holdfast.storage.keys import prefix_range, unpack
from holdfast.storage.opening import open_store
from tests.system.leases.fast_time import ShiftedClock
from tests.system.leases.wire import Held, WireClient, plane
from tests.system.state import attachment_crasher
from tests.system.state.attachment_crasher import NAME, SIZES_BYTES, STEPS, TTL_S, Job

KILLS = 20
KILLS_BRIEF = 1
ROWS_MAX = 1000


class Life:
    """What a dead process had asked and been told, by its ledger."""

    def __init__(self, lines: list[str]) -> None:
        events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self._names = {event["event"] for event in events}
        self.held = Held(*events[0]["lease"])

    def has(self, event: str) -> bool:
        return event in self._names


def lived(processes: ForkServerContext, job: Job) -> Life:
    process = processes.Process(target=attachment_crasher.run, args=(job,))
    process.start()
    process.join(60)
    assert process.exitcode == -9, job
    return Life(Path(job.ledger).read_text().splitlines())


async def content_of(wire: WireClient, key: str, held: Held | None = None) -> bytes | None:
    """The content as everybody sees it, or as the holder does; listed and readable must be the same."""
    headers = {} if held is None else held.headers
    public = "&public=1" if held is None else ""
    listed = (await wire.call("GET", f"/v1/attachments?key={key}{public}", headers)).members()
    answer = await wire.call("GET", f"/v1/attachment?key={key}&name={NAME}{public}", headers)
    names = [item["name"] for item in listed["attachments"] or ()]
    assert names == ([NAME] if answer.status == 200 else []), answer.status
    return answer.body if answer.status == 200 else None


class Survey:
    """Looks at the store after each death."""

    def __init__(self, folder: Path, clock: ShiftedClock) -> None:
        self._folder = folder
        self._clock = clock
        self._published: bytes | None = None
        self.swept = 0

    async def check(self, job: Job, life: Life) -> None:
        self._clock.lead_s = 0
        async with plane(f"disk://{self._folder}") as port:
            wire = await WireClient.connect(port)
            found = await content_of(wire, job.key)
            old_or_new = [self._published, job.content] if life.has("releasing") else [self._published]
            assert found in ([job.content] if life.has("released") else old_or_new)
            if found != job.content:
                await self._check_staged(wire, job, life)
                self._clock.lead_s += TTL_S + 1
            self._published = found
            await self._check_next_holder(wire, job.key)
            wire.close()
        await self._check_left_overs(job.key)

    async def _check_staged(self, wire: WireClient, job: Job, life: Life) -> None:
        """The holder sees what was staged if it was told so; else all of it or nothing of it."""
        seen = await content_of(wire, job.key, life.held)
        allowed = [job.content] if life.has("put") else [job.content, self._published]
        assert seen in allowed

    async def _check_next_holder(self, wire: WireClient, key: str) -> None:
        held = await wire.acquire(key, "next", ttl_s=TTL_S)
        assert held is not None
        assert await content_of(wire, key, held) == self._published
        assert (await wire.release(held, rollback=True)).status == 200

    async def _check_left_overs(self, key: str) -> None:
        """No staged record, no small content without its attachment, and after a sweep no blob without one."""
        async with open_store(f"disk://{self._folder}") as store:
            for table in (STAGES, STAGED_ATTACHMENTS, STAGE_COSTS):
                assert await store.range(*table.bounds(), limit=ROWS_MAX) == []
            rows = await ATTACHMENTS.fetch_range(store, "default", key, limit=ROWS_MAX)
            contents = await store.range(*prefix_range(("attdata",)), limit=ROWS_MAX)
            self.swept += await store.blobs.sweep(grace_s=0)
            blobs = {info.id async for info in store.blobs.list()}
        small = {small_content_id(row.message) for row in rows} - {""}
        assert {unpack(record.key)[-1] for record in contents} == small
        assert blobs == {blob for row in rows for blob in blobs_of(row.message)}
        assert list((self._folder / "blobs" / "incoming").iterdir()) == []


@pytest.mark.parametrize("kills", [KILLS_BRIEF, pytest.param(KILLS, marks=pytest.mark.long)])
@pytest.mark.parametrize("size", SIZES_BYTES)
@pytest.mark.parametrize("operation", STEPS)
async def test_an_attachment_is_there_whole_or_not_at_all_after_a_kill(
    tmp_path: Path,
    processes: ForkServerContext,
    clock: ShiftedClock,
    operation: str,
    size: str,
    kills: int,
) -> None:
    survey = Survey(tmp_path / "store", clock)

    for number, step in enumerate(step for step in STEPS[operation] for _ in range(kills)):
        job = Job(
            folder=str(tmp_path / "store"),
            ledger=str(tmp_path / f"ledger-{number}"),
            key="album",
            seed=number,
            size=size,
            operation=operation,
            step=step,
        )
        await survey.check(job, lived(processes, job))

    assert (survey.swept > 0) == (size == "large"), (
        "a large one that was not committed leaves its blob to the sweep"
    )
