"""The newest state of the keys that were touched lately, so that a hot key is not read from the engine again.

Two generations: what is used moves into the young one; when that is full it becomes the old one, and what nobody used
since then is forgotten. So a look-up costs a dictionary access, and nothing has to be kept in order.
"""

from typing import NamedTuple

from holdfast.storage.port import Record

GENERATION_BYTES = 8 << 20
ENTRY_BYTES = 400  # What an entry takes beside its value: two objects, the key, its place in the dict.
VALUE_BYTES_MAX = 16 << 10  # A larger one would push out many that are asked for more often.


class Kept(NamedTuple):
    """A record, and the same as it is stored."""

    record: Record
    stored: bytes


class Unknown:
    """The key was not touched lately; whether it exists is known to the engine."""


UNKNOWN = Unknown()


class LatestRecords:
    """By key: what a transaction reads, durable or not; None for a key that does not exist."""

    def __init__(self) -> None:
        self._young: dict[bytes, Kept | None] = {}
        self._old: dict[bytes, Kept | None] = {}
        self._young_bytes = 0

    def get(self, key: bytes) -> Kept | Unknown | None:
        kept = self._young.get(key, UNKNOWN)
        if kept is UNKNOWN:
            kept = self._old.get(key, UNKNOWN)
            if not isinstance(kept, Unknown):
                self.set(key, kept)
        return kept

    def set(self, key: bytes, kept: Kept | None) -> None:
        if kept is None:
            self._young_bytes += ENTRY_BYTES
        elif len(kept.stored) <= VALUE_BYTES_MAX:
            self._young_bytes += ENTRY_BYTES + 2 * len(kept.stored)
        else:
            self._young.pop(key, None)
            self._old.pop(key, None)
            return
        self._young[key] = kept
        if self._young_bytes > GENERATION_BYTES:
            self._old, self._young = self._young, {}
            self._young_bytes = 0

    def clear(self) -> None:
        """Nothing that was remembered is certain any more."""
        self._young.clear()
        self._old.clear()
        self._young_bytes = 0
