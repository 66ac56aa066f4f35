"""What encryption costs a lock cycle: a plane on an encrypted store and one on a plain store, in turns under one load."""

import statistics
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.against import Turn, compare, turn
from tests.bench.shapes import ROOT, Plane, on_disk, on_encrypted_disk

ROUNDS: Final = 9
SECONDS: Final = 1.0
ENCRYPTED_TO_PLAIN_MAX: Final = 1.5


@dataclass(frozen=True, slots=True)
class Row:
    """A lock cycle in one form; server CPU per operation, medians of all rounds."""

    is_keep_alive: bool
    plain_us: float
    encrypted_us: float
    encrypted_to_plain: float
    rate_to_plain: float


def run(*, rounds: int = ROUNDS) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name, ExitStack() as stack:
        plain = stack.enter_context(_plane(Path(name) / "plain", on_disk))
        encrypted = stack.enter_context(_plane(Path(name) / "encrypted", on_encrypted_disk))
        return [_row(plain, encrypted, is_keep_alive, rounds) for is_keep_alive in (True, False)]


def _plane(
    folder: Path, shape: Callable[[Path, Path], AbstractContextManager[Plane]]
) -> AbstractContextManager[Plane]:
    folder.mkdir()
    return shape(folder, ROOT)


def _row(plain: Plane, encrypted: Plane, is_keep_alive: bool, rounds: int) -> Row:
    lock: Turn = partial(turn, kind="lock", seconds=SECONDS, is_keep_alive=is_keep_alive)
    found = compare(lock, plain, encrypted, rounds)
    return Row(
        is_keep_alive,
        statistics.median(each.before_us for each in found),
        statistics.median(each.after_us for each in found),
        statistics.median(each.after_us / each.before_us for each in found),
        statistics.median(each.after_per_s / each.before_per_s for each in found),
    )
