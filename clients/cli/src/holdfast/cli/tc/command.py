"""`holdfast tc`: the nodes that decide transactions together, and whom they trust."""

from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from holdfast.cli.client.print import printable
from holdfast.cli.client.target import from_environment
from holdfast.cli.output import Output, OutputFormat, failure, print_result
from holdfast.cli.tc.target import Members, TcTarget
from holdfast.common.security.bundle import InvalidBundle, read_bundle
from holdfast.common.security.trust import pem_of, read_trust, trust_file_name
from holdfast.common.settings import PlaneSettings

app = typer.Typer(
    name="tc",
    add_completion=False,
    no_args_is_help=True,
    help="Members, leader and trust of the nodes that decide transactions together.",
    epilog="Examples:  holdfast tc status --endpoint https://a:9341  |  holdfast tc trust add --ca other-ca.pem",
)
trust_app = typer.Typer(
    name="trust",
    no_args_is_help=True,
    help="Whose certificates coordinators may show.",
    epilog="Example:  holdfast tc trust list",
)
app.add_typer(trust_app)

DEFAULT_ENDPOINT = "http://127.0.0.1:9341"

Endpoints = Annotated[
    list[str],
    typer.Option(
        "--endpoint",
        "-e",
        metavar="URL",
        envvar=from_environment("SERVER"),
        help="A node; may be repeated or have commas. The first that answers counts.",
    ),
]
Bundle = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="PATH", help="TC client bundle; else the one in the config directory."),
]
ServerBundle = Annotated[
    Path | None,
    typer.Option(
        "--server-bundle",
        metavar="PATH",
        help="The node's server bundle, which is its identity; else the server's own.",
    ),
]
TrustDir = Annotated[
    Path | None, typer.Option("--trust-dir", metavar="DIR", help="Else the server's tc-trust-dir.")
]


@app.command("list", epilog="Example:  holdfast tc list --endpoint https://a:9341 --output json")
def list_(
    endpoint: Endpoints = [DEFAULT_ENDPOINT],  # noqa: B006 - Typer copies it
    bundle: Bundle = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show the members, one on each line."""
    _print_members(TcTarget(endpoint, bundle=bundle).first("/v1/tc/cluster/list"), output)


SelfUrl = Annotated[
    str, typer.Option("--self", metavar="URL", help="The URL under which other nodes reach this one.")
]


@app.command(epilog="Example:  holdfast tc announce --self https://b:9341 --endpoint https://a:9341")
def announce(
    self_url: SelfUrl,
    endpoint: Endpoints = [DEFAULT_ENDPOINT],  # noqa: B006 - Typer copies it
    server_bundle: ServerBundle = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Say that a node belongs to the cluster; its server certificate says which one it is."""
    target = TcTarget(endpoint, bundle=server_bundle, as_server=True)
    _print_members(target.first("/v1/tc/cluster/announce", {"self_endpoint": self_url}), output)


app.command("join", epilog="Example:  holdfast tc join --self https://b:9341 --endpoint https://a:9341")(
    announce
)


@app.command(epilog="Example:  holdfast tc leave --endpoint https://b:9341")
def leave(
    endpoint: Endpoints = [DEFAULT_ENDPOINT],  # noqa: B006 - Typer copies it
    server_bundle: ServerBundle = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Take a node out of the cluster: ask the node itself, with its own server certificate."""
    target = TcTarget(endpoint, bundle=server_bundle, as_server=True)
    _print_members(target.first("/v1/tc/cluster/leave", {}), output)


@app.command(epilog="Example:  holdfast tc status --endpoint https://a:9341")
def status(
    endpoint: Endpoints = [DEFAULT_ENDPOINT],  # noqa: B006 - Typer copies it
    bundle: Bundle = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Ask every member whom it follows; exits with 1 unless all of them follow one leader."""
    target = TcTarget(endpoint, bundle=bundle)
    listed = [str(url) for url in target.first("/v1/tc/cluster/list").get("endpoints", [])]
    nodes = [_node(url, target.ask(url, "/v1/tc/leader")) for url in listed or target.endpoints]
    leaders = {(node["leader_endpoint"], node["term"]) for node in nodes}
    has_leader = len(leaders) == 1 and all(node["leader_endpoint"] for node in nodes)
    print_result({"has_leader": has_leader, "nodes": nodes}, _table(nodes), output)
    if not has_leader:
        raise typer.Exit(1)


def _node(url: str, answer: Members | str) -> dict[str, Any]:
    problem = answer if isinstance(answer, str) else str(answer.get("error", ""))
    known: Members = {} if isinstance(answer, str) else answer
    return {
        "endpoint": url,
        "leader_endpoint": str(known.get("leader_endpoint", "")),
        "term": known.get("term", 0),
        "problem": problem,
    }


def _table(nodes: list[dict[str, Any]]) -> str:
    rows = [("NODE", "FOLLOWS", "TERM", "PROBLEM")]
    for node in nodes:
        leader = node["leader_endpoint"]
        follows = "itself" if leader == node["endpoint"] else leader or "no leader"
        rows.append((node["endpoint"], follows, str(node["term"] or "-"), node["problem"]))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip()
        for row in rows
    ]
    return "\n".join(printable(line) for line in lines)


def _print_members(answer: Members, output: OutputFormat) -> None:
    endpoints = [str(url) for url in answer.get("endpoints") or []]
    if output is OutputFormat.JSON or endpoints:
        print_result(answer, "\n".join(printable(url) for url in endpoints), output)


@app.command("ca-export", epilog="Example:  holdfast tc ca-export --out my-ca.pem")
def ca_export(
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="PATH", help="A server bundle; else the server's own.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="PATH", help="A file; else stdout.")] = None,
) -> None:
    """Write the CA certificate of a server bundle, for the trust directories of other islands."""
    path = bundle or PlaneSettings().bundle
    authorities = read_bundle(path).ca_certificates
    if not authorities:
        raise failure(f"bundle {path}: no CA certificate")
    text = pem_of(authorities[:1])
    if out is None:
        typer.echo(text.decode("ascii"), nl=False)
        return
    out.write_bytes(text)
    typer.echo(f"ca certificate written to {out}")


@trust_app.command("add", epilog="Example:  holdfast tc trust add --ca other-ca.pem")
def trust_add(
    ca: Annotated[Path, typer.Option("--ca", metavar="PATH", help="A PEM file with CA certificates.")],
    trust_dir: TrustDir = None,
) -> None:
    """Trust the CA of another island; a running server has to be started anew."""
    folder = trust_dir or PlaneSettings().tc_trust_dir
    authorities = read_bundle(ca).ca_certificates
    if not authorities:
        raise failure(f"{ca} holds no CA certificate")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for authority in authorities:
        path = folder / trust_file_name(authority)
        path.touch(mode=0o600)
        path.write_bytes(authority.public_bytes(Encoding.PEM))
        typer.echo(f"trusted ca written to {path}")


@trust_app.command("list", epilog="Example:  holdfast tc trust list --output json")
def trust_list(trust_dir: TrustDir = None, output: Output = OutputFormat.TEXT) -> None:
    """Show the CAs of other islands that are trusted."""
    folder = trust_dir or PlaneSettings().tc_trust_dir
    try:
        authorities = read_trust(folder)
    except InvalidBundle as error:
        raise failure(error.detail) from None
    rows = [_authority(authority) for authority in authorities]
    text = "\n".join(f"{row['file']}  {row['subject']}  expires {row['expires']}" for row in rows)
    print_result({"directory": str(folder), "authorities": rows}, text or f"no CA in {folder}", output)


def _authority(authority: x509.Certificate) -> dict[str, str]:
    return {
        "file": trust_file_name(authority),
        "subject": printable(authority.subject.rfc4514_string()),
        "serial": f"{authority.serial_number:x}",
        "expires": authority.not_valid_after_utc.isoformat(),
    }
