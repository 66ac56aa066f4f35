"""`holdfast queue stats` and `peek`: what is in a queue, without taking anything."""

import json
from typing import Annotated

import typer

from holdfast.cli.client.print import text_lines
from holdfast.cli.output import Output, OutputFormat
from holdfast.cli.queue.print import STORED_HEAD, shown, stored_row, table
from holdfast.cli.queue.target import QueueTarget, takes_queue
from holdfast.client import StoredMessage

app = typer.Typer()

Limit = Annotated[int, typer.Option("--limit", min=1, max=100, help="At most so many.")]


@app.command(epilog="Example:  holdfast queue stats -q jobs --output json")
@takes_queue()
def stats(target: QueueTarget, output: Output = OutputFormat.TEXT) -> None:
    """Consumers of a queue, and the message that is next."""
    with target.client() as client:
        seen = target.of(client).stats()
    typer.echo(json.dumps(seen.raw, indent=2) if output is OutputFormat.JSON else text_lines(seen.raw))


@app.command(epilog="Example:  holdfast queue peek -q jobs --limit 10 --payloads")
@takes_queue()
def peek(
    target: QueueTarget,
    limit: Limit = 10,
    payloads: Annotated[bool, typer.Option("--payloads", help="Show what is in them, too.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """What would leave next, in order."""
    with target.client() as client:
        found = target.of(client).peek(limit, payloads=payloads)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps([message.raw for message in found], indent=2))
        return
    head = [*STORED_HEAD, *(["PAYLOAD"] if payloads else [])]
    typer.echo(table(head, [[*stored_row(message), *_payload(message, payloads)] for message in found]))


def _payload(message: StoredMessage, payloads: bool) -> list[object]:
    if not payloads:
        return []
    if message.payload is None:
        return ["(too large)"]
    return [next(iter(shown(message.payload).values()))]
