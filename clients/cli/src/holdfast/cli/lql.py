"""`holdfast lql`: the query language without a server: read selectors, ask documents, change them, run vectors."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl

import typer

from holdfast.cli.files import file_value
from holdfast.cli.output import Output, OutputFormat, print_result
from holdfast.cli.streams import standard_input, standard_output
from holdfast.lql.document.value import parse_document
from holdfast.lql.errors import InvalidDocument
from holdfast.lql.mutation.application import apply_mutations
from holdfast.lql.mutation.text import Mode
from holdfast.lql.selector.evaluation import matches
from holdfast.lql.selector.json import selector_from_json_text, selector_to_json
from holdfast.lql.selector.printer import print_selector
from holdfast.lql.selector.text import parse_selector
from holdfast.lql.selector.tree import Selector
from holdfast.lql.selector.url import selector_from_parameters
from holdfast.lql.temporal import parse_temporal
from holdfast.lql.vector import run_vector

app = typer.Typer(
    name="lql",
    add_completion=False,
    no_args_is_help=True,
    help="Try the query language: selectors, documents, mutations. Needs no server.",
    epilog="""Examples:  holdfast lql parse '/status="open"'  |  holdfast lql eval '/n>5' --file order.json""",
)

Selectors = Annotated[
    list[str], typer.Argument(metavar="SELECTOR…", help="Clauses; several arguments are joined by newlines.")
]
Document = Annotated[
    str, typer.Option("--file", "-f", metavar="FILE|-", help="The document; - is standard input.")
]
Now = Annotated[
    str | None, typer.Option("--now", metavar="RFC3339", help="What counts as now; else the clock.")
]


@app.command(
    epilog="""Examples:  holdfast lql parse '/a=1,/b>2'  |  holdfast lql parse --json '{"exists":"/a"}' --output text"""
)
def parse(
    selector: Selectors,
    is_json: Annotated[bool, typer.Option("--json", help="The argument is JSON, not text.")] = False,
    is_url: Annotated[bool, typer.Option("--url", help="The argument is a query string, not text.")] = False,
    output: Output = OutputFormat.JSON,
) -> None:
    """Print what a selector means: as JSON, or as text in its plainest form."""
    read = _read(selector, is_json=is_json, is_url=is_url)
    if output is OutputFormat.TEXT:
        typer.echo(print_selector(read))
    else:
        typer.echo(json.dumps(selector_to_json(read), ensure_ascii=False, separators=(",", ":")))


def _read(arguments: list[str], *, is_json: bool, is_url: bool) -> Selector:
    if is_json and is_url:
        raise typer.BadParameter("give --json or --url, not both")
    text = "\n".join(arguments)
    if is_json:
        return selector_from_json_text(text)
    if is_url:
        return selector_from_parameters(parse_qsl(text.lstrip("?"), keep_blank_values=True))
    return parse_selector(text)


@app.command(
    "eval",
    epilog="""Examples:  holdfast lql eval '/n>5' --file order.json  |  echo '{"n":7}' | holdfast lql eval '/n>5'""",
)
def evaluate(
    selector: Selectors, file: Document = "-", now: Now = None, output: Output = OutputFormat.TEXT
) -> None:
    """Print whether a document matches a selector: true or false."""
    found = matches(parse_selector("\n".join(selector)), parse_document(_content(file)), now_ns=_now_ns(now))
    print_result({"matches": found}, "true" if found else "false", output)


@app.command(
    epilog="""Examples:  holdfast lql mutate '/count++' --file order.json  |  echo '{}' | holdfast lql mutate '/a/b=1'"""
)
def mutate(
    mutation: Annotated[list[str], typer.Argument(metavar="MUTATION…", help="Applied in this order.")],
    file: Document = "-",
    script: Annotated[
        bool, typer.Option("--script", help="Commas and newlines separate mutations within an argument.")
    ] = False,
    now: Now = None,
) -> None:
    """Print the document as the mutations leave it; the file stays as it is."""
    document = _content(file)
    if document.strip():
        parse_document(document)
    mode = Mode.SCRIPT if script else Mode.EXPRESSIONS
    changed = apply_mutations(document, mutation, now_ns=_now_ns(now), mode=mode, read_file=file_value)
    standard_output().write(changed + b"\n")


@app.command(epilog="Example:  holdfast lql vectors selectors.jsonl matches.jsonl mutations.jsonl")
def vectors(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="One JSON object per line.")],
) -> None:
    """Run conformance vectors: a line per failure, then the totals. Exit status 1 if any failed."""
    passed = failed = 0
    for line in _lines(files):
        outcome = run_vector(line)
        if outcome.problem:
            failed += 1
            typer.echo(f"{outcome.id}: {outcome.problem}")
        else:
            passed += 1
    typer.echo(f"{passed} passed, {failed} failed")
    if failed:
        raise typer.Exit(1)


def _lines(files: list[Path]) -> Iterator[str]:
    for file in files:
        # Not splitlines: it also cuts at characters that may stand within a JSON string.
        yield from (line for line in _decoded(_content(str(file)), file).split("\n") if line.strip())


def _decoded(content: bytes, file: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidDocument(f"{file} is not UTF-8: {error}") from None


def _content(file: str) -> bytes:
    if file == "-":
        return standard_input().read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidDocument(f"cannot read {file}: {error.strerror}") from error


def _now_ns(now: str | None) -> int:
    if now is None:
        return time.time_ns()
    moment = parse_temporal(now)
    if moment is None:
        raise typer.BadParameter("write it like 2025-01-31T10:00:00Z", param_hint="--now")
    return moment.instant_ns
