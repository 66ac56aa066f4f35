"""`holdfast queue policy`, `pause` and `resume`: what holds for all messages of a queue."""

import json
from typing import Annotated

import typer

from holdfast.cli.client.print import text_lines
from holdfast.cli.client.target import duration_s
from holdfast.cli.output import Output, OutputFormat, failure
from holdfast.cli.queue.target import QueueTarget, takes_queue
from holdfast.client import QueuePolicy

app = typer.Typer()
_policy = typer.Typer(
    name="policy",
    add_completion=False,
    no_args_is_help=True,
    help="What holds for messages that do not say otherwise.",
    epilog="Example:  holdfast queue policy set -q jobs --max-attempts 3 --visibility 1m",
)
app.add_typer(_policy)


@_policy.command(epilog="Example:  holdfast queue policy get -q jobs --output json")
@takes_queue()
def get(target: QueueTarget, output: Output = OutputFormat.TEXT) -> None:
    """Show it; 0 is the server's own value, or no limit."""
    with target.client() as client:
        _print(target.of(client).policy(), output)


@_policy.command("set", epilog="Example:  holdfast queue policy set -q jobs --ttl 24h --rate 100")
@takes_queue()
def set_policy(
    target: QueueTarget,
    visibility: Annotated[str, typer.Option("--visibility", metavar="DURATION")] = "",
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", min=0)] = None,
    ttl: Annotated[str, typer.Option("--ttl", metavar="DURATION")] = "",
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.0, metavar="N", help="Deliveries per second.")
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Change what is given; 0 goes back to the server's own value, or to no limit."""
    if not visibility and not ttl and max_attempts is None and rate is None:
        raise failure("nothing to set: give --visibility, --max-attempts, --ttl or --rate", 2)
    with target.client() as client:
        policy = target.of(client).set_policy(
            visibility_s=duration_s(visibility) if visibility else None,
            max_attempts=max_attempts,
            ttl_s=duration_s(ttl) if ttl else None,
            deliveries_per_s=rate,
        )
    _print(policy, output)


@app.command(epilog="Example:  holdfast queue pause -q jobs")
@takes_queue()
def pause(target: QueueTarget, output: Output = OutputFormat.TEXT) -> None:
    """Deliver nothing until `resume`; messages still come in."""
    with target.client() as client:
        _print(target.of(client).pause(), output)


@app.command(epilog="Example:  holdfast queue resume -q jobs")
@takes_queue()
def resume(target: QueueTarget, output: Output = OutputFormat.TEXT) -> None:
    """Deliver again."""
    with target.client() as client:
        _print(target.of(client).resume(), output)


def _print(policy: QueuePolicy, output: OutputFormat) -> None:
    typer.echo(json.dumps(policy.raw, indent=2) if output is OutputFormat.JSON else text_lines(policy.raw))
