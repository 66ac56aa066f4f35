"""Keys, channels, patterns and payloads: bytes to TCP, text in JSON."""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Final
from urllib.parse import parse_qsl

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import Request
from holdfast.common.fields import MissingKey
from holdfast.leases.layer.locks.signals import REST
from holdfast.leases.protocol.locks.errors import InvalidLockKey, InvalidSignal

NAME_BYTES_MAX: Final = 256
"""Of a key, a channel, a payload: what fits into a line of dflockd's protocol."""

_has_blank = re.compile(rb"[ \t\r\n]").search


def key_of(text: str | None, base64: str | None = None) -> bytes:
    """The key of a body; one that is no text comes in base64."""
    if base64 is None:
        return checked_key((text or "").encode())
    try:
        return checked_key(b64decode(base64, validate=True))
    except (Base64Error, ValueError) as error:
        raise InvalidLockKey("key_base64 is no base64") from error


def checked_key(key: bytes) -> bytes:
    if not key:
        raise MissingKey("key is required")
    return _name(key, "key", InvalidLockKey)


def queried(request: Request, name: str) -> bytes:
    """A query parameter as the bytes that it stands for; nothing if it was not sent."""
    if request.query(name) is None:
        return b""
    pairs = parse_qsl(request.query_string.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    return next((value.encode("latin-1") for found, value in pairs if found == name), b"")


def channel_of(text: str | None) -> bytes:
    channel = _name((text or "").encode(), "channel", InvalidSignal)
    if b"*" in channel or b">" in channel:
        raise InvalidSignal("a channel has no * and no >: those are for patterns")
    return channel


def pattern_of(request: Request) -> bytes:
    pattern = _name(queried(request, "pattern"), "pattern", InvalidSignal)
    if REST in pattern.split(b".")[:-1]:
        raise InvalidSignal("> stands for the rest of a channel, so it ends a pattern")
    return pattern


def group_of(request: Request) -> bytes:
    group = queried(request, "group")
    return _name(group, "group", InvalidSignal) if group else b""


def payload_of(text: str | None, base64: str | None) -> bytes:
    try:
        payload = (text or "").encode() if base64 is None else b64decode(base64, validate=True)
    except (Base64Error, ValueError) as error:
        raise InvalidSignal("payload_base64 is no base64") from error
    if not 1 <= len(payload) <= NAME_BYTES_MAX or b"\n" in payload or payload.endswith(b"\r"):
        raise InvalidSignal(f"payload: 1 to {NAME_BYTES_MAX} bytes in one line")
    return payload


def spelled(name: str, value: bytes) -> dict[str, str]:
    """Bytes as a member of an answer; what is no text comes in base64, too."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name: value.decode("utf-8", "replace"), f"{name}_base64": b64encode(value).decode("ascii")}


def _name(value: bytes, what: str, error: type[HoldfastError]) -> bytes:
    if not 1 <= len(value) <= NAME_BYTES_MAX or _has_blank(value) is not None:
        raise error(f"{what}: 1 to {NAME_BYTES_MAX} bytes without blanks and line ends")
    return value


def labelled(owner: str, address: str) -> str:
    """What a session over HTTP is called: who asked, and from where."""
    return f"{owner}@{address}" if owner else address


def owner_and_address(label: str) -> tuple[str, str]:
    """The two of them again; a connection over TCP has no owner."""
    owner, _, address = label.rpartition("@")
    return owner, address
