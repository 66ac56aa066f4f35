"""`holdfast queue`: messages in, deliveries out, from a shell."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from holdfast.cli.client.print import print_members
from holdfast.cli.client.target import block_s, duration_s, from_environment
from holdfast.cli.files import STANDARD, written
from holdfast.cli.output import Output, OutputFormat, failure, file_name
from holdfast.cli.queue import dead_letters, live, look, policy, work
from holdfast.cli.queue.bulk import enqueue_lines
from holdfast.cli.queue.print import ETAG_VARIABLES, MESSAGE_VARIABLES, both_names, export_lines, exports
from holdfast.cli.queue.target import PREFIXES, QueueTarget, takes_queue
from holdfast.cli.shell_code import EvaluatedCommand, leftovers
from holdfast.cli.streams import is_terminal, standard_input
from holdfast.client import Client, Delivery, Outgoing, QueueEmpty
from holdfast.client.queue.message import CONTENT_TYPE_DEFAULT, Intent

app = typer.Typer(
    name="queue",
    add_completion=False,
    no_args_is_help=True,
    help="Queues of a running plane. `dequeue` exports what ack, nack and extend need; any option wins over it.",
    epilog="Example:  holdfast queue enqueue -q jobs --data hello;  "
    'eval "$(holdfast queue dequeue -q jobs)";  cat "$HOLDFAST_QUEUE_PAYLOAD_PATH";  holdfast queue ack',
)
for _part in (work, look, live, dead_letters, policy):
    app.add_typer(_part.app)

Format = Annotated[OutputFormat, typer.Option("--output", help="How the result is printed.")]
Intents = Annotated[
    str, typer.Option("--intent", metavar="failure|defer", help="`defer` does not count as a failed attempt.")
]


@app.command(
    epilog="Examples:  holdfast queue enqueue -q jobs --data '{\"n\":1}' --content-type application/json  |  "
    "tar c . | holdfast queue enqueue -q backups -  |  holdfast queue enqueue -q urls --lines urls.txt  |  "
    'holdfast queue enqueue -q jobs --data done --txn-id "$HOLDFAST_CLIENT_TXN_ID"'
)
@takes_queue()
def enqueue(
    target: QueueTarget,
    standard_input: Annotated[
        str, typer.Argument(metavar="[-]", help="Read the payload from standard input.")
    ] = "",
    data: Annotated[str | None, typer.Option("--data", "-d", help="The payload itself.")] = None,
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE|-", help="The payload in a file.")] = "",
    lines: Annotated[
        str, typer.Option("--lines", metavar="FILE|-", help="Each line is the payload of a message.")
    ] = "",
    content_type: Annotated[str, typer.Option("--content-type", metavar="TYPE")] = CONTENT_TYPE_DEFAULT,
    attr: Annotated[
        list[str] | None, typer.Option("--attr", metavar="NAME=VALUE", help="An attribute; repeat it.")
    ] = None,
    delay: Annotated[str, typer.Option("--delay", metavar="DURATION", help="Hidden for so long.")] = "0s",
    visibility: Annotated[
        str, typer.Option("--visibility", metavar="DURATION", help="What the message asks for.")
    ] = "",
    ttl: Annotated[str, typer.Option("--ttl", metavar="DURATION", help="Gone after that.")] = "",
    max_attempts: Annotated[int, typer.Option("--max-attempts", min=0, help="0: as the queue says.")] = 0,
    priority: Annotated[
        int, typer.Option("--priority", min=-128, max=127, help="The lower number leaves first.")
    ] = 0,
    txn_id: Annotated[
        str | None,
        typer.Option("--txn-id", help="Send it with the commit of this transaction; its rollback drops it."),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Send a message, or with --lines many."""
    if txn_id is not None and not txn_id.strip():
        raise failure(
            "--txn-id is empty: an acquire that failed sets no variable; leave it out to send at once", 2
        )
    sources = [standard_input, file, lines, *(["data"] if data is not None else [])]
    if standard_input not in ("", STANDARD) or len([source for source in sources if source]) > 1:
        raise failure("give one of --data, --file, --lines and -", 2)
    like = Outgoing(
        content_type=content_type,
        attributes=_attributes(attr or []),
        delay_s=duration_s(delay),
        visibility_s=duration_s(visibility) if visibility else None,
        ttl_s=duration_s(ttl) if ttl else None,
        max_attempts=max_attempts or None,
        priority=priority,
    )
    with target.client() as client:
        if lines:
            members = enqueue_lines(target.of(client), lines, like, txn_id or "")
            print_members(members, f"enqueued={members['enqueued']}", output)
        else:
            _enqueue_one(client, target, _payload(data, file or standard_input), like, txn_id or "", output)


def _enqueue_one(
    client: Client,
    target: QueueTarget,
    payload: bytes | Path | IO[bytes],
    like: Outgoing,
    txn_id: str,
    output: OutputFormat,
) -> None:
    sent = target.of(client).enqueue(
        payload,
        content_type=like.content_type,
        attributes=like.attributes,
        delay_s=like.delay_s,
        visibility_s=like.visibility_s,
        ttl_s=like.ttl_s,
        max_attempts=like.max_attempts,
        priority=like.priority,
        txn_id=txn_id,
    )
    text = f"message_id={sent.message_id} attempts={sent.attempts} max_attempts={sent.max_attempts}"
    print_members(sent.raw, text, output)


def _payload(data: str | None, file: str) -> bytes | Path | IO[bytes]:
    if data is not None:
        return os.fsencode(data)  # The very bytes of the command line.
    if file and file != STANDARD:
        return Path(file)
    if not file and is_terminal(sys.stdin):
        raise failure("no payload: give --data, --file, or - for standard input", 2)
    return standard_input()


def _attributes(pairs: list[str]) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise failure(f"--attr {pair!r}: expected NAME=VALUE", 2)
        attributes[name] = value
    return attributes


class DequeueCommand(EvaluatedCommand):
    """A failed one leaves no older message behind."""

    variables = MESSAGE_VARIABLES
    output_options = ("--output",)  # -o is a file here.


class ExtendCommand(EvaluatedCommand):
    """A failed one leaves no ETag behind that is out of date."""

    variables = ETAG_VARIABLES

    def is_evaluated(self, options: Mapping[str, Any]) -> bool:
        return bool(options["export"])

    def is_evaluated_as_typed(self, words: Sequence[str]) -> bool:
        return "--export" in words


@app.command(
    cls=DequeueCommand,
    epilog='Examples:  eval "$(holdfast queue dequeue -q jobs)"  |  '
    "holdfast queue dequeue -q jobs --block nowait -o - --output json",
)
@takes_queue()
def dequeue(
    target: QueueTarget,
    owner: Annotated[
        str, typer.Option("--owner", envvar=from_environment("OWNER"), help="Default: host name and pid.")
    ] = "",
    block: Annotated[
        str, typer.Option("--block", metavar="DURATION", help="How long to wait; 0 or forever, nowait.")
    ] = "30s",
    visibility: Annotated[
        str, typer.Option("--visibility", metavar="DURATION", help="Ours for so long; none: 30s.")
    ] = "",
    stateful: Annotated[bool, typer.Option("--stateful", help="With a lease on its state.")] = False,
    txn_id: Annotated[str, typer.Option("--txn-id", help="Enlist it in this transaction.")] = "",
    file: Annotated[
        str,
        typer.Option(
            "--payload-out",
            "-o",
            metavar="FILE|-",
            help="Where the payload goes; none: a new file.",
            callback=file_name,
        ),
    ] = "",
    page_size: Annotated[int, typer.Option("--page-size", hidden=True)] = 0,
    start_after: Annotated[str, typer.Option("--start-after", hidden=True)] = "",
    output: Format = OutputFormat.TEXT,
) -> None:
    """Take a message, and print it as exports for a shell; with -o - they go to stderr.

    What an older message exported and this one doesn't have is taken away. After a failure all of it is, and an eval
    fails; without a message in the queue all of it is, and an eval succeeds.
    """
    del page_size, start_after  # Scripts for lockd give them; a dequeue takes one message, the next one.
    with target.client() as client:
        take = target.of(client).dequeue_with_state if stateful else target.of(client).dequeue
        try:
            delivery = take(
                block_s=block_s(block),
                visibility_s=duration_s(visibility) if visibility else None,
                owner=owner or None,
                txn_id=txn_id,
            )
        except QueueEmpty:
            typer.echo("no messages available (try again later)", err=True)
            if output is OutputFormat.TEXT:
                typer.echo(leftovers(MESSAGE_VARIABLES, ()), nl=False, err=file == STANDARD)
            return
        path = _save(delivery, file)
    message = delivery.message
    if output is OutputFormat.JSON:
        text = json.dumps({**message.raw, **({"payload_path": path} if path else {})}, indent=2)
    else:
        variables = exports(message, path)
        text = leftovers(MESSAGE_VARIABLES, both_names(variables)) + export_lines(variables)
    typer.echo(text, err=file == STANDARD)


def _save(delivery: Delivery, file: str) -> str:
    """Where the payload is now. If it can't be written, the message goes back."""
    try:
        if file:
            with written(file) as out:
                delivery.payload.save_to(out)
            return "" if file == STANDARD else file
        with tempfile.NamedTemporaryFile(prefix="holdfast-payload-", delete=False) as out:
            delivery.payload.save_to(out)
            return out.name
    except BaseException:
        delivery.nack(intent="defer")
        raise


@app.command(epilog="Example:  holdfast queue ack")
@takes_queue(delivery=True)
def ack(target: QueueTarget, output: Output = OutputFormat.TEXT) -> None:
    """The message is done: it is gone for good."""
    with target.client() as client:
        target.delivery(client).ack()
    print_members({"acked": True, "message_id": target.message_id}, "acknowledged", output)


@app.command(epilog="Example:  holdfast queue nack --delay 1m --reason 'upstream is down'")
@takes_queue(delivery=True)
def nack(
    target: QueueTarget,
    delay: Annotated[str, typer.Option("--delay", metavar="DURATION", help="Hidden for so long.")] = "0s",
    reason: Annotated[
        str, typer.Option("--reason", help="Kept with the message until it is taken again.")
    ] = "",
    intent: Intents = "failure",
    output: Output = OutputFormat.TEXT,
) -> None:
    """Give the message back."""
    with target.client() as client:
        target.delivery(client).nack(delay_s=duration_s(delay), intent=_intent(intent), reason=reason)
    print_members({"requeued": True, "message_id": target.message_id}, "requeued", output)


def _intent(text: str) -> Intent:
    if text == "failure":
        return "failure"
    if text == "defer":
        return "defer"
    raise failure(f"--intent {text!r}: expected failure or defer", 2)


@app.command(
    cls=ExtendCommand,
    epilog='Examples:  holdfast queue extend --extend 45s  |  eval "$(holdfast queue extend --export)"',
)
@takes_queue(delivery=True)
def extend(
    target: QueueTarget,
    extend: Annotated[
        str, typer.Option("--extend", metavar="DURATION", help="Counted from now; none: its visibility.")
    ] = "",
    export: Annotated[
        bool, typer.Option("--export", help="Print the new ETag as an export: nack needs it.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Keep the message for longer."""
    with target.client() as client:
        delivery = target.delivery(client)
        ends_at_unix = delivery.extend(duration_s(extend) if extend else None)
    if export:
        typer.echo(export_lines([(f"{PREFIXES[0]}META_ETAG", delivery.meta_etag)]))
        return
    members = {
        "lease_expires_at_unix": ends_at_unix,
        "visibility_timeout_seconds": int(delivery.visibility_s),
        "meta_etag": delivery.meta_etag,
    }
    text = f"lease_expires_at_unix={ends_at_unix} visibility_timeout_seconds={int(delivery.visibility_s)}"
    print_members(members, text, output)
