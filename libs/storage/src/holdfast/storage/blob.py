"""What all blob stores share."""

import re
from dataclasses import dataclass

from holdfast.storage.errors import InvalidBatch
from holdfast.storage.port import BlobRef

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(slots=True)
class Removals:
    """How many blobs were removed since the store was opened, and how many bytes as they were stored."""

    blobs: int = 0
    bytes: int = 0

    def add(self, size_bytes: int) -> None:
        self.blobs += 1
        self.bytes += size_bytes

    def figures(self) -> dict[str, float]:
        return {"blobs_removed": self.blobs, "blob_removed_bytes": self.bytes}


def checked_id(blob_id: str) -> str:
    """The id, if it is one: a restore takes it from a file, and on disk it becomes a file name."""
    if _ID.fullmatch(blob_id) is None:
        raise InvalidBatch(f"{blob_id[:40]!r} is no blob id")
    return blob_id


def checked_end(ref: BlobRef, start: int, end: int | None) -> int:
    """Where a read of [start, end) ends; InvalidBatch if that is no part of the blob."""
    last = ref.size_bytes if end is None else min(end, ref.size_bytes)
    if not 0 <= start <= last:
        raise InvalidBatch(f"bytes {start} to {last} are not within a blob of {ref.size_bytes} bytes")
    return last
