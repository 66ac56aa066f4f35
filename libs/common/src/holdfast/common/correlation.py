"""Correlation ids: which ones of a caller are taken, and a fresh one for everybody else."""

import re
from typing import Final

from holdfast.common.ids import uuid7

HEADER: Final = b"x-correlation-id"

_is_acceptable = re.compile(rb"[\x20-\x7e]{1,128}").fullmatch


def correlation_id(offered: bytes | None) -> str:
    """The caller's id when it is 1 to 128 printable ASCII characters after trimming, else a new UUIDv7."""
    if offered is not None:
        trimmed = offered.strip()
        if _is_acceptable(trimmed):
            return trimmed.decode("ascii")
    return uuid7()


def correlation_id_of(headers: list[tuple[bytes, bytes]]) -> str:
    """The same, from a list of headers with lower-case names; the first of a repeated header counts."""
    for name, value in headers:
        if name == HEADER:
            return correlation_id(value)
    return uuid7()
