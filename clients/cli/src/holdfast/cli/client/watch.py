"""`holdfast client watch`: what happens to documents and leases, a line for each event."""

import json
from typing import Annotated

import typer

from holdfast.cli.client.print import printable
from holdfast.cli.client.target import Target, takes_target
from holdfast.cli.output import Output, OutputFormat
from holdfast.cli.queue.print import moment
from holdfast.client import WatchEvent

app = typer.Typer()


@app.command(
    epilog="Examples:  holdfast client watch --prefix orders/  |  holdfast client watch -n billing --output json  |  "
    "holdfast client watch --after 4711 --count 10"
)
@takes_target(key=False)
def watch(
    target: Target,
    prefix: Annotated[str, typer.Option("--prefix", metavar="PREFIX", help="Only keys that begin so.")] = "",
    after: Annotated[
        int | None,
        typer.Option(
            "--after", min=0, metavar="REVISION", help="Go on behind this revision; else from now on."
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many events; 0: never.")] = 0,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show documents that are published or go, and leases that are acquired, released or expire; renewals are not shown.

    A line that breaks off is taken up again where it was. To go on later, take the revision of the last line.
    """
    with (
        target.client() as client,
        client.watch(prefix, namespace=target.namespace or None, after=after) as events,
    ):
        for number, event in enumerate(events, start=1):
            typer.echo(_line(event, output))
            if number == count:
                return


def _line(event: WatchEvent, output: OutputFormat) -> str:
    if output is OutputFormat.JSON:
        return json.dumps({"revision": event.revision, "last": event.is_last, **_members(event)})
    told = [f"{event.revision} {event.type} {printable(event.key)}"]
    told += [
        f"{name}={moment(event.expires_at_unix) if name == 'expires_at_unix' else printable(str(value))}"
        for name, value in _members(event).items()
        if name not in ("type", "namespace", "key")
    ]
    return " ".join(told)


def _members(event: WatchEvent) -> dict[str, object]:
    """Those that events of its type have."""
    members: dict[str, object] = {"type": event.type, "namespace": event.namespace, "key": event.key}
    match event.type:
        case "put":
            return {**members, "version": event.version, "etag": event.etag}
        case "delete":
            return {**members, "version": event.version}
        case "acquired":
            members["expires_at_unix"] = event.expires_at_unix
        case _:
            pass
    return {**members, "owner": event.owner, "fencing_token": event.fencing_token}
