"""Compares two commits: `python -m tests.bench.against REV [--shape disk|postgres|split] [KIND …]`.

A plane of each runs all the time, each on a store of its own, and they take turns under the same load, the order
changing from round to round: what the machine does meanwhile meets both. The load comes from this tree. What the other commit
does not serve is told, and left out.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.cli.bench.measure import BenchError, drive
from tests.bench import c_load
from tests.bench.preparation import CLIENTS, prepare
from tests.bench.shapes import ROOT, SHAPES, Plane

KINDS: Final = c_load.KINDS
MORE_KINDS: Final = ("attachments", "queue-batch", "queue-subscribe")
"""Only the load in Python has them; measured if they are named."""
ROUNDS: Final = 16
SECONDS: Final = 1.5


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of each plane under the same load: server CPU per operation, and operations per second."""

    before_us: float
    after_us: float
    before_per_s: float
    after_per_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    kind: str
    rounds: Sequence[Round]

    def __str__(self) -> str:
        cpu = [each.after_us / each.before_us for each in self.rounds]
        rate = [each.after_per_s / each.before_per_s for each in self.rounds]
        before_us = statistics.median(each.before_us for each in self.rounds)
        after_us = statistics.median(each.after_us for each in self.rounds)
        return f"{self.kind:<16}{before_us:>10.1f}{after_us:>10.1f}{_spread(cpu):>26}{_spread(rate):>26}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="against")
    parser.add_argument("revision")
    parser.add_argument(
        "kinds",
        nargs="*",
        metavar="KIND",
        help=f"of {', '.join(KINDS)}, all of them if none is named; or of {', '.join(MORE_KINDS)}",
    )
    parser.add_argument("--shape", choices=tuple(SHAPES), default="disk")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each turn")
    parser.add_argument(
        "--new-connections", action="store_true", help="one for each operation; they are kept otherwise"
    )
    asked = parser.parse_intermixed_args(arguments)
    if unknown := set(asked.kinds) - {*KINDS, *MORE_KINDS}:
        known = ", ".join((*KINDS, *MORE_KINDS))
        parser.error(f"no such kind of load: {', '.join(sorted(unknown))}; there are {known}")
    connections = "a connection for each operation" if asked.new_connections else "kept connections"
    turns = f"{asked.rounds} rounds of {asked.seconds:g} s each in turns"
    _say(f"{asked.shape}: {CLIENTS} clients, {connections}, {turns}; the load is {c_load.name()}")
    titles = f"{asked.revision[:9]:>10}{'this tree':>10}{'CPU ratio (middle half)':>26}{'rate ratio (middle half)':>26}"
    _say(f"{'CPU µs per op':<16}{titles}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        roots = {"before": stack.enter_context(_checked_out(asked.revision, folder / "tree")), "after": ROOT}
        planes: dict[str, Plane] = {}
        for side, root in roots.items():
            (folder / side).mkdir()
            planes[side] = stack.enter_context(SHAPES[asked.shape](folder / side, root))
        for kind in asked.kinds or KINDS:
            try:
                for plane in planes.values():
                    prepare(plane, kind)
            except BenchError as error:
                _say(f"{kind:<16}not compared: {error}")
                continue
            drive_plane = partial(
                turn, kind=kind, seconds=asked.seconds, is_keep_alive=not asked.new_connections
            )
            _say(str(Comparison(kind, compare(drive_plane, planes["before"], planes["after"], asked.rounds))))


Turn = Callable[[Plane], tuple[float, float]]
"""Server CPU per operation, and operations per second."""


def compare(turn: Turn, before: Plane, after: Plane, rounds: int) -> list[Round]:
    found: list[Round] = []
    for number in range(rounds):
        if number % 2 == 0:
            (before_us, before_per_s), (after_us, after_per_s) = turn(before), turn(after)
        else:
            (after_us, after_per_s), (before_us, before_per_s) = turn(after), turn(before)
        found.append(Round(before_us, after_us, before_per_s, after_per_s))
    return found


def turn(plane: Plane, *, kind: str, seconds: float, is_keep_alive: bool) -> tuple[float, float]:
    run = drive(
        plane,
        kind,
        concurrency=CLIENTS,
        seconds=seconds,
        keys=CLIENTS,
        is_keep_alive=is_keep_alive,
        load=c_load.command,
    )
    assert run.cpu_us_per_operation is not None, "this kernel does not tell CPU times"
    return run.cpu_us_per_operation, run.load.operations / run.load.seconds


def _spread(ratios: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


@contextmanager
def _checked_out(revision: str, folder: Path) -> Iterator[Path]:
    git = ("git", "-C", str(ROOT), "worktree")
    added = subprocess.run([*git, "add", "--quiet", "--detach", str(folder), revision], check=False)
    if added.returncode != 0:
        raise SystemExit(f"{revision}: no such commit here; name one, as in make bench-against REV=HEAD~1")
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
