"""What queue commands print: exports for a shell, tables, one line per message."""

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.cli.client.print import printable, shell_quoted
from holdfast.cli.queue.target import PREFIXES
from holdfast.client import Message, StoredMessage


def exports(message: Message, payload_path: str = "") -> list[tuple[str, str]]:
    """What a shell needs to resolve a message, in this order; what is empty is left out."""
    named = [
        ("NAMESPACE", message.namespace),
        ("NAME", message.queue),
        ("MESSAGE_ID", message.message_id),
        ("LEASE", message.lease_id),
        ("FENCING_TOKEN", str(message.fencing_token)),
        ("META_ETAG", message.meta_etag),
        ("PAYLOAD_PATH", payload_path),
        ("TXN_ID", message.txn_id),
        ("CORRELATION_ID", message.correlation_id),
        ("STATE_LEASE", message.state_lease_id),
        ("STATE_FENCING_TOKEN", str(message.state_fencing_token or "")),
        ("STATE_ETAG", message.state_etag),
    ]
    return [(PREFIXES[0] + name, value) for name, value in named if value]


# Not the name of the queue and its namespace: they may stand in a user's profile.
_OF_A_MESSAGE = (
    "MESSAGE_ID",
    "LEASE",
    "FENCING_TOKEN",
    "META_ETAG",
    "PAYLOAD_PATH",
    "CURSOR",
    "TXN_ID",
    "CORRELATION_ID",
    "STATE_LEASE",
    "STATE_FENCING_TOKEN",
    "STATE_ETAG",
)
MESSAGE_VARIABLES = tuple(prefix + name for prefix in PREFIXES for name in _OF_A_MESSAGE)
ETAG_VARIABLES = tuple(f"{prefix}META_ETAG" for prefix in PREFIXES)


def both_names(variables: Iterable[tuple[str, str]]) -> list[str]:
    """The names of our variables, and of lockd's that they win over."""
    return [prefix + name.removeprefix(PREFIXES[0]) for name, _ in variables for prefix in PREFIXES]


def export_lines(variables: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"export {name}={shell_quoted(value)}" for name, value in variables)


def shown(payload: bytes) -> dict[str, str]:
    """A payload as a member of JSON: text if it is text."""
    try:
        return {"payload": payload.decode("utf-8")}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode("ascii")}


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their content; nothing but the head when there is nothing."""
    lines = [[printable(str(cell)) for cell in row] for row in [head, *rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines
    ]
    return "\n".join(line.rstrip() for line in padded)


def moment(unix_s: int) -> str:
    """A time for people; a dash for none."""
    if not unix_s:
        return "-"
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(unix_s)


def stored_row(message: StoredMessage) -> list[object]:
    return [
        message.message_id,
        f"{message.attempts}/{message.max_attempts}",
        moment(message.enqueued_at_unix),
        message.payload_bytes,
        message.content_type,
    ]


STORED_HEAD = ("MESSAGE", "ATTEMPTS", "ENQUEUED", "BYTES", "TYPE")


def compact(value: Any) -> str:
    """JSON in one line; a dash for nothing."""
    return "-" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
