"""What a lock cycle and a public read cost by how many keys there are, and the memory that the keys take.

A plane for each size, all of them running, take turns; operations go over the whole range of their store. The documents
were written without an index of their contents, as `holdfast bench` fills a store.
"""

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from holdfast.cli.bench.measure import drive, fill
from tests.bench import c_load
from tests.bench.shapes import ROOT, Plane, on_disk

SIZES: Final = (10, 10_000, 100_000, 1_000_000)
CLIENTS: Final = SIZES[0]  # No more than there are keys, so that no client waits for a lease.
KINDS: Final = ("lock", "read")
ROUNDS: Final = 5
SECONDS: Final = 1.0
TO_FEWEST_MAX: Final = 1.3


@dataclass(frozen=True, slots=True)
class Row:
    """A store of so many keys; server CPU per operation, medians of all rounds."""

    keys: int
    lock_us: float
    lock_to_fewest: float
    read_us: float
    read_to_fewest: float
    rss_start_mb: float
    rss_mb: float
    """After all rounds."""


def run(sizes: Sequence[int] = SIZES, *, rounds: int = ROUNDS) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name, ExitStack() as stack:
        planes: list[Plane] = []
        for keys in sizes:
            folder = Path(name) / str(keys)
            fill(folder / "store", keys)
            planes.append(stack.enter_context(on_disk(folder, ROOT)))
        rss_start_mb = [_rss_mb(plane) for plane in planes]
        found = {kind: _measure(planes, sizes, kind, rounds) for kind in KINDS}
        return [
            Row(keys, *_cpu(found["lock"], at), *_cpu(found["read"], at), rss_start_mb[at], _rss_mb(plane))
            for at, (keys, plane) in enumerate(zip(sizes, planes, strict=True))
        ]


def _measure(planes: Sequence[Plane], sizes: Sequence[int], kind: str, rounds: int) -> list[list[float]]:
    """CPU µs per operation, by round and by plane."""
    return [
        [_cpu_us(plane, keys, kind) for plane, keys in zip(planes, sizes, strict=True)] for _ in range(rounds)
    ]


def _cpu_us(plane: Plane, keys: int, kind: str) -> float:
    run = drive(plane, kind, concurrency=CLIENTS, seconds=SECONDS, keys=keys, load=c_load.command)
    assert run.cpu_us_per_operation is not None, "this kernel does not tell CPU times"
    return run.cpu_us_per_operation


def _cpu(rounds: Sequence[Sequence[float]], at: int) -> tuple[float, float]:
    """The median, and the median ratio to the store with the fewest keys in the same round."""
    return statistics.median(each[at] for each in rounds), statistics.median(
        each[at] / each[0] for each in rounds
    )


def _rss_mb(plane: Plane) -> float:
    return float(psutil.Process(plane.pid).memory_info().rss) / 1e6
