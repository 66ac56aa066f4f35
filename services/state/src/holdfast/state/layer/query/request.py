"""One page of a query as the layer answers it, and the cursor between two pages."""

import base64
import binascii
from typing import NamedTuple

from holdfast.lql.selector.tree import Selector
from holdfast.state.layer.errors import InvalidCursor
from holdfast.state.layer.query.engine import Engine

_CURSOR_CHARACTERS_MAX = 512


class QueryRequest(NamedTuple):
    """One page of one query. No engine: whichever the namespace prefers."""

    namespace: str
    selector: Selector
    limit: int
    cursor: str
    engine: Engine | None
    returns_documents: bool


def encode_cursor(engine: Engine, key: str) -> str:
    """Where the next page begins: strictly after this key."""
    return f"{engine}v1:{base64.urlsafe_b64encode(key.encode()).decode().rstrip('=')}"


def decode_cursor(engine: Engine, cursor: str) -> str:
    """The last key of the page before; empty: there was none."""
    if not cursor:
        return ""
    kind, _, encoded = cursor.partition(":")
    if kind != f"{engine}v1" or len(encoded) > _CURSOR_CHARACTERS_MAX:
        raise InvalidCursor(f"this is no cursor of the {engine} engine; start without one")
    try:
        padded = encoded.encode("ascii") + b"=" * (-len(encoded) % 4)
        key = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidCursor("the cursor can't be read; start without one") from None
    if not key:
        raise InvalidCursor("the cursor is cut off; start without one")
    return key
