"""`holdfast queue subscribe`: messages as they come, printed or given to a command."""

from typing import Annotated

import typer

from holdfast.cli.client.target import block_s, duration_s, from_environment
from holdfast.cli.output import Output, OutputFormat
from holdfast.cli.queue.target import QueueTarget, takes_queue
from holdfast.cli.streams import standard_output

app = typer.Typer()


@app.command(
    epilog="Examples:  holdfast queue subscribe -q jobs --exec './work.sh'  |  "
    "holdfast queue subscribe -q jobs --block nowait --output json"
)
@takes_queue()
def subscribe(
    target: QueueTarget,
    command: Annotated[
        str, typer.Option("--exec", metavar="COMMAND", help="Run by a shell for each message.")
    ] = "",
    prefetch: Annotated[int, typer.Option("--prefetch", min=1, max=64, help="On their way at a time.")] = 1,
    visibility: Annotated[
        str, typer.Option("--visibility", metavar="DURATION", help="Extended while the command runs.")
    ] = "",
    block: Annotated[
        str, typer.Option("--block", metavar="DURATION", help="For a first message; 0 or forever, nowait.")
    ] = "forever",
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many messages; 0: never.")] = 0,
    retry_delay: Annotated[
        str, typer.Option("--retry-delay", metavar="DURATION", help="Before a failed one comes again.")
    ] = "0s",
    stateful: Annotated[bool, typer.Option("--stateful", help="With a lease on their state.")] = False,
    owner: Annotated[
        str, typer.Option("--owner", envvar=from_environment("OWNER"), help="Default: host name and pid.")
    ] = "",
    output: Output = OutputFormat.TEXT,
) -> None:
    """Take messages as they come: print each and ack it, or run a command for it.

    The command gets the payload on standard input and the message in HOLDFAST_QUEUE_…; when it ends with 0 the message
    is acked, else nacked. SIGINT and SIGTERM let what runs finish.
    """
    import asyncio

    from holdfast.cli.queue.subscriber import Work

    if not command:
        standard_output()  # Before a message is taken that can't be printed.
    work = Work(command, output, count, duration_s(retry_delay))
    asyncio.run(
        work.run(
            target,
            prefetch=prefetch,
            visibility_s=duration_s(visibility) if visibility else None,
            block_s=block_s(block),
            stateful=stateful,
            owner=owner or None,
        )
    )
