"""Names of namespaces and keys: what is allowed, and the one spelling under which they are stored."""

import re
from functools import lru_cache

from holdfast.common.errors import HoldfastError

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
