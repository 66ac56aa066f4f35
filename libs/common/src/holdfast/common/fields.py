"""Fields of requests that several endpoints read the same way."""

import re

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import Request
from holdfast.common.names import MissingKey, spelled_key, stored_key, stored_namespace
from holdfast.common.principal import ANONYMOUS, Principal

_INT64 = re.compile(r"[+-]?[0-9]{1,19}")
_TRUE = frozenset(("1", "true", "on", "yes"))


class MissingLease(HoldfastError):
    """The request names no lease id."""

    code, status = "missing_lease", 400


class MissingFencingToken(HoldfastError):
    """The fencing token of the lease was not sent."""

    code, status = "missing_fencing_token", 400


class InvalidFencingToken(HoldfastError):
    """The fencing token is no int64."""

    code, status = "invalid_fencing_token", 400


def parse_int64(text: str) -> int | None:
    """A decimal int64, or None."""
    if not _INT64.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def is_true(text: str | None) -> bool:
    """A boolean of a query string."""
    return text is not None and text.strip().lower() in _TRUE


def fencing_token(request: Request) -> int:
    text = request.header(b"x-fencing-token")
    if not text:
        raise MissingFencingToken("X-Fencing-Token header required")
    token = parse_int64(text)
    if token is None:
        raise InvalidFencingToken("invalid fencing token")
    return token


def namespace_of(text: str | None, default: str) -> str:
    """A namespace as it is stored; empty or left out is the default one."""
    trimmed = text.strip() if text else ""
    return stored_namespace(trimmed or default)


def key_of(text: str | None) -> str:
    """A key as it is stored."""
    spelled = spelled_key(text or "")
    if not spelled:
        raise MissingKey("key is required")
    return stored_key(spelled)


def owner_of(owner: str, principal: Principal) -> str:
    """The owner is the caller's word, and with it who the caller is, if that is known."""
    if principal is ANONYMOUS:
        return owner
    name = principal.name
    return f"{owner}/{name}" if name else owner
