"""`holdfast client`: leases and documents of a running plane, from a shell."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from holdfast.cli import namespace
from holdfast.cli.client import attachments, mutation, query, watch
from holdfast.cli.client.print import (
    LEASE_VARIABLES,
    export_lines,
    pretty,
    print_members,
    print_write,
    printable,
    text_lines,
)
from holdfast.cli.client.target import (
    IfEtag,
    IfVersion,
    Target,
    block_s,
    duration_s,
    from_environment,
    takes_target,
)
from holdfast.cli.files import read_whole
from holdfast.cli.output import Output, OutputFormat, failure, file_name
from holdfast.cli.queue import command as queue
from holdfast.cli.shell_code import EvaluatedCommand
from holdfast.cli.streams import standard_input, standard_output
from holdfast.client.sync.stream import DocumentStream
from holdfast.client.wire.request import json_bytes

app = typer.Typer(
    name="client",
    add_completion=False,
    no_args_is_help=True,
    help="Work with a running plane. `acquire` exports what the other commands need; any option wins over it.",
    epilog='Example:  eval "$(holdfast client acquire --key orders)"; holdfast client get; holdfast client release',
)
for _part in (query, mutation, attachments, watch, namespace, queue):
    app.add_typer(_part.app)


class DocumentType(StrEnum):
    """How a document is written down."""

    AUTO = "auto"
    RAW = "raw"
    JSON = "json"
    YAML = "yaml"


Type = Annotated[DocumentType, typer.Option("--type", help="How the document is written down.")]


class AcquireCommand(EvaluatedCommand):
    """A failed one leaves no older lease behind."""

    variables = LEASE_VARIABLES


@app.command(
    cls=AcquireCommand,
    epilog='Examples:  eval "$(holdfast client acquire -k orders --ttl 1m)"  |  '
    "holdfast client acquire -k orders --block nowait --output json",
)
@takes_target(key=False)
def acquire(
    target: Target,
    key: Annotated[str, typer.Option("--key", "-k", help="Which key; none: the server invents one.")] = "",
    ttl: Annotated[str, typer.Option("--ttl", metavar="DURATION", help="How long the lease lasts.")] = "30s",
    block: Annotated[
        str, typer.Option("--block", metavar="DURATION", help="How long to wait; 0 or forever, nowait.")
    ] = "10s",
    owner: Annotated[
        str, typer.Option("--owner", envvar=from_environment("OWNER"), help="Default: host name and pid.")
    ] = "",
    txn_id: Annotated[
        str, typer.Option("--txn-id", envvar=from_environment("TXN_ID"), help="Join this transaction.")
    ] = "",
    retries: Annotated[int, typer.Option("--retries", min=0, help="When no server answers.")] = 5,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Fail if the key exists.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Take a lease, and print it as exports for a shell.

    After a failure the shell code takes the variables of an older lease away, and an eval of it fails.
    """
    with target.client() as client:
        session = client.acquire(
            key,
            ttl_s=duration_s(ttl),
            block_s=block_s(block),
            owner=owner or None,
            namespace=target.namespace or None,
            txn_id=txn_id,
            retries=retries,
            if_not_exists=if_not_exists,
            keepalive=False,
        )
        lease = session.detach()
        server = ",".join(endpoint.name for endpoint in client.endpoints)
    typer.echo(
        json.dumps(lease.raw, indent=2) if output is OutputFormat.JSON else export_lines(lease, server)
    )


@app.command(epilog="Example:  holdfast client keepalive --ttl 45s")
@takes_target(lease=True)
def keepalive(
    target: Target,
    ttl: Annotated[str, typer.Option("--ttl", metavar="DURATION", help="Counted from now.")] = "30s",
    output: Output = OutputFormat.JSON,
) -> None:
    """Let the lease last longer."""
    with target.client() as client:
        expires_at_unix = target.session(client).keepalive(duration_s(ttl))
    moment = _moment(expires_at_unix)
    if output is OutputFormat.TEXT:
        typer.echo(f"expires_at_unix: {expires_at_unix} ({moment})")
    else:
        typer.echo(json.dumps({"expires_at_iso": moment, "expires_at_unix": expires_at_unix}, indent=2))


@app.command(epilog="Examples:  holdfast client release  |  holdfast client release --rollback")
@takes_target(lease=True)
def release(
    target: Target,
    rollback: Annotated[bool, typer.Option("--rollback", help="Forget what was staged.")] = False,
    output: Output = OutputFormat.JSON,
) -> None:
    """End the lease: publish what was staged, or forget it."""
    with target.client() as client:
        target.session(client).release(rollback=rollback)
    typer.echo(json.dumps({"released": True}) if output is OutputFormat.JSON else "released: true")


@app.command(epilog="Example:  holdfast client describe -k orders --output text")
@takes_target()
def describe(target: Target, output: Output = OutputFormat.JSON) -> None:
    """Who holds a key, and at which version it is. Needs no lease."""
    with target.client() as client:
        described = client.describe(target.required_key(), namespace=target.namespace or None)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(described.raw, indent=2))
    else:
        typer.echo(text_lines(described.raw))


@app.command(
    epilog="Examples:  holdfast client get --output yaml  |  holdfast client get -k orders --public --file orders.yaml"
)
@takes_target(lease=True)
def get(
    target: Target,
    public: Annotated[
        bool, typer.Option("--public", help="The last committed document; needs no lease.")
    ] = False,
    file: Annotated[
        str,
        typer.Option("--file", "-f", "-o", metavar="FILE|-", help="Where it goes.", callback=file_name),
    ] = "-",
    output: Annotated[
        DocumentType | None, typer.Option("--output", help="How the document is written down; as --type.")
    ] = None,
    type: Type = DocumentType.AUTO,
    show_meta: Annotated[bool, typer.Option("--show-meta", help="Also version and ETag, on stderr.")] = False,
) -> None:
    """Print the document; its size, ETag and version go to stderr."""
    if output is not None and type not in (DocumentType.AUTO, output):
        raise typer.BadParameter(f"--type says {type}; give one of them", param_hint="--output")
    kind = _kind_of(output or type, file, on_stdout=DocumentType.JSON)
    with target.client() as client:
        if public:
            document = client.stream(target.required_key(), namespace=target.namespace or None)
        else:
            document = target.session(client).stream()
        with document as stream, _opened(file) as out:
            if kind is DocumentType.RAW and stream.exists:
                size_bytes = stream.save_to(out)
            else:
                content = stream.read(client.options.document_bytes_max) if stream.exists else b"null"
                out.write(_shown(content, kind))
                size_bytes = len(content) if stream.exists else 0
    _tell(size_bytes, stream, show_meta=show_meta)


@app.command(
    epilog="Examples:  holdfast client update order.json  |  echo '{\"n\":1}' | holdfast client update"
)
@takes_target(lease=True)
def update(
    target: Target,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The document; - is standard input.")] = "-",
    type: Type = DocumentType.AUTO,
    if_version: IfVersion = None,
    if_etag: IfEtag = None,
    output: Output = OutputFormat.JSON,
) -> None:
    """Stage a document; release publishes it."""
    source = _document_source(file, _kind_of(type, file, on_stdout=DocumentType.JSON))
    with target.client() as client:
        session = target.session(client)
        result = session.update(source, if_version=if_version, if_etag=if_etag, cas=False)
    print_write(result, output)


@app.command(epilog="Example:  holdfast client remove --if-version 3")
@takes_target(lease=True)
def remove(
    target: Target,
    if_version: IfVersion = None,
    if_etag: IfEtag = None,
    output: Output = OutputFormat.JSON,
) -> None:
    """Stage the removal of the document and all attachments."""
    with target.client() as client:
        result = target.session(client).remove(if_version=if_version, if_etag=if_etag, cas=False)
    members = {"removed": result.is_removed, "version": result.version}
    print_members(members, text_lines(members), output)


for _alias in ("delete", "rm"):
    app.command(_alias, hidden=True)(remove)


@app.command(epilog="Example:  holdfast client metadata --query-hidden")
@takes_target(lease=True)
def metadata(
    target: Target,
    query_hidden: Annotated[
        bool, typer.Option("--query-hidden/--no-query-hidden", help="Leave the key out of queries, or not.")
    ],
    if_version: IfVersion = None,
    output: Output = OutputFormat.JSON,
) -> None:
    """Stage an attribute of the key."""
    with target.client() as client:
        version = target.session(client).metadata(query_hidden=query_hidden, if_version=if_version, cas=False)
    members = {"query_hidden": query_hidden, "version": version}
    print_members(members, text_lines(members), output)


def _moment(unix_s: int) -> str:
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        raise failure(f"the server gave {unix_s} as the end of the lease, which is no date") from None


def _kind_of(type: DocumentType, file: str, *, on_stdout: DocumentType) -> DocumentType:
    """What `auto` means: by the name of the file."""
    if type is not DocumentType.AUTO:
        return type
    if file == "-":
        return on_stdout
    kinds = {".yaml": DocumentType.YAML, ".yml": DocumentType.YAML, ".json": DocumentType.JSON}
    return kinds.get(Path(file).suffix.lower(), DocumentType.RAW)


def _shown(document: bytes, kind: DocumentType) -> bytes:
    if kind is DocumentType.RAW:
        return document
    if kind is DocumentType.YAML:
        import yaml

        return yaml.safe_dump(json.loads(document), allow_unicode=True, sort_keys=False).encode()
    return pretty(document) + b"\n"


def _tell(size_bytes: int, stream: DocumentStream, *, show_meta: bool) -> None:
    members: dict[str, object] = {"bytes": size_bytes}
    if stream.etag:
        members["etag"] = stream.etag
    members["version"] = str(stream.version)
    typer.echo(json.dumps(members, separators=(",", ":")), err=True)
    if show_meta:
        typer.echo(f"version: {stream.version}\netag: {printable(stream.etag)}", err=True)


def _document_source(file: str, kind: DocumentType) -> Path | IO[bytes] | bytes:
    """JSON is sent as it is read; the server looks at it."""
    if kind is not DocumentType.YAML:
        return standard_input() if file == "-" else Path(file)
    import yaml

    try:
        value: Any = yaml.safe_load(read_whole(file))
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        raise failure(f"{file}: this is no YAML: {error}") from None
    return json_bytes(value)


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """Where a result goes; - is standard output."""
    if file == "-":
        out = standard_output()
        yield out
        out.flush()
        return
    try:
        with Path(file).open("wb") as opened:
            yield opened
    except OSError as error:
        raise failure(f"{file}: {error.strerror}") from None
