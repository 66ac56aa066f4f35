"""Progress of long commands on stderr: a bar on a terminal, elsewhere a line every few seconds."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from holdfast.cli.streams import is_terminal
from holdfast.common.clock import Clock, SystemClock
from holdfast.common.sizes import format_size

if TYPE_CHECKING:
    from holdfast.storage.maintenance.progress import Advance

LINE_EVERY_S = 5.0


@contextmanager
def progress(doing: str, records_total: int | None = None) -> Iterator["Advance"]:
    """A function to call with records and bytes as they are done."""
    if is_terminal(sys.stderr):
        with _bar(doing, records_total) as advance:
            yield advance
    else:
        yield ProgressLines(doing, records_total, SystemClock())


class ProgressLines:
    """A line now and then, for logs and pipes."""

    def __init__(self, doing: str, records_total: int | None, clock: Clock) -> None:
        self._doing = doing
        self._clock = clock
        self._of_total = "" if records_total is None else f" of {records_total}"
        self._records = self._size_bytes = 0
        self._next_s = clock.monotonic_s() + LINE_EVERY_S

    def __call__(self, records: int, size_bytes: int) -> None:
        self._records += records
        self._size_bytes += size_bytes
        if self._clock.monotonic_s() >= self._next_s:
            self._next_s = self._clock.monotonic_s() + LINE_EVERY_S
            typer.echo(f"{self._doing}: {_amount(self._records, self._of_total, self._size_bytes)}", err=True)


def _amount(records: int, of_total: str, size_bytes: int) -> str:
    return f"{records}{of_total} records, {format_size(size_bytes)}"


@contextmanager
def _bar(doing: str, records_total: int | None) -> Iterator["Advance"]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
    )
    done = [0, 0]
    of_total = "" if records_total is None else f" of {records_total}"
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=records_total, amount="")

        def advance(records: int, size_bytes: int) -> None:
            done[0] += records
            done[1] += size_bytes
            bar.update(task, advance=records, amount=_amount(done[0], of_total, done[1]))

        yield advance
