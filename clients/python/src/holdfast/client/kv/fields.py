"""Members of etcd's JSON: 64-bit integers are text, bytes are base64, and what has its default value is left out."""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from holdfast.client.errors import ApiError, InvalidArgument, UnexpectedAnswer, typed_error
from holdfast.client.wire.call import Members

Octets = str | bytes
"""Keys and values are bytes; text stands for its UTF-8."""

INT64_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 20


def octets(value: Octets) -> bytes:
    """Bytes that came in through the command line or the environment as text leave as they were."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def in_base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def present(members: Mapping[str, object]) -> dict[str, object]:
    """Without what has its default value, as etcd writes it; integers become text, which no reader rounds."""
    return {name: _written(value) for name, value in members.items() if value}


def _written(value: object) -> object:
    if isinstance(value, bytes):
        return in_base64(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not -INT64_MAX - 1 <= value <= INT64_MAX:
            raise InvalidArgument(f"{value} does not fit into 64 bits")
        return str(value)
    return value


def read_int64(members: Members, name: str) -> int:
    """A number, or its digits as text; absent is 0."""
    value = members.raw.get(name, 0)
    if isinstance(value, str) and len(value) <= _DIGITS_MAX:
        try:
            value = int(value)
        except ValueError:
            raise _broken(name) from None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _broken(name)
    return value


def read_octets(members: Members, name: str) -> bytes:
    return _decoded(members.text(name), name)


def read_octets_list(members: Members, name: str) -> tuple[bytes, ...]:
    values = members.raw.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _broken(name)
    return tuple(_decoded(value, name) for value in values)


def stream_error(members: Members) -> ApiError:
    """What etcd's gateway says where a stream would have gone on."""
    return typed_error(read_int64(members, "http_code") or 500, members.text("message"))


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _broken(name) from None


def _broken(name: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(f"an answer with a missing or broken member {name!r}")
