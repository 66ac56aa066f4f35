"""The ASGI scope of a request: what its bytes say, and the keys that server and app agree on in `extensions`."""

from typing import Any, Final
from urllib.parse import unquote

import httptools

from holdfast.common.errors import InvalidRequest

CORRELATION_ID: Final = "holdfast.correlation_id"
PRINCIPAL: Final = "holdfast.principal"
"""Who the connection belongs to; None without mutual TLS."""
INLINE_BODY_BYTES: Final = "holdfast.inline_body_bytes"
"""Above this a body is a stream, if its route takes one."""
ABORT: Final = "holdfast.abort"
"""Drops the connection at once, so that nobody takes what was sent so far for the whole."""
IS_PEER_GONE: Final = "holdfast.is_peer_gone"
"""Tells whether the client has hung up for good, also before its end was read."""
END_WITH_CLIENT: Final = "holdfast.end_with_client"
"""Says that the answer goes on until the client ends its input, by closing the connection or only its half."""
IS_OBSERVED: Final = "holdfast.is_observed"
"""Set when the request was counted where it ran, so that nobody counts it again."""
SPAN: Final = "holdfast.span"
"""The span of a request that is traced."""


def target_scope(url: bytes, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """The part of a scope that comes from the request target and the headers."""
    target = httptools.parse_url(url)
    if not target.path:
        raise InvalidRequest("the request target has no path")
    path = target.path.decode("ascii")
    return {
        "type": "http",
        "path": unquote(path) if "%" in path else path,
        "raw_path": target.path,
        "query_string": target.query or b"",
        "headers": headers,
    }


def has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a body follows these headers."""
    return any(
        (name == b"content-length" and value.strip() != b"0") or name == b"transfer-encoding"
        for name, value in headers
    )


def expects_continue(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the client waits to be asked for its body."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
