"""The blobs of a local store that lost their last reference, and when: they are free when no reader can want them any more.

A reader finds the record first and opens the blob then, so a blob stays for some time after its record. From there on the reader
has an open file, or the bytes, which outlive the removal. What is forgotten here, by a restart or because it is too
much, is found by the sweep over all blobs.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from holdfast.common.clock import SteadyClock

BLOBS_MAX: Final = 100_000


class References(Protocol):
    """The records of the store, as its blobs see them."""

    def is_blob_referenced(self, blob_id: str) -> bool: ...

    @property
    def has_snapshots(self) -> bool:
        """Whether a snapshot is being read: it may refer to what no record refers to any more."""
        ...


class ReleasedBlobs:
    """Oldest first: a dict keeps the order of insertion."""

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock
        self._released_at_s: dict[str, float] = {}

    def add(self, blob_ids: Iterable[str]) -> None:
        now_s = self._clock.now_s()
        for blob_id in blob_ids:
            self._released_at_s.pop(blob_id, None)
            self._released_at_s[blob_id] = now_s
        while len(self._released_at_s) > BLOBS_MAX:
            del self._released_at_s[next(iter(self._released_at_s))]

    def is_younger(self, blob_id: str, grace_s: float) -> bool:
        released_at_s = self._released_at_s.get(blob_id)
        return released_at_s is not None and released_at_s > self._clock.now_s() - grace_s

    def free(self, references: References, remove: Callable[[str], bool], *, grace_s: float) -> int:
        """Remove those that are old enough and that no record refers to again; how many."""
        removed = 0
        while self._released_at_s and not references.has_snapshots:
            blob_id = next(iter(self._released_at_s))
            if self.is_younger(blob_id, grace_s):
                break
            del self._released_at_s[blob_id]
            # No await between the question and the removal: no commit can come in between.
            if not references.is_blob_referenced(blob_id):
                removed += remove(blob_id)
        return removed
