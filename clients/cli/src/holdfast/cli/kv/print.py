"""What `holdfast kv` prints: keys and values as etcdctl does, answers as JSON with whole numbers."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import typer

from holdfast.cli.client.print import printable
from holdfast.cli.output import OutputFormat
from holdfast.cli.streams import is_terminal
from holdfast.client import GetOp, KeyValue, KvDeleteResult, KvGetResult, KvPutResult, KvTxnResult, TxnOp

_INTEGERS: Final = frozenset(
    {
        *("cluster_id", "member_id", "revision", "raft_term"),
        *("create_revision", "mod_revision", "version", "lease"),
        *("count", "deleted", "ID", "TTL", "grantedTTL"),
    }
)
"""Members whose 64 bits the API writes as text, because some readers of JSON would round them."""
_ESCAPED: Final = range(0xDC80, 0xDD00)
"""Where Python keeps the bytes of a text that are no UTF-8."""


@dataclass(frozen=True, slots=True)
class Look:
    """How keys and values are shown."""

    is_hex: bool = False
    keys: bool = True
    values: bool = True
    is_counted: bool = False
    """How many there are instead."""


def print_lines(lines: Iterable[bytes]) -> None:
    """The bytes themselves; on a terminal nothing that it would obey."""
    is_escaped = is_terminal(sys.stdout)
    for line in lines:
        typer.echo(for_terminal(line) if is_escaped else line)


def for_terminal(data: bytes) -> str:
    """Text as it is, with its line breaks and tabs, and everything else escaped."""
    return "".join(_shown(character) for character in data.decode("utf-8", "surrogateescape"))


def _shown(character: str) -> str:
    if character in "\n\t":
        return character
    if ord(character) in _ESCAPED:
        return f"\\x{ord(character) - 0xDC00:02x}"
    return printable(character)


def print_answer(raw: object, lines: Iterable[bytes], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(with_numbers(raw), indent=2))
    else:
        print_lines(lines)


def print_line_of_json(members: object) -> None:
    """One of many."""
    typer.echo(json.dumps(with_numbers(members), separators=(",", ":")))


def with_numbers(raw: Any, name: str = "") -> object:
    """An answer with its integers as integers, as etcdctl prints it; keys and values stay base64."""
    if isinstance(raw, dict):
        return {inner: with_numbers(value, inner) for inner, value in raw.items()}
    if isinstance(raw, list):
        return [with_numbers(value) for value in raw]
    return int(raw) if name in _INTEGERS and isinstance(raw, str) else raw


def kv_lines(kv: KeyValue, look: Look) -> Iterator[bytes]:
    if look.keys:
        yield _octets(kv.key, look)
    if look.values:
        yield _octets(kv.value, look)


def _octets(data: bytes, look: Look) -> bytes:
    return "".join(f"\\x{byte:02x}" for byte in data).encode() if look.is_hex else data


def put_lines(result: KvPutResult, look: Look) -> Iterator[bytes]:
    yield b"OK"
    if result.prev_kv is not None:
        yield from kv_lines(result.prev_kv, look)


def get_lines(result: KvGetResult, look: Look) -> Iterator[bytes]:
    if look.is_counted:
        yield str(result.count).encode()
    for kv in result.kvs:
        yield from kv_lines(kv, look)


def delete_lines(result: KvDeleteResult, look: Look) -> Iterator[bytes]:
    yield str(result.deleted).encode()
    for kv in result.prev_kvs:
        yield from kv_lines(kv, look)


def txn_lines(operation: TxnOp, result: KvTxnResult) -> Iterator[bytes]:
    """An empty line before each result, so that a script can tell them apart."""
    yield b"SUCCESS" if result.succeeded else b"FAILURE"
    branch = operation.success if result.succeeded else operation.failure
    for asked, told in zip(branch, result.results, strict=False):
        yield b""
        if isinstance(asked, GetOp) and isinstance(told, KvGetResult):
            yield from get_lines(told, Look(values=not asked.keys_only, is_counted=asked.count_only))
        elif isinstance(told, KvPutResult):
            yield from put_lines(told, Look())
        elif isinstance(told, KvDeleteResult):
            yield from delete_lines(told, Look())
