"""`holdfast namespace`: how a namespace is searched."""

import json
from typing import Annotated

import typer

from holdfast.cli.client.print import printable
from holdfast.cli.client.target import Target, takes_target
from holdfast.cli.output import Output, OutputFormat
from holdfast.client import NamespaceConfig

app = typer.Typer(
    name="namespace",
    add_completion=False,
    no_args_is_help=True,
    help="Show or change the configuration of a namespace of a running plane.",
    epilog="Examples:  holdfast namespace get query  |  holdfast namespace set query --preferred scan -n orders",
)
_get = typer.Typer(
    name="get",
    no_args_is_help=True,
    help="Show a part of the configuration.",
    epilog="Example:  holdfast namespace get query",
)
_set = typer.Typer(
    name="set",
    no_args_is_help=True,
    help="Change a part of the configuration.",
    epilog="Example:  holdfast namespace set query --preferred scan",
)
app.add_typer(_get)
app.add_typer(_set)


@_get.command("query", epilog="Example:  holdfast namespace get query -n orders --output text")
@takes_target(key=False)
def get_query(target: Target, output: Output = OutputFormat.JSON) -> None:
    """Show which engine answers queries."""
    with target.client() as client:
        config = client.namespace_config(namespace=target.namespace or None)
    _print(config, output)


@_set.command(
    "query",
    epilog="Example:  holdfast namespace set query -n orders --preferred index --fallback scan --if-match ETAG",
)
@takes_target(key=False)
def set_query(
    target: Target,
    preferred: Annotated[
        str,
        typer.Option("--preferred", metavar="index|scan", help="The engine to use; none given: as it is."),
    ] = "",
    fallback: Annotated[
        str, typer.Option("--fallback", metavar="none|scan", help="The one for when that is not there.")
    ] = "",
    if_match: Annotated[
        str, typer.Option("--if-match", metavar="ETAG", help="Only if the configuration has this ETag.")
    ] = "",
    output: Output = OutputFormat.JSON,
) -> None:
    """Choose which engine answers queries."""
    with target.client() as client:
        config = client.set_namespace_config(
            namespace=target.namespace or None,
            preferred_engine=preferred or None,
            fallback_engine=fallback or None,
            if_match=if_match or None,
        )
    _print(config, output)


def _print(config: NamespaceConfig, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        etag = {"etag": config.etag} if config.etag else {}
        typer.echo(json.dumps({**config.raw, **etag}, indent=2))
        return
    typer.echo(f"Namespace: {printable(config.namespace)}")
    typer.echo(f"Preferred query engine: {printable(config.preferred_engine)}")
    typer.echo(f"Fallback query engine: {printable(config.fallback_engine)}")
    if config.etag:
        typer.echo(f"ETag: {printable(config.etag)}")
