"""`holdfast client query`: the keys or documents that match a selector."""

import json
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli.client.print import printable, shell_quoted
from holdfast.cli.client.target import Target, takes_target
from holdfast.cli.files import STANDARD, written
from holdfast.cli.output import Output, OutputFormat
from holdfast.cli.progress import progress
from holdfast.cli.streams import is_terminal
from holdfast.client import Client
from holdfast.client.sync.query import KeyQuery

if TYPE_CHECKING:
    from holdfast.storage.maintenance.progress import Advance

app = typer.Typer()

_DASHED: Final = re.compile(r"[/\\\s]")
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]")


@app.command(
    epilog="""Examples:  holdfast client query '/status="open"' '/n>=10'  |  """
    """holdfast client query -d --all '' > all.ndjson  |  holdfast client query -F export '/status="open"'"""
)
@takes_target(key=False)
def query(
    target: Target,
    selector: Annotated[
        list[str], typer.Argument(metavar="SELECTOR…", help="All must hold; '' matches everything.")
    ],
    output: Output = OutputFormat.JSON,
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE|-", help="Where the result goes.")
    ] = STANDARD,
    documents: Annotated[
        bool, typer.Option("--documents", "-d", help="Documents, one per line, instead of keys.")
    ] = False,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", "-F", metavar="DIR", help="Each document into a file <key>.json there."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Hits on a page (server: 100).")
    ] = None,
    cursor: Annotated[
        str, typer.Option("--cursor", metavar="CURSOR", help="Go on where an earlier page ended.")
    ] = "",
    all_pages: Annotated[bool, typer.Option("--all", help="All pages, not only the first.")] = False,
    engine: Annotated[str, typer.Option("--engine", metavar="auto|index|scan")] = "",
    refresh: Annotated[str, typer.Option("--refresh", metavar="wait_for", help="For lockd servers.")] = "",
) -> None:
    """Print the keys of the committed documents that match, or the documents themselves.

    Prints one page; if there are more hits, the option that goes on is told on stderr.
    """
    wants_documents = documents or directory is not None
    if wants_documents and output is OutputFormat.TEXT:
        raise typer.BadParameter("documents are printed as JSON only", param_hint="--output")
    if directory is not None and file != STANDARD:
        raise typer.BadParameter("give a file or a directory, not both", param_hint="--directory")
    asked = {
        "namespace": target.namespace or None,
        "limit": limit,
        "cursor": cursor,
        "all_pages": all_pages,
        "engine": engine,
        "refresh": refresh,
    }
    with target.client() as client:
        if wants_documents:
            rest = _print_documents(client, "\n".join(selector), asked, file, directory)
        else:
            rest = _print_keys(client, "\n".join(selector), asked, file, output)
    if rest:
        typer.echo(f"more: --cursor {shell_quoted(rest)}", err=True)


def _print_keys(client: Client, selector: str, asked: dict[str, Any], file: str, output: OutputFormat) -> str:
    """Writes them as they come, and gives the cursor of what is left."""
    is_json = output is OutputFormat.JSON
    found: KeyQuery = client.query(selector, documents=False, **asked)
    count = 0
    with written(file) as out, _progress(is_hidden=_is_seen(file)) as advance:
        for key in found:
            mark = "," if count else "["
            line = f"{mark}{json.dumps(key, ensure_ascii=False)}" if is_json else f"{printable(key)}\n"
            out.write(line.encode())
            count += 1
            advance(1, len(line))
        if is_json:
            out.write(b"]\n" if count else b"[]\n")
    return found.cursor


def _print_documents(
    client: Client, selector: str, asked: dict[str, Any], file: str, directory: Path | None
) -> str:
    """The same for documents: lines, or files."""
    with client.query(selector, documents=True, **asked) as found:
        if directory is not None:
            folder = DocumentFolder(directory)
            with _progress(is_hidden=False) as advance:
                for row in found:
                    folder.put(row.key, row.content)
                    advance(1, len(row.content))
        else:
            with written(file) as out, _progress(is_hidden=_is_seen(file)) as advance:
                for row in found:
                    out.write(row.content + b"\n")
                    advance(1, len(row.content))
        return found.cursor


def _is_seen(file: str) -> bool:
    """Whether the result itself runs over the screen; it would tear a progress bar apart."""
    return file == STANDARD and is_terminal(sys.stdout)


def _progress(*, is_hidden: bool) -> "AbstractContextManager[Advance]":
    return nullcontext(lambda records, size_bytes: None) if is_hidden else progress("query")


class DocumentFolder:
    """A directory with a file for each document, named by its key. Two keys that would share a name get two, so that no document is lost."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._keys_by_name: dict[str, str] = {}

    def put(self, key: str, document: bytes) -> None:
        with written(str(self._folder / self._name(key))) as out:
            out.write(document)

    def _name(self, key: str) -> str:
        plain = name = file_name(key)
        number = 1
        # A key comes twice when it was written again while the pages were read: the newer document wins.
        while self._keys_by_name.setdefault(name, key) != key:
            number += 1
            name = f"{plain}-{number}"
        return f"{name}.json"


def file_name(key: str) -> str:
    """A key without what a file system or a shell would stumble over; not even `..` is left of a path."""
    return _ODD.sub("_", _DASHED.sub("-", key))
