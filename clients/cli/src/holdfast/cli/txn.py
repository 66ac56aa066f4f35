"""`holdfast txn`: transactions by name."""

import json
from typing import Annotated

import typer

from holdfast.cli.client.print import printable
from holdfast.cli.client.target import Target, from_environment, takes_target
from holdfast.cli.output import Output, OutputFormat, counted, failure, print_result
from holdfast.client import Participant, TxnView
from holdfast.client.environment import PREFIXES
from holdfast.client.transaction import TxnState

app = typer.Typer(
    name="txn",
    add_completion=False,
    no_args_is_help=True,
    help="Prepare, decide, replay and list the transactions of a running plane.",
    epilog="Examples:  holdfast txn list  |  holdfast txn commit --txn-id ID -p orders -p billing:invoice",
)

TxnId = Annotated[
    str,
    typer.Option("--txn-id", "-t", envvar=from_environment("TXN_ID"), help="The transaction."),
]
Participants = Annotated[
    list[str] | None,
    typer.Option("--participant", "-p", metavar="[NS:]KEY[@HASH]", help="Who takes part; may be repeated."),
]


@app.command(epilog="Example:  holdfast txn prepare --txn-id ID -p orders --expires-unix 1900000000")
@takes_target(key=False)
def prepare(
    target: Target,
    txn_id: TxnId = "",
    participant: Participants = None,
    expires_unix: Annotated[
        int, typer.Option("--expires-unix", min=0, metavar="N", help="Rolled back from this second on.")
    ] = 0,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Record who takes part, without deciding."""
    _decide(target, txn_id, "pending", participant or [], output, expires_at_unix=expires_unix)


@app.command(epilog="Example:  holdfast txn commit --txn-id ID -p orders")
@takes_target(key=False)
def commit(
    target: Target, txn_id: TxnId = "", participant: Participants = None, output: Output = OutputFormat.TEXT
) -> None:
    """Publish everything of a transaction."""
    _decide(target, txn_id, "commit", participant or [], output)


@app.command(epilog="Example:  holdfast txn rollback --txn-id ID")
@takes_target(key=False)
def rollback(
    target: Target, txn_id: TxnId = "", participant: Participants = None, output: Output = OutputFormat.TEXT
) -> None:
    """Throw everything of a transaction away."""
    _decide(target, txn_id, "rollback", participant or [], output)


@app.command(epilog="Example:  holdfast txn replay --txn-id ID")
@takes_target(key=False)
def replay(target: Target, txn_id: TxnId = "", output: Output = OutputFormat.TEXT) -> None:
    """Have the recorded decision applied again."""
    with target.client() as client:
        _print(_required(txn_id), client.txn_replay(_required(txn_id)), output)


@app.command("list", epilog="Example:  holdfast txn list --limit 20 --output json")
@takes_target(key=False)
def list_(
    target: Target,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 100,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show the transactions under way, those in doubt first."""
    with target.client() as client:
        found = client.txn_list(limit)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps([one.raw for one in found], indent=2))
        return
    for one in found:
        typer.echo(_line(one))
    if not found:
        typer.echo("no transaction is under way")


def _decide(
    target: Target,
    txn_id: str,
    state: TxnState,
    texts: list[str],
    output: OutputFormat,
    *,
    expires_at_unix: int = 0,
) -> None:
    participants = [Participant.parse(text) for text in texts]
    with target.client() as client:
        recorded = client.txn_decide(
            _required(txn_id),
            state,
            participants,
            expires_at_unix=expires_at_unix,
            namespace=target.namespace or None,
        )
    _print(txn_id, recorded, output)


def _required(txn_id: str) -> str:
    if not txn_id:
        raise failure(f"no transaction: give --txn-id, or set {PREFIXES[0]}TXN_ID as acquire prints it")
    return txn_id


def _print(txn_id: str, state: str, output: OutputFormat) -> None:
    text = f"txn_id={printable(txn_id)} state={printable(state)}"
    print_result({"txn_id": txn_id, "state": state}, text, output)


def _line(view: TxnView) -> str:
    doubt = " IN DOUBT" if view.is_in_doubt else ""
    names = ", ".join(printable(_name(one)) for one in view.participants)
    count = counted(len(view.participants), "participant")
    return f"{printable(view.txn_id)} {printable(view.state)}{doubt} age={view.age_s}s {count}: {names}"


def _name(participant: Participant) -> str:
    island = f"@{participant.backend_hash}" if participant.backend_hash else ""
    return (
        f"{participant.namespace}:{participant.key}{island}{' (applied)' if participant.is_applied else ''}"
    )
