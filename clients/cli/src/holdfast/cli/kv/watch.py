"""`holdfast kv watch`: keys as they change."""

from typing import Annotated

import typer

from holdfast.cli.client.target import Target, takes_server
from holdfast.cli.kv.arguments import FromKey, Key, Prefix, PrevKv, RangeEnd
from holdfast.cli.kv.print import Look, kv_lines, print_line_of_json, print_lines
from holdfast.cli.output import Output, OutputFormat
from holdfast.client import KvEvent

app = typer.Typer()


@app.command(
    epilog="Examples:  holdfast kv watch jobs/ --prefix  |  holdfast kv watch jobs/1 --rev 4 --prev-kv  |  "
    "holdfast kv watch jobs/1 --count 1 --output json"
)
@takes_server()
def watch(
    target: Target,
    key: Key,
    range_end: RangeEnd = "",
    prefix: Prefix = False,
    from_key: FromKey = False,
    rev: Annotated[
        int, typer.Option("--rev", min=0, metavar="N", help="All from this revision on; 0: from now on.")
    ] = 0,
    prev_kv: PrevKv = False,
    progress_notify: Annotated[
        bool,
        typer.Option(
            "--progress-notify", help="Say when nothing happens, up to which revision all was told."
        ),
    ] = False,
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many changes; 0: never.")] = 0,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Print changes of keys until it is interrupted: PUT or DELETE, the key, the value, each in a line; JSON has a line for each change.

    When the connection breaks off it goes on where it was; it fails when what would be next was compacted.
    """

    def progress(revision: int) -> None:
        if output is OutputFormat.JSON:
            print_line_of_json({"type": "PROGRESS", "revision": revision})
        else:
            print_lines([f"progress notify: {revision}".encode()])

    with (
        target.client() as client,
        client.kv.watch(
            key,
            range_end=range_end,
            prefix=prefix,
            from_key=from_key,
            start_revision=rev,
            prev_kv=prev_kv,
            on_progress=progress if progress_notify else None,
        ) as events,
    ):
        for number, event in enumerate(events, 1):
            _print(event, output)
            if number == count:
                return


def _print(event: KvEvent, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_line_of_json({"type": event.type, **event.raw})
        return
    previous = () if event.prev_kv is None else kv_lines(event.prev_kv, Look())
    print_lines([event.type.encode(), *previous, *kv_lines(event.kv, Look())])
