"""`holdfast queue dlq`: messages that used up their attempts."""

import json
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from holdfast.cli.client.print import print_members
from holdfast.cli.output import Output, OutputFormat, counted, failure
from holdfast.cli.progress import progress
from holdfast.cli.queue.print import STORED_HEAD, compact, moment, stored_row, table
from holdfast.cli.queue.target import QueueTarget, takes_queue
from holdfast.cli.streams import is_terminal

app = typer.Typer(
    name="dlq",
    add_completion=False,
    no_args_is_help=True,
    help="Dead letters: look at them, send them back, or remove them.",
    epilog="Example:  holdfast queue dlq list -q jobs;  holdfast queue dlq redrive -q jobs --all",
)

Ids = Annotated[list[str] | None, typer.Argument(metavar="[MESSAGE_ID]…", help="Which ones.")]
All = Annotated[bool, typer.Option("--all", help="All of them.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="The oldest so many.")]


@app.command("list", epilog="Example:  holdfast queue dlq list -q jobs --output json")
@takes_queue()
def list_all(
    target: QueueTarget,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 100,
    output: Output = OutputFormat.TEXT,
) -> None:
    """List them, oldest first."""
    with target.client() as client:
        found = list(target.of(client).dead_letters.list(limit=limit))
    if output is OutputFormat.JSON:
        typer.echo(json.dumps([message.raw for message in found], indent=2))
        return
    rows = [[*stored_row(item), moment(item.dead_at_unix), compact(item.last_error)] for item in found]
    typer.echo(table([*STORED_HEAD, "DEAD", "LAST ERROR"], rows))


@app.command(
    epilog="Examples:  holdfast queue dlq redrive -q jobs --all  |  holdfast queue dlq redrive -q jobs MESSAGE_ID"
)
@takes_queue()
def redrive(
    target: QueueTarget,
    message_id: Ids = None,
    everything: All = False,
    limit: Limit = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Put them back into the queue, with a fresh count of failures."""
    _check_choice(message_id, everything, limit)
    with target.client() as client, progress("redrive") as advance:
        letters = target.of(client).dead_letters
        count = letters.redrive(message_id or None, limit=limit, on_progress=_each(advance))
    print_members({"redriven": count}, f"redriven={count}", output)


@app.command(
    epilog="Examples:  holdfast queue dlq purge -q jobs --all --yes  |  holdfast queue dlq purge -q jobs MESSAGE_ID"
)
@takes_queue()
def purge(
    target: QueueTarget,
    message_id: Ids = None,
    everything: All = False,
    limit: Limit = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Remove them for ever."""
    _check_choice(message_id, everything, limit)
    _confirm(target, message_id, limit, yes=yes)
    with target.client() as client, progress("purge") as advance:
        letters = target.of(client).dead_letters
        count = letters.purge(message_id or None, limit=limit, on_progress=_each(advance))
    print_members({"purged": count}, f"purged={count}", output)


def _check_choice(message_ids: list[str] | None, everything: bool, limit: int | None) -> None:
    if [bool(message_ids), everything, limit is not None].count(True) != 1:
        raise failure("which ones? give message ids, --limit or --all", 2)


def _confirm(target: QueueTarget, message_ids: list[str] | None, limit: int | None, *, yes: bool) -> None:
    if yes:
        return
    which = counted(len(message_ids), "dead letter") if message_ids else f"the oldest {limit or ''}".strip()
    which = which if message_ids or limit else "all dead letters"
    if not is_terminal(sys.stdin):
        raise failure(f"this removes {which} of {target.required_queue()} for ever: say --yes", 2)
    typer.confirm(f"Remove {which} of {target.required_queue()} for ever?", abort=True)


def _each(advance: Callable[[int, int], object]) -> Callable[[int], object]:
    return lambda count: advance(count, 0)
