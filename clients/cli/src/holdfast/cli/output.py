"""What commands print: results as text or JSON on stdout, errors as lines on stderr."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer


class OutputFormat(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


# `-o` of a few commands is a file, as in lockd; a format there would become the name of an unwanted file.
_FORMATS = frozenset({*OutputFormat, "yaml", "raw", "auto"})


def file_name(value: str) -> str:
    """Checks the value of an option that names a file to be written."""
    if value in _FORMATS:
        raise typer.BadParameter(f"this option names a file; for a file {value} say ./{value}")
    return value


Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="How the result is printed.")]


def print_result(members: Mapping[str, object], text: str, output: OutputFormat) -> None:
    """One result: all members as JSON, or a sentence made of them."""
    typer.echo(json.dumps(members, indent=2, default=str) if output is OutputFormat.JSON else text)


def failure(message: str, status: int = 1) -> typer.Exit:
    """Say what went wrong, each problem on a line of its own; raise the result to end the program."""
    for line in message.splitlines():
        typer.echo(f"error: {line}", err=True)
    return typer.Exit(status)


def counted(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
