"""Fields of requests that several endpoints read the same way."""

import re
from functools import lru_cache

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import Request
from holdfast.common.security.principal import ANONYMOUS, Principal

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


NAME_BYTES_MAX = 128
_CACHED_NAMES = 4096

_NAMESPACE = re.compile(r"[a-z0-9_-][a-z0-9._-]*")
_KEY = re.compile(r"[a-z0-9._-]+(?:/[a-z0-9._-]+)*")


class InvalidNamespace(HoldfastError):
    """A namespace of other characters than a-z 0-9 . _ -, too long, or one that begins with a dot, which are ours."""

    code, status = "invalid_namespace", 400


class InvalidKey(HoldfastError):
    """A key of other characters than a-z 0-9 . _ - and single slashes between them, or too long."""

    code, status = "invalid_key", 400


class MissingKey(HoldfastError):
    """The request names no key."""

    code, status = "missing_key", 400


@lru_cache(maxsize=_CACHED_NAMES)
def stored_namespace(text: str) -> str:
    """A namespace as it is stored: trimmed and lower case."""
    name = text.strip().lower()
    if len(name.encode()) > NAME_BYTES_MAX or not _NAMESPACE.fullmatch(name):
        raise InvalidNamespace(
            f"namespace {text[:200]!r}: at most {NAME_BYTES_MAX} of a-z 0-9 . _ -, not beginning with a dot"
        )
    return name


def spelled_key(text: str, namespace: str = "") -> str:
    """A key as its caller spelled it, without what is only decoration: white space, a slash or `namespace/` in front."""
    key = text.strip().removeprefix("/")
    return key.removeprefix(f"{namespace}/") if namespace else key


@lru_cache(maxsize=_CACHED_NAMES)
def stored_key(spelled: str) -> str:
    """A key as it is stored: lower case. `.` and `..` are no segments: nothing here is a path to walk."""
    key = spelled.lower()
    if (
        len(key.encode()) > NAME_BYTES_MAX
        or not _KEY.fullmatch(key)
        or any(segment in (".", "..") for segment in key.split("/"))
    ):
        raise InvalidKey(
            f"key {spelled[:200]!r}: at most {NAME_BYTES_MAX} of a-z 0-9 . _ - in segments divided by single slashes"
        )
    return key
