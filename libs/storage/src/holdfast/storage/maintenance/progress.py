"""How far a walk over a whole store has come."""

from collections.abc import Callable

Advance = Callable[[int, int], None]
"""Called with the records and the bytes that were done since the last call."""


def silent(records: int, size_bytes: int) -> None:
    """For a caller that shows no progress."""
