"""Compares two commits: `python -m tests.bench.against REV [KIND …]` drives a plane of each in turns, on one machine.

Both planes run all the time, each on a store of its own, and take turns under the same load, the order changing from
round to round: what the machine does meanwhile meets both. The load comes from this tree.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.cli.bench_measure import SERVE, Server, drive, started

ROOT: Final = Path(__file__).parents[2]
KINDS: Final = ("lock", "read", "queue", "queue-batch", "queue-subscribe")
ROUNDS: Final = 16
SECONDS: Final = 1.5
CLIENTS: Final = 16


@dataclass(frozen=True, slots=True)
class Comparison:
    """Server CPU per operation of one load, a figure per round."""

    kind: str
    before_us: Sequence[float]
    after_us: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        return sorted(after / before for before, after in zip(self.before_us, self.after_us, strict=True))

    def __str__(self) -> str:
        ratios = self.ratios
        low, _, high = statistics.quantiles(ratios, n=4)
        return (
            f"{self.kind:<18}{statistics.median(self.before_us):>10.1f}{statistics.median(self.after_us):>10.1f}"
            f"{statistics.median(ratios):>10.3f}{f'{low:.3f} to {high:.3f}':>20}"
        )


def main(revision: str, kinds: Sequence[str]) -> None:
    _say(f"server CPU µs per operation, {CLIENTS} clients, {ROUNDS} rounds of {SECONDS:g} s each in turns")
    _say(f"{'':<18}{revision[:9]:>10}{'this tree':>10}{'ratio':>10}{'middle half':>20}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        before_root = stack.enter_context(_checked_out(revision, folder / "tree"))
        before = stack.enter_context(_plane(folder / "before", before_root))
        after = stack.enter_context(_plane(folder / "after", ROOT))
        for kind in kinds:
            _say(str(compare(kind, before, after)))


def compare(kind: str, before: Server, after: Server) -> Comparison:
    found: dict[Server, list[float]] = {before: [], after: []}
    for number in range(ROUNDS):
        for server in (before, after) if number % 2 == 0 else (after, before):
            run = drive(server, kind, concurrency=CLIENTS, seconds=SECONDS, keys=CLIENTS)
            assert run.cpu_us_per_operation is not None, "this kernel does not tell CPU times"
            found[server].append(run.cpu_us_per_operation)
    return Comparison(kind, found[before], found[after])


@contextmanager
def _checked_out(revision: str, folder: Path) -> Iterator[Path]:
    git = ("git", "-C", str(ROOT), "worktree")
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), revision], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


@contextmanager
def _plane(folder: Path, root: Path) -> Iterator[Server]:
    folder.mkdir()
    words = (*SERVE, "--store", f"disk://{folder}/store", "--qrf-disabled")
    with started(folder, words, environment=_environment(root)) as server:
        yield server


def _environment(root: Path) -> Mapping[str, str]:
    """Imports come from that tree: these folders stand before the ones that are installed."""
    sources = sorted(str(path) for path in root.glob("*/*/src"))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or KINDS)
