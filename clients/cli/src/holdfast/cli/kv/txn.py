"""`holdfast kv txn`: a transaction, told in etcdctl's language on standard input."""

from collections.abc import Iterator
from typing import Annotated

import typer

from holdfast.cli.client.target import Target, takes_server
from holdfast.cli.kv.print import print_answer, txn_lines
from holdfast.cli.kv.txn_text import SECTIONS, TxnReader, TxnTextError
from holdfast.cli.output import Output, OutputFormat, failure
from holdfast.cli.streams import standard_input
from holdfast.client import TxnOp

app = typer.Typer()


@app.command(epilog="Examples:  cat move.txn | holdfast kv txn  |  holdfast kv txn -i")
@takes_server()
def txn(
    target: Target,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Ask for each part on standard error.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Do one thing if all comparisons hold, else the other, and print SUCCESS or FAILURE and what each operation gave.

    Standard input has comparisons, operations for success and operations for failure, a line each, with an empty line after
    each part. A comparison is mod("key") > "0", with create, mod, ver, val or lease, and =, !=, < or >. An operation is put,
    get or del with the arguments of these commands. Text with blanks stands between quotes.
    """
    try:
        operation = _read(is_asked=interactive)
    except TxnTextError as error:
        raise failure(str(error), 2) from None
    with target.client() as client:
        result = client.kv.txn(operation.compare, operation.success, operation.failure)
    print_answer(result.raw, txn_lines(operation, result), output)


def _read(*, is_asked: bool) -> TxnOp:
    reader = TxnReader()
    lines = _lines()
    for section in SECTIONS:
        if is_asked:
            typer.echo(f"{section}:", err=True)
        for line in lines:
            if not line.strip():
                break
            reader.feed(section, line)
    return reader.operation()


def _lines() -> Iterator[str]:
    for line in standard_input():
        yield line.decode("utf-8", "surrogateescape")
