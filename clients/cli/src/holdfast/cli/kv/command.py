"""`holdfast kv`: keys of a running plane as etcd has them, from a shell."""

import sys
from typing import Annotated

import typer

from holdfast.cli.client.target import Target, takes_server
from holdfast.cli.files import STANDARD
from holdfast.cli.kv import lease, txn, watch
from holdfast.cli.kv.arguments import (
    FromKey,
    Key,
    OrderOption,
    Prefix,
    PrevKv,
    RangeEnd,
    SortOption,
    lease_id,
)
from holdfast.cli.kv.print import Look, delete_lines, get_lines, print_answer, put_lines
from holdfast.cli.output import Output, OutputFormat, failure
from holdfast.cli.streams import is_terminal, standard_input

app = typer.Typer(
    name="kv",
    add_completion=False,
    no_args_is_help=True,
    help="Keys of a running plane as etcd has them, by commands as etcdctl has them. Documents are not among them.",
    epilog="Examples:  holdfast kv put jobs/1 open  |  holdfast kv get jobs/ --prefix  |  "
    "holdfast kv watch jobs/ --prefix  |  holdfast kv lease grant 30",
)
for _part in (txn, watch):
    app.add_typer(_part.app)
app.add_typer(lease.app)

Revision = Annotated[int, typer.Option("--rev", min=0, metavar="N", help="As of this revision; 0: now.")]


@app.command(
    epilog="Examples:  holdfast kv put jobs/1 open  |  cat value.bin | holdfast kv put jobs/1  |  "
    "holdfast kv put jobs/1 open --lease 694d5765fc71500b --prev-kv"
)
@takes_server()
def put(
    target: Target,
    key: Key,
    value: Annotated[
        str | None,
        typer.Argument(metavar="[VALUE|-]", help="None or -: all of standard input, to the last byte."),
    ] = None,
    lease: Annotated[str, typer.Option("--lease", metavar="ID", help="The key ends with it.")] = "",
    prev_kv: PrevKv = False,
    ignore_value: Annotated[bool, typer.Option("--ignore-value", help="Keep the value it has.")] = False,
    ignore_lease: Annotated[bool, typer.Option("--ignore-lease", help="Keep the lease it has.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Set a key."""
    octets = _value(value, is_ignored=ignore_value)
    bound = lease_id(lease) if lease else 0
    with target.client() as client:
        result = client.kv.put(
            key,
            octets,
            lease=bound,
            prev_kv=prev_kv,
            ignore_value=ignore_value,
            ignore_lease=ignore_lease,
        )
    print_answer(result.raw, put_lines(result, Look()), output)


def _value(value: str | None, *, is_ignored: bool) -> str | bytes:
    if value is not None and value != STANDARD:
        return value
    if is_ignored and value is None:
        return b""
    if value is None and is_terminal(sys.stdin):
        raise failure("no value: give VALUE, or - for standard input", 2)
    return standard_input().read()


@app.command(
    epilog="Examples:  holdfast kv get jobs/1  |  holdfast kv get jobs/ --prefix --keys-only  |  "
    "holdfast kv get jobs/1 --rev 4 --print-value-only  |  "
    'holdfast kv get "" --from-key --sort-by MODIFY --order DESCEND --limit 5'
)
@takes_server()
def get(
    target: Target,
    key: Key,
    range_end: RangeEnd = "",
    prefix: Prefix = False,
    from_key: FromKey = False,
    limit: Annotated[int, typer.Option("--limit", min=0, metavar="N", help="So many at most; 0: all.")] = 0,
    rev: Revision = 0,
    order: Annotated[OrderOption | None, typer.Option("--order", case_sensitive=False)] = None,
    sort_by: Annotated[SortOption, typer.Option("--sort-by", case_sensitive=False)] = SortOption.KEY,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="A line for each key.")] = False,
    count_only: Annotated[bool, typer.Option("--count-only", help="How many there are.")] = False,
    print_value_only: Annotated[
        bool, typer.Option("--print-value-only", help="A line for each value.")
    ] = False,
    hexadecimal: Annotated[bool, typer.Option("--hex", help="Every byte in hexadecimal digits.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Print keys in their order, each key in a line and its value in the next; JSON has them in base64."""
    if (keys_only, count_only, print_value_only).count(True) > 1:
        raise failure("give one of --keys-only, --count-only and --print-value-only", 2)
    with target.client() as client:
        result = client.kv.get(
            key,
            range_end=range_end,
            prefix=prefix,
            from_key=from_key,
            limit=limit,
            revision=rev,
            order=None if order is None else order.order,
            sort_by=sort_by.target,
            keys_only=keys_only,
            count_only=count_only,
        )
    look = Look(hexadecimal, keys=not print_value_only, values=not keys_only, is_counted=count_only)
    print_answer(result.raw, get_lines(result, look), output)


@app.command(
    "del",
    epilog="Examples:  holdfast kv del jobs/1 --prev-kv  |  holdfast kv del jobs/ --prefix  |  holdfast kv del a c",
)
@takes_server()
def delete(
    target: Target,
    key: Key,
    range_end: RangeEnd = "",
    prefix: Prefix = False,
    from_key: FromKey = False,
    prev_kv: PrevKv = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Delete keys, all in one revision, and print how many."""
    with target.client() as client:
        result = client.kv.delete(key, range_end=range_end, prefix=prefix, from_key=from_key, prev_kv=prev_kv)
    print_answer(result.raw, delete_lines(result, Look()), output)


@app.command(epilog="Example:  holdfast kv compact 18 --physical")
@takes_server()
def compact(
    target: Target,
    revision: Annotated[int, typer.Argument(metavar="REV", min=0, help="The first one that is kept.")],
    physical: Annotated[bool, typer.Option("--physical", help="Return when its space is free.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Forget the history before a revision."""
    with target.client() as client:
        now = client.kv.compact(revision, physical=physical)
    print_answer({"header": {"revision": now}}, [f"compacted revision {revision}".encode()], output)
