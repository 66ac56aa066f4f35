"""`holdfast client set|mutate|edit`: change fields of a document, staged until release, or here without a server."""

from time import time_ns
from typing import Annotated

import typer

from holdfast.cli.client.print import print_write
from holdfast.cli.client.target import IfEtag, IfVersion, Target, takes_target
from holdfast.cli.files import STANDARD, file_value, read_whole, written
from holdfast.cli.output import Output, OutputFormat
from holdfast.client import Session, WriteResult

app = typer.Typer()

Mutations = Annotated[
    list[str], typer.Argument(metavar="MUTATION…", help="Such as /status=done, /n++ or rm:/draft.")
]


@app.command(
    epilog="Examples:  holdfast client mutate /n++ /status=done  |  holdfast client mutate --local /n++"
)
@takes_target(lease=True)
def mutate(
    target: Target,
    mutation: Mutations,
    local: Annotated[
        bool, typer.Option("--local", help="Read the document, change it here, and send all of it.")
    ] = False,
    if_version: IfVersion = None,
    if_etag: IfEtag = None,
    output: Output = OutputFormat.JSON,
) -> None:
    """Let the server change fields of the document."""
    with target.client() as client:
        session = target.session(client)
        if local:
            result = _set_here(session, mutation, cas=True, if_version=if_version, if_etag=if_etag)
        else:
            result = session.mutate(mutation, if_version=if_version, if_etag=if_etag, cas=False)
    print_write(result, output)


@app.command(
    "set",
    epilog="Examples:  holdfast client set /owner=me time:/seen=NOW  |  "
    "holdfast client set 'file:/notes=notes.txt' base64file:/photo=~/photo.jpg",
)
@takes_target(lease=True)
def set_fields(
    target: Target,
    mutation: Mutations,
    no_cas: Annotated[
        bool, typer.Option("--no-cas", help="With values from files: do not insist on what was read.")
    ] = False,
    if_version: IfVersion = None,
    if_etag: IfEtag = None,
    output: Output = OutputFormat.JSON,
) -> None:
    """Change fields of the document in one round trip.

    A value may come from a file: file:/path=NAME (text, or base64 if it is none), textfile:, base64file:. The server
    reads no files, so then the document is read, changed here, and staged if nothing changed meanwhile.
    """
    is_from_file = has_file_value(mutation)
    with target.client() as client:
        session = target.session(client)
        if is_from_file:
            result = _set_here(session, mutation, cas=not no_cas, if_version=if_version, if_etag=if_etag)
        else:
            result = session.mutate(mutation, if_version=if_version, if_etag=if_etag, cas=False)
    print_write(result, output, is_indented=True)


def has_file_value(mutations: list[str]) -> bool:
    """Whether one of them names a file. Reads all of them, so what is wrong is told before anything is sent."""
    from holdfast.lql.mutation.text import parse_mutations

    named: list[str] = []

    def note(name: str) -> bytes:
        named.append(name)
        return b""

    parse_mutations(mutations, now_ns=time_ns(), read_file=note)
    return bool(named)


def changed(document: bytes, mutations: list[str]) -> bytes:
    """A document after its mutations; files are read here."""
    from holdfast.lql.mutation.application import apply_mutations

    return apply_mutations(document, mutations, now_ns=time_ns(), read_file=file_value)


def _set_here(
    session: Session, mutations: list[str], *, cas: bool, if_version: int | None, if_etag: str | None
) -> WriteResult:
    has_file_value(mutations)
    state = session.get()
    document = changed(b"{}" if state is None else state.content, mutations)
    return session.update(document, if_version=if_version, if_etag=if_etag, cas=cas and state is not None)


@app.command(
    epilog="Examples:  holdfast client edit -f order.json /n=2 rm:/draft  |  echo '{}' | holdfast client edit /n=2"
)
def edit(
    mutation: Mutations,
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE|-", help="Changed in place; - is stdin to stdout.")
    ] = STANDARD,
) -> None:
    """Change fields of a JSON document here; members are sorted, lines indented. Needs no server.

    A file is replaced at once and as a whole, or stays as it is.
    """
    from holdfast.lql.document.value import encode_document, parse_document

    document = parse_document(changed(read_whole(file), mutation))
    with written(file) as out:
        out.write(encode_document(document, indent=2, sort_keys=True) + b"\n")
