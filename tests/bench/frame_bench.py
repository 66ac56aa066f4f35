"""What a plane on disk costs beside its frame (`frame_server`), in turns under the same load.

The yardstick is the frame's lock cycle with a new connection for each operation: ratios are to its CPU, and its rate, in the
same round; the medians of all rounds are told. Each operation with connections that are kept, and with one new
connection for each; a public read with kept ones alone, as lockd's load tool reads.
"""

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.cli.bench.measure import Run, Server, drive, started, unconfigured
from tests.bench import c_load
from tests.bench.preparation import CLIENTS, prepare
from tests.bench.shapes import ROOT, on_disk

ROUNDS: Final = 5
SECONDS: Final = 1.0
NAMES: Final = {
    "lock": "a lock cycle",
    "fresh-lock": "a lock cycle on a new key",
    "transaction": "a transaction over two keys",
    "queue": "a message's life",
    "attachment": "a put of an attachment of 1 KB",
    "query": "a page of 50 keys",
    "read": "a public read",
}
CPU_TO_FRAME_MAX: Final = {
    "lock": 1.9,
    "fresh-lock": 1.9,
    "transaction": 2.4,
    "queue": 2.2,
    "attachment": 3.0,
    "read": 0.27,
}
SYNCS_PER_LOCK_MAX: Final = 0.6
COMMITS_PER_GROUP_MIN: Final = 6.0
FRESH: Final = {"fresh-lock": "lock"}
"""Each operation has a key of its own that was not used before: as lockd's load tool does it."""


@dataclass(frozen=True, slots=True)
class Form:
    """One operation, with connections that are kept or not."""

    kind: str
    is_keep_alive: bool


FORMS: Final = tuple(
    Form(kind, is_keep_alive)
    for is_keep_alive in (True, False)
    for kind in NAMES
    if is_keep_alive or kind != "read"
)
FRAME_FORMS: Final = (Form("lock", True), Form("read", True))
YARDSTICK: Final = Form("lock", False)


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
    is_frame: bool = False


def run(forms: Sequence[Form] = FORMS, *, rounds: int = ROUNDS) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="holdfast-frame-") as name, ExitStack() as stack:
        folder = Path(name)
        plane = stack.enter_context(on_disk(folder, ROOT))
        words = ("-m", "tests.bench.frame_server", name)
        environment = {**unconfigured(), "PYTHONPATH": str(ROOT)}
        frame = stack.enter_context(started(folder, words, environment=environment))
        for kind in {form.kind for form in forms}:
            prepare(plane, kind)
        asked = [(plane, form) for form in forms] + [(frame, form) for form in FRAME_FORMS]
        measured: list[list[tuple[Run, Run]]] = [[] for _ in asked]
        yardsticks: list[tuple[Run, Run]] = []
        for _ in range(rounds):
            yardstick = _turn(frame, YARDSTICK)
            yardsticks.append((yardstick, yardstick))
            for runs, (server, form) in zip(measured, asked, strict=True):
                runs.append((_turn(server, form), yardstick))
    rows = [
        _row(form, runs, is_frame=server is frame)
        for runs, (server, form) in zip(measured, asked, strict=True)
    ]
    return [*rows, _row(YARDSTICK, yardsticks, is_frame=True)]


def _turn(server: Server, form: Form) -> Run:
    return drive(
        server,
        FRESH.get(form.kind, form.kind),
        concurrency=CLIENTS,
        seconds=SECONDS,
        keys=CLIENTS,
        is_keep_alive=form.is_keep_alive,
        is_fresh_keys=form.kind in FRESH,
        load=c_load.command,
    )


def _row(form: Form, runs: Sequence[tuple[Run, Run]], *, is_frame: bool) -> Row:
    own = [run for run, _ in runs]
    commits = statistics.median(one.per_operation("holdfast_storage_commits_total") for one in own)
    syncs_of = "frame_syncs_total" if is_frame else "holdfast_storage_syncs_total"
    syncs = statistics.median(one.per_operation(syncs_of) for one in own)
    return Row(
        form.kind,
        form.is_keep_alive,
        statistics.median(map(_cpu_us, own)),
        statistics.median(_cpu_us(run) / _cpu_us(yardstick) for run, yardstick in runs),
        statistics.median(map(_rate, own)),
        statistics.median(_rate(run) / _rate(yardstick) for run, yardstick in runs),
        syncs,
        commits / syncs if syncs else 0.0,
        is_frame,
    )


def _cpu_us(one: Run) -> float:
    assert one.cpu_us_per_operation is not None, "this kernel does not tell CPU times"
    return one.cpu_us_per_operation


def _rate(one: Run) -> float:
    return one.load.operations / one.load.seconds
