"""`holdfast kv lease`: leases that keys end with."""

from typing import Annotated

import typer

from holdfast.cli.client.target import Target, takes_server
from holdfast.cli.kv.arguments import lease_id, lease_name
from holdfast.cli.kv.print import print_answer, print_line_of_json, print_lines
from holdfast.cli.output import Output, OutputFormat, counted, failure
from holdfast.client import Client, KvLeaseState, NotFound

app = typer.Typer(
    name="lease",
    no_args_is_help=True,
    help="Leases of keys: when one is over, its keys are deleted. An id is printed and read in hexadecimal digits.",
    epilog="Examples:  holdfast kv lease grant 30  |  holdfast kv lease keep-alive 694d5765fc71500b",
)

Id = Annotated[str, typer.Argument(metavar="ID", help="Which lease.")]


@app.command(epilog="Example:  holdfast kv lease grant 30 --output json")
@takes_server()
def grant(
    target: Target,
    ttl: Annotated[int, typer.Argument(metavar="TTL", help="How many seconds it lasts.")],
    output: Output = OutputFormat.TEXT,
) -> None:
    """Make a lease."""
    with target.client() as client:
        lease = client.kv.leases.grant(ttl)
    text = f"lease {lease_name(lease.id)} granted with TTL({lease.ttl_s}s)"
    print_answer(lease.raw, [text.encode()], output)


@app.command(epilog="Example:  holdfast kv lease revoke 694d5765fc71500b")
@takes_server()
def revoke(target: Target, name: Id, output: Output = OutputFormat.TEXT) -> None:
    """End a lease, and delete its keys."""
    number = lease_id(name)
    with target.client() as client:
        revision = client.kv.leases.revoke(number)
    text = f"lease {lease_name(number)} revoked"
    print_answer({"header": {"revision": revision}}, [text.encode()], output)


@app.command(epilog="Example:  holdfast kv lease timetolive 694d5765fc71500b --keys")
@takes_server()
def timetolive(
    target: Target,
    name: Id,
    keys: Annotated[bool, typer.Option("--keys", help="Its keys, too.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Print what is left of a lease."""
    number = lease_id(name)
    with target.client() as client:
        state = client.kv.leases.time_to_live(number, keys=keys)
    print_answer(state.raw, [_state_line(number, state, keys=keys)], output)


def _state_line(number: int, state: KvLeaseState, *, keys: bool) -> bytes:
    if state.is_over:
        return f"lease {lease_name(number)} already expired".encode()
    text = f"lease {lease_name(number)} granted with TTL({state.granted_ttl_s}s), remaining({state.ttl_s}s)"
    attached = b", attached keys([" + b" ".join(state.keys) + b"])" if keys else b""
    return text.encode() + attached


@app.command("list", epilog="Example:  holdfast kv lease list --output json")
@takes_server()
def list_leases(target: Target, output: Output = OutputFormat.TEXT) -> None:
    """Print how many leases there are, and the id of each."""
    with target.client() as client:
        numbers = client.kv.leases.list()
    lines = [f"found {counted(len(numbers), 'lease')}", *(lease_name(number) for number in numbers)]
    members = {"leases": [{"ID": number} for number in numbers]}
    print_answer(members, [line.encode() for line in lines], output)


@app.command(
    "keep-alive",
    epilog="Examples:  holdfast kv lease keep-alive 694d5765fc71500b  |  "
    "holdfast kv lease keep-alive 694d5765fc71500b --once",
)
@takes_server()
def keep_alive(
    target: Target,
    name: Id,
    once: Annotated[bool, typer.Option("--once", help="Once, and no more.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Renew a lease whenever a third of its time is over, until it is interrupted; fails when the lease is gone."""
    number = lease_id(name)
    with target.client() as client:
        try:
            _keep(client, number, once, output)
        except NotFound:
            raise failure(f"lease {lease_name(number)} expired or revoked") from None


def _keep(client: Client, number: int, once: bool, output: OutputFormat) -> None:
    for ttl_s in client.kv.leases.keep(number):
        if output is OutputFormat.JSON:
            print_line_of_json({"ID": number, "TTL": ttl_s})
        else:
            print_lines([f"lease {lease_name(number)} keepalived with TTL({ttl_s})".encode()])
        if once:
            return
