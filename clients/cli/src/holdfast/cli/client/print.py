"""What client commands print: exports for a shell, documents as people read them, results in one line."""

import json
import re
from collections.abc import Mapping

import typer

from holdfast.cli.output import OutputFormat, print_result
from holdfast.cli.shell_code import leftovers
from holdfast.client import Attachment, Lease, WriteResult
from holdfast.client.environment import PREFIXES

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "$": "\\$",  # Inside double quotes a shell would look at these two.
    "`": "\\`",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


def exports(lease: Lease, server: str) -> list[tuple[str, str]]:
    """What a shell needs to go on with a lease, in this order."""
    retry_after = lease.raw.get("retry_after_seconds")
    return [
        ("LEASE", lease.lease_id),
        ("KEY", lease.key),
        ("OWNER", lease.owner),
        ("FENCING_TOKEN", str(lease.fencing_token)),
        ("TXN_ID", lease.txn_id),
        ("SERVER", server),
        ("VERSION", str(lease.version)),
        ("ETAG", lease.etag),
        ("EXPIRES_UNIX", str(lease.expires_at_unix)),
        ("NAMESPACE", lease.namespace),
        *([("RETRY_AFTER", str(retry_after))] if retry_after else []),
        ("CORRELATION_ID", lease.correlation_id),
    ]


# Not those that say where and as whom to work: they may stand in a user's profile.
_OF_A_LEASE = (
    "LEASE",
    "KEY",
    "FENCING_TOKEN",
    "TXN_ID",
    "VERSION",
    "ETAG",
    "EXPIRES_UNIX",
    "RETRY_AFTER",
)
LEASE_VARIABLES = tuple(prefix + name for prefix in PREFIXES for name in _OF_A_LEASE)


def export_lines(lease: Lease, server: str) -> str:
    variables = exports(lease, server)
    gone = leftovers(
        (PREFIXES[0] + name for name in _OF_A_LEASE), (PREFIXES[0] + name for name, _ in variables)
    )
    return gone + "\n".join(f"export {PREFIXES[0]}{name}={shell_quoted(value)}" for name, value in variables)


def shell_quoted(text: str) -> str:
    """In double quotes, so that a shell reads exactly this and runs nothing of it."""
    return '"' + "".join(_quoted(character) for character in text) + '"'


def printable(text: str) -> str:
    """For a terminal: what a server says must not move the cursor or change colours."""
    return "".join(character if character.isprintable() else _quoted(character) for character in text)


def _quoted(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def print_members(members: Mapping[str, object], text: str, output: OutputFormat) -> None:
    """One line of JSON, or lines for people."""
    typer.echo(json.dumps(members, separators=(",", ":")) if output is OutputFormat.JSON else text)


def print_write(result: WriteResult, output: OutputFormat, *, is_indented: bool = False) -> None:
    """What was staged. lockd's `set` indents its JSON, its `update` does not."""
    members = {"bytes": result.size_bytes, "etag": result.etag, "version": result.version}
    text = f"version: {result.version}\nbytes: {result.size_bytes}\netag: {result.etag}"
    if is_indented:
        print_result(members, text, output)
    else:
        print_members(members, text, output)


def attachment_line(attachment: Attachment) -> str:
    return f"{printable(attachment.name)}\t{attachment.size_bytes}\t{printable(attachment.id)}"


def text_lines(members: Mapping[str, object]) -> str:
    """`name: value`, each on its line, truth values as JSON spells them."""
    return "\n".join(
        f"{name}: {printable(value) if isinstance(value, str) else json.dumps(value)}"
        for name, value in members.items()
    )


def attachment_members(attachment: Attachment) -> dict[str, object]:
    """The names that lockd's command prints."""
    members: dict[str, object] = {
        "ID": attachment.id,
        "Name": attachment.name,
        "Size": attachment.size_bytes,
        "ContentType": attachment.content_type,
        "CreatedAtUnix": attachment.created_at_unix,
        "UpdatedAtUnix": attachment.updated_at_unix,
    }
    if attachment.sha256:
        members["PlaintextSHA256"] = attachment.sha256
    return members


def pretty(document: bytes) -> bytes:
    """JSON indented by two spaces, every token spelled as it was: numbers and duplicate members stay."""
    lines: list[bytes] = []
    depth = 0
    tokens = _TOKEN.findall(document)
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else b""
        after = tokens[index + 1] if index + 1 < len(tokens) else b""
        if token in (b"{", b"["):
            depth += 1
            lines.append(token if after in (b"}", b"]") else token + _line(depth))
        elif token in (b"}", b"]"):
            depth -= 1
            lines.append(token if before in (b"{", b"[") else _line(depth) + token)
        elif token == b",":
            lines.append(token + _line(depth))
        else:
            lines.append(b": " if token == b":" else token)
    return b"".join(lines)


def _line(depth: int) -> bytes:
    return b"\n" + b"  " * depth
