"""kill -9 while an index is cleared and built: answers stay right, and the next process goes on where the last one was."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from holdfast.state.layer.query.engine import Engine
from holdfast.state.layer.records_pb2 import IndexState
from holdfast.storage.opening import open_store
from tests.service.state.indexed_plane import NAMESPACE, IndexedPlane
from tests.unit.test_tree import ROOT

DOCUMENTS = 200
SELECTORS = (
    {"eq": {"field": "/n", "value": 7}},
    {"eq": {"field": "/parity", "value": "odd"}},
    {"range": {"field": "/n", "gte": 190}},
    {"prefix": {"field": "/name", "value": "name-1"}},
)
TIMEOUT_S = 60


def work(folder: Path, failpoint: str) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.state.index_crasher", str(folder)],
        cwd=ROOT,
        env={**os.environ, "HOLDFAST_FAILPOINT": failpoint},
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode


async def check(plane: IndexedPlane) -> None:
    for selector in SELECTORS:
        assert await plane.keys(selector, limit=50) == await plane.keys(selector, engine=Engine.SCAN)


async def publish(plane: IndexedPlane, number: int) -> None:
    parity = "odd" if number % 2 else "even"
    await plane.publish(f"k{number:03}", {"n": number, "parity": parity, "name": f"name-{number}"})


async def test_a_rebuild_that_is_killed_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with open_store(f"disk://{folder}") as store:
        plane = IndexedPlane(store)
        await plane.turn_on()
        for number in range(DOCUMENTS):
            await publish(plane, number)
        # Off and on again: what is there is cleared first, then everything is built.
        await plane.configure("scan")
        await plane.configure("index")
    seen: list[tuple[int, int]] = []

    while work(folder, "index.step:2*crash") == -signal.SIGKILL:
        async with open_store(f"disk://{folder}") as store:
            plane = IndexedPlane(store)
            await check(plane)
            states = plane.state.index.states
            phase = (await store.view(partial(states.get, namespace=NAMESPACE))).phase
            progress = await store.view(partial(states.progress, namespace=NAMESPACE))
            seen.append((phase, progress.document_count))
            await publish(plane, len(seen) * 7 % DOCUMENTS)
            await publish(plane, DOCUMENTS + len(seen))
        assert len(seen) < DOCUMENTS

    async with open_store(f"disk://{folder}") as store:
        plane = IndexedPlane(store)
        state = await store.view(partial(plane.state.index.states.get, namespace=NAMESPACE))
        await check(plane)
    assert state.phase == IndexState.READY
    assert {IndexState.CLEARING, IndexState.BUILDING} <= {phase for phase, _ in seen}
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
