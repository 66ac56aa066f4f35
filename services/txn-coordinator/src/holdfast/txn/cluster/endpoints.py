"""URLs of nodes: one spelling for each, so that lists of them are sorted and without doubles."""

import posixpath
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, urlsplit

ENDPOINT_CHARS_MAX: Final = 1024


def plain_endpoint(text: str) -> str:
    """The one spelling of a URL; ValueError says why it is none of a node's."""
    trimmed = text.strip()
    if len(trimmed) > ENDPOINT_CHARS_MAX:
        raise ValueError(f"longer than {ENDPOINT_CHARS_MAX} characters")
    if not trimmed.isprintable() or not trimmed.isascii() or " " in trimmed:
        raise ValueError("has characters that stand in no URL")
    parts = urlsplit(trimmed)
    _refuse_odd(parts, trimmed)
    # An empty host or a port out of range shows only when asked for.
    host, port = parts.hostname or "", parts.port
    if not host:
        raise ValueError("has no host")
    address = f"[{host}]" if ":" in host else host
    path = posixpath.normpath(f"/{parts.path.lstrip('/')}").rstrip("/")
    return f"{parts.scheme}://{address}{'' if port is None else f':{port}'}{path}"


def _refuse_odd(parts: SplitResult, text: str) -> None:
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or a password")
    if "?" in text or "#" in text:
        raise ValueError("must not have a query or a fragment")


def plain_endpoints(texts: Iterable[str]) -> list[str]:
    """Sorted, each once, and without those that are none."""
    found: set[str] = set()
    for text in texts:
        try:
            found.add(plain_endpoint(text))
        except ValueError:
            continue
    return sorted(found)
