"""`holdfast locks`: who holds which locks and semaphores, who listens to signals, and an end to a lock that is stuck."""

import json
from itertools import islice
from typing import Annotated

import typer

from holdfast.cli.client.print import printable
from holdfast.cli.client.target import Target, takes_server
from holdfast.cli.output import Output, OutputFormat, counted, failure, print_result
from holdfast.cli.queue.print import table
from holdfast.client import ChannelView, LockHolder, LockView

app = typer.Typer(
    name="locks",
    add_completion=False,
    no_args_is_help=True,
    help="See who holds the locks and semaphores of a running plane, taken over TCP or HTTP, and free one that is stuck.",
    epilog="Examples:  holdfast locks ls  |  holdfast locks show jobs/nightly  |  holdfast locks release jobs/nightly --force",
)

Key = Annotated[str, typer.Argument(metavar="KEY", help="Which key.", show_default=False)]


@app.command(epilog="Example:  holdfast locks ls jobs/ --limit 20 --output json")
@takes_server()
def ls(
    target: Target,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="Only keys that begin so.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many keys.")] = 1_000,
    output: Output = OutputFormat.TEXT,
) -> None:
    """List keys in their order, each with its first holder: owner, address, and how long it has it."""
    with target.client() as client:
        found = list(islice(client.locks.list(prefix), limit))
    if output is OutputFormat.JSON:
        typer.echo(json.dumps([view.raw for view in found], indent=2))
    elif found:
        head = ["KEY", "SLOTS", "HELD", "WAITING", "OWNER", "ADDRESS", "AGE", "LEASE ENDS IN"]
        typer.echo(table(head, [_row(view) for view in found]))
    else:
        typer.echo("no lock is known")


@app.command(epilog="Example:  holdfast locks channels orders. --output json")
@takes_server()
def channels(
    target: Target,
    prefix: Annotated[
        str, typer.Argument(metavar="[PREFIX]", help="Only channels and patterns that begin so.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="At most so many.")] = 1_000,
    output: Output = OutputFormat.TEXT,
) -> None:
    """List the channels and patterns that are listened to for signals, each with its group, listeners, and the first one's address."""
    with target.client() as client:
        found = client.locks.channels(prefix, limit=limit)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps([view.raw for view in found], indent=2))
    elif found:
        head = ["CHANNEL", "GROUP", "LISTENERS", "ADDRESS", "AGE"]
        typer.echo(table(head, [_channel(view) for view in found]))
    else:
        typer.echo("nobody listens")


@app.command(epilog="Example:  holdfast locks show jobs/nightly --output json")
@takes_server()
def show(target: Target, key: Key, output: Output = OutputFormat.TEXT) -> None:
    """Show every holder of a key and everyone who waits for it, in their order."""
    view = _seen(target, key)
    lines = [
        f"{printable(view.key)}: {counted(view.limit, 'slot')}, {view.held} held, {view.waiting} waiting",
        *(
            f"held by {_who(one)}, for {one.age_s:.0f}s, lease ends in {one.lease_expires_in_s:.0f}s"
            for one in view.holders
        ),
        *(f"wanted by {_named(one.owner, one.address)}, for {one.age_s:.0f}s" for one in view.waiters),
    ]
    print_result(view.raw, "\n".join(lines), output)


@app.command(
    epilog="Examples:  holdfast locks release jobs/nightly --token TOKEN  |  holdfast locks release jobs/nightly --force"
)
@takes_server()
def release(
    target: Target,
    key: Key,
    token: Annotated[str, typer.Option("--token", help="What the holder was granted.")] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Free every slot that is held now, for all holders.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """End a lock by its token, or all of a key by force: holders learn of it when they renew, those that wait get the slots."""
    if bool(token) is force:
        raise failure("give --token, or --force to free what others hold", 2)
    if force:
        view = _seen(target, key)
        with target.client() as client:
            released = client.locks.force(view)
    else:
        with target.client() as client:
            client.locks.release(key, token)
        released = 1
    text = f"released {counted(released, 'slot')} of {printable(key)}"
    print_result({"key": key, "released": released}, text, output)


def _seen(target: Target, key: str) -> LockView:
    with target.client() as client:
        view = client.locks.describe(key)
    if view is None:
        raise failure(f"{printable(key)}: this key has no holder and no waiter, and was not used lately")
    return view


def _channel(view: ChannelView) -> list[object]:
    first = view.listening[0] if view.listening else None
    return [
        printable(view.pattern),
        printable(view.group) or "-",
        view.listeners,
        (printable(first.address) if first else "") or "-",
        f"{first.age_s:.0f}s" if first else "-",
    ]


def _row(view: LockView) -> list[object]:
    counts: list[object] = [printable(view.key), view.limit, view.held, view.waiting]
    if not view.holders:
        return [*counts, "-", "-", "-", "-"]
    first = view.holders[0]
    return [
        *counts,
        printable(first.owner) or "-",
        printable(first.address) or "-",
        f"{first.age_s:.0f}s",
        f"{first.lease_expires_in_s:.0f}s",
    ]


def _who(holder: LockHolder) -> str:
    return _named(holder.owner, holder.address)


def _named(owner: str, address: str) -> str:
    return f"{printable(owner) or 'a client'} at {printable(address) or 'an unknown address'}"
