"""`holdfast client edit`: change fields of a document on this machine, without any server."""

from typing import Annotated

import typer

from holdfast.cli.client_set import Mutations, changed
from holdfast.cli.files import STANDARD, read_whole, written

app = typer.Typer()


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
    from holdfast.lql.document import encode_document, parse_document

    document = parse_document(changed(read_whole(file), mutation))
    with written(file) as out:
        out.write(encode_document(document, indent=2, sort_keys=True) + b"\n")
