"""`holdfast queue watch`: queues as they change."""

import sys
from typing import Annotated

import typer

from holdfast.cli.output import Output, OutputFormat
from holdfast.cli.queue.target import QueueTarget, takes_queue
from holdfast.cli.streams import is_terminal

app = typer.Typer()


@app.command(
    epilog="Examples:  holdfast queue watch jobs mails  |  holdfast queue watch -q jobs --output json --count 1"
)
@takes_queue()
def watch(
    target: QueueTarget,
    names: Annotated[list[str] | None, typer.Argument(metavar="[QUEUE]…", help="Which queues.")] = None,
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many changes; 0: never.")] = 0,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show queues as they change: a live table on a terminal, elsewhere a line for each change."""
    import asyncio

    from holdfast.cli.queue import watcher

    queues = list(dict.fromkeys(names or [target.required_queue()]))
    is_table = output is OutputFormat.TEXT and is_terminal(sys.stdout)
    with watcher.LiveTable() if is_table else watcher.ChangeLines(output) as board:
        problem = asyncio.run(watcher.watch(target, queues, board, count, is_refreshed=is_table))
    if problem is not None:
        raise problem
