"""What a plane on disk costs beside its frame (`frame_server`), in turns under the same load.

Each operation with connections that are kept, and with one new connection for each. Ratios are to the CPU of the frame's lock
cycle in the same round; the medians of all rounds are told.
"""

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.cli.bench.measure import Run, Server, drive, started, unconfigured
from tests.bench.shapes import ROOT, on_disk

ROUNDS: Final = 7
SECONDS: Final = 1.5
CLIENTS: Final = 16
NAMES: Final = {
    "lock": "a lock cycle",
    "transaction": "a transaction over two keys",
    "queue": "a message's life",
    "read": "a public read",
}
CPU_TO_FRAME_MAX: Final = {"lock": 1.9, "transaction": 2.4, "queue": 2.2, "read": 0.27}
SYNCS_PER_LOCK_MAX: Final = 0.6


@dataclass(frozen=True, slots=True)
class Row:
    """One operation in one form."""

    kind: str
    is_keep_alive: bool
    cpu_us: float
    cpu_to_frame: float
    rate: float
    rate_to_frame: float
    """To the rate of the frame's lock cycle."""
    syncs: float
    """Per operation."""
    group: float
    """Commits that share a sync."""


def run(kinds: Sequence[str] = tuple(CPU_TO_FRAME_MAX), *, rounds: int = ROUNDS) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="holdfast-frame-") as name, ExitStack() as stack:
        folder = Path(name)
        plane = stack.enter_context(on_disk(folder, ROOT))
        words = ("-m", "tests.bench.frame_server", name)
        environment = {**unconfigured(), "PYTHONPATH": str(ROOT)}
        frame = stack.enter_context(started(folder, words, environment=environment))
        rows: list[Row] = []
        for is_keep_alive in (True, False):
            measured: dict[str, list[tuple[Run, Run]]] = {kind: [] for kind in kinds}
            for _ in range(rounds):
                yardstick = _turn(frame, "lock", is_keep_alive)
                for kind in kinds:
                    measured[kind].append((_turn(plane, kind, is_keep_alive), yardstick))
            rows += [_row(kind, is_keep_alive, runs) for kind, runs in measured.items()]
        return rows


def _turn(server: Server, kind: str, is_keep_alive: bool) -> Run:
    return drive(
        server, kind, concurrency=CLIENTS, seconds=SECONDS, keys=CLIENTS, is_keep_alive=is_keep_alive
    )


def _row(kind: str, is_keep_alive: bool, runs: Sequence[tuple[Run, Run]]) -> Row:
    planes = [plane for plane, _ in runs]
    commits = statistics.median(one.per_operation("holdfast_storage_commits_total") for one in planes)
    syncs = statistics.median(one.per_operation("holdfast_storage_syncs_total") for one in planes)
    return Row(
        kind,
        is_keep_alive,
        statistics.median(map(_cpu_us, planes)),
        statistics.median(_cpu_us(plane) / _cpu_us(frame) for plane, frame in runs),
        statistics.median(map(_rate, planes)),
        statistics.median(_rate(plane) / _rate(frame) for plane, frame in runs),
        syncs,
        commits / syncs if syncs else 0.0,
    )


def _cpu_us(one: Run) -> float:
    assert one.cpu_us_per_operation is not None, "this kernel does not tell CPU times"
    return one.cpu_us_per_operation


def _rate(one: Run) -> float:
    return one.load.operations / one.load.seconds
