"""`holdfast index`: the search index of a namespace."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.client.print import text_lines
from holdfast.cli.client.target import Target, takes_target
from holdfast.cli.output import Output, OutputFormat

if TYPE_CHECKING:
    from holdfast.client.query.namespace import FlushMode

app = typer.Typer(
    name="index",
    add_completion=False,
    no_args_is_help=True,
    epilog="Example:  holdfast index flush --mode wait",
)


@app.callback()
def index() -> None:
    """Tend the search index of a running plane."""


class Mode(StrEnum):
    """Whether to wait until it is done."""

    WAIT = "wait"
    ASYNC = "async"


@app.command(epilog="Example:  holdfast index flush -n orders --mode wait")
@takes_target(key=False)
def flush(
    target: Target,
    mode: Annotated[Mode, typer.Option("--mode", "-m", help="Wait until it is done, or not.")] = Mode.ASYNC,
    output: Output = OutputFormat.JSON,
) -> None:
    """Bring the index up to date. A holdfast plane has nothing to do: its queries see every commit."""
    word: FlushMode = "wait" if mode is Mode.WAIT else "async"
    with target.client() as client:
        flushed = client.flush_index(word, namespace=target.namespace or None)
    typer.echo(json.dumps(flushed.raw, indent=2) if output is OutputFormat.JSON else text_lines(flushed.raw))
